//! From a snapshot to a plan: which nodes to launch for pending pods, what existing ones take, which ones can go.
//!
//! Pure and deterministic: the order of the snapshot's lists does not matter, and no clock, environment or randomness is read.
//! Pods are handled by shape, offerings (type x zone x capacity type) as bit sets per pool.
//!
//! Not done yet: pods with required topology spread, required pod (anti-)affinity, volumes with a topology or resource claims are
//! reported as unschedulable; required anti-affinity of pods that already run is not looked at; preferences of any kind are ignored,
//! but for PreferNoSchedule taints, which are avoided first. Reserved capacity is bought like any other offering.

mod bound;
mod custom;
mod daemon;
mod disruption;
mod existing;
mod facts;
mod groups;
mod intern;
mod limits;
mod offerings;
mod pack;
mod place;
mod reasons;
mod select;
mod world;

use crate::place::{Groups, Search, State, place};
use crate::world::World;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid};
use plimsoll_model::plan::{Placement, Plan, PlanOptions, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{PodState, Snapshot};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// Plans for one snapshot. `catalogs` are those that its pools name; a pool whose catalog is missing launches nothing.
#[must_use]
pub fn solve(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, options: &PlanOptions) -> Plan {
    let mut sorted = snapshot.clone();
    sorted.sort();
    let world = World::new(&sorted, catalogs);
    let mut state = State::new(&world, options.work_budget);
    let mut unschedulable = dangling(&world);
    let mut wanted = Groups::new();
    for (shape, pods) in groups::to_place(&world) {
        match reasons::unsupported(world.shapes[shape].shape) {
            Some(reason) => unschedulable.extend(pods.iter().map(|pod| no_place(pod, vec![reason.clone()]))),
            None => {
                wanted.insert(shape, pods);
            }
        }
    }
    let placed = place(&world, &mut state, wanted, Search::default());
    for (shape, pods) in &placed.left {
        let why = reasons::explain(&world, &state, *shape);
        unschedulable.extend(pods.iter().map(|pod| no_place(pod, why.clone())));
    }
    unschedulable.sort();
    let mut plan = Plan {
        snapshot_sequence: sorted.sequence,
        ledger: sorted.ledger,
        launches: placed.launches,
        placements: placements(&world, &placed.existing),
        unschedulable,
        ignored: sorted.ignored.clone(),
        ..Plan::default()
    };
    plan.next_time = sorted.unavailable_offerings.iter().map(|one| sorted.now.plus(one.remaining)).min();
    if options.disruption {
        let busy = placed.existing.keys().copied().collect();
        disruption::remove(&world, &mut state, &mut plan, &busy);
    }
    finish(&world, &mut plan);
    plan
}

/// Pending pods whose shape the snapshot does not have.
fn dangling(world: &World<'_>) -> Vec<Unschedulable> {
    let lost = world
        .snapshot
        .pods
        .iter()
        .filter(|pod| pod.state == PodState::Pending && groups::moves(pod) && world.shape_of(pod).is_none());
    lost.map(|pod| {
        let message = format!("its shape {} is not in the snapshot", pod.shape);
        no_place(pod, vec![Reason { node_pool: String::new(), code: ReasonCode::InvalidPod, message }])
    })
    .collect()
}

fn no_place(pod: &plimsoll_model::snapshot::Pod, reasons: Vec<Reason>) -> Unschedulable {
    Unschedulable { pod: select::pod_ref(pod), reasons }
}

fn placements(world: &World<'_>, existing: &BTreeMap<usize, Vec<&plimsoll_model::snapshot::Pod>>) -> Vec<Placement> {
    let mut all: Vec<Placement> = existing
        .iter()
        .map(|(node, pods)| Placement { node: world.nodes[*node].node.name.clone(), pods: select::pod_refs(pods) })
        .collect();
    all.sort();
    all
}

/// Canonical order, sums and the bound.
fn finish(world: &World<'_>, plan: &mut Plan) {
    let mut order: Vec<usize> = (0..plan.launches.len()).collect();
    order.sort_by(|a, b| {
        let key = |index: &usize| plan.launches.get(*index).map(|one| (&one.node_pool, one.pods.first()));
        key(a).cmp(&key(b))
    });
    let mut place_of = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, old)| place_of[*old] = new);
    plan.launches = order.iter().filter_map(|index| plan.launches.get(*index).cloned()).collect();
    for termination in &mut plan.terminations {
        for index in &mut termination.replaced_by {
            *index = place_of[*index];
        }
        termination.replaced_by.sort_unstable();
    }
    plan.terminations.sort_by(|a, b| a.node.cmp(&b.node));
    plan.hourly = plan.launches.iter().map(plimsoll_model::plan::Launch::price).sum();
    let shapes: BTreeMap<&PodUid, usize> =
        world.snapshot.pods.iter().filter_map(|pod| Some((&pod.uid, world.shape_of(pod)?))).collect();
    let mut demand: BTreeMap<usize, usize> = BTreeMap::new();
    for pod in plan.launches.iter().flat_map(|launch| &launch.pods) {
        if let Some(shape) = shapes.get(&pod.uid) {
            *demand.entry(*shape).or_default() += 1;
        }
    }
    let demand: Vec<bound::Demand> = demand.into_iter().collect();
    plan.lower_bound = bound::lower_bound(world, &demand).min(plan.hourly);
    plan.next_time = plan.next_time.filter(|at| *at > world.snapshot.now && *at < Timestamp(i64::MAX));
}
