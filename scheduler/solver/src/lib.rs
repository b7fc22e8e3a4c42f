//! From a snapshot to a plan: which nodes to launch for pending pods, what existing ones take, which ones can go.
//!
//! Pure and deterministic: the order of the snapshot's lists does not matter, and no clock, environment or randomness is read.
//! Pods are handled by shape, offerings (type x zone x capacity type) as bit sets per pool.
//!
//! Not done yet: pods that have resource claims are reported as unschedulable; reserved capacity is bought like any other offering.

mod bound;
mod columns;
mod custom;
mod daemon;
mod disruption;
mod draft;
mod duals;
mod existing;
mod facts;
mod favour;
mod fixed;
mod gather;
mod hosts;
mod intern;
mod limits;
mod lots;
mod mix;
mod offerings;
mod pack;
mod place;
mod preferences;
mod priority;
mod reasons;
mod refit;
mod select;
mod single;
#[cfg(test)]
mod tests;
mod topology;
mod volumes;
mod why;
mod world;

use crate::disruption::{Removal, Removed};
use crate::lots::Lot;
use crate::place::{Placed, State};
use crate::preferences::Ladders;
use crate::select::Listings;
use crate::world::World;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay;
use plimsoll_model::plan::{Launch, Placement, Plan, PlanOptions, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// How often all is placed anew for spreads that count pods which they do not bind. One more is enough but where new ones show.
const ROUNDS: usize = 4;

/// Plans for one snapshot. `catalogs` are those that its pools name; a pool whose catalog is missing launches nothing.
#[must_use]
pub fn solve(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, options: &PlanOptions) -> Plan {
    gather::gathered(snapshot, catalogs, solved(snapshot, catalogs, options), |other| solved(other, catalogs, options))
}

fn solved(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, options: &PlanOptions) -> Plan {
    let mut sorted = snapshot.clone();
    sorted.sort();
    let (facts, overlaid) = match overlay::applied(&sorted, catalogs) {
        Some((facts, catalogs)) => (facts, Some(catalogs)),
        None => (sorted, None),
    };
    let catalogs = overlaid.as_ref().unwrap_or(catalogs);
    let mut sorted = mix::applied(&facts, catalogs).unwrap_or(facts);
    let ladders = Ladders::expand(&mut sorted, options.preference_policy);
    let mut world = World::new(&sorted, catalogs, ladders, options.min_values_policy);
    let mut plan = Plan {
        snapshot_sequence: sorted.sequence,
        ledger: sorted.ledger,
        ignored: sorted.ignored.clone(),
        pool_problems: reasons::of_pools(&world),
        next_time: sorted.unavailable_offerings.iter().map(|one| sorted.now.plus(one.remaining)).min(),
        ..Plan::default()
    };
    let expired = if options.disruption { disruption::expired(&world) } else { Vec::new() };
    let leaving: Vec<&Pod> = expired.iter().flat_map(|one| one.pods.iter().copied()).collect();
    let (wanted, refused) = wanted(&world, &leaving);
    let (mut state, placed) = place(&mut world, options.work_budget, &expired, &wanted);
    plan.unschedulable = dangling(&world);
    plan.unschedulable.extend(refused);
    for lot in &placed.left {
        let why = reasons::explain(&world, &state, lot.shape);
        plan.unschedulable.extend(lot.pods.iter().map(|pod| no_place(pod, why.clone())));
    }
    plan.unschedulable.sort();
    let mut removal = split(&mut plan, &world, placed, &leaving);
    removal.removed = expired;
    if options.disruption {
        disruption::remove(&world, &mut state, &mut plan, &mut removal);
    }
    finish(&world, &mut plan, &mut removal);
    plan
}

/// Places what is wanted; anew where a spread may come to find too many pods that it does not bind.
fn place<'a>(world: &mut World<'a>, budget: u64, expired: &[Removed<'a>], wanted: &[Lot<'a>]) -> (State, Placed<'a>) {
    let mut round = 1;
    loop {
        let mut state = State::new(world, budget);
        expired.iter().for_each(|one| state.change(one.node).closed = true);
        lots::leave(world, &mut state, wanted);
        let before = state.counts.clone();
        let placed = favour::place(world, &mut state, wanted.to_vec());
        let uneven = topology::uneven(world, &before, &placed);
        if uneven.is_empty() || round == ROUNDS {
            return (state, placed);
        }
        world.tighten(uneven);
        round += 1;
    }
}

/// Lots to place, with the pods of expired nodes, and pods that use something that is not done.
fn wanted<'a>(world: &World<'a>, leaving: &[&'a Pod]) -> (Vec<Lot<'a>>, Vec<Unschedulable>) {
    let mut refused = Vec::new();
    let mut wanted = Vec::new();
    for lot in lots::to_place(world, leaving) {
        match reasons::unsupported(world.shapes[lot.shape].shape) {
            Some(reason) => refused.extend(lot.pods.iter().map(|pod| no_place(pod, vec![reason.clone()]))),
            None => wanted.push(lot),
        }
    }
    (wanted, refused)
}

/// Pods of expired nodes that go to existing ones are moves, all others placements.
fn split<'a>(plan: &mut Plan, world: &World<'a>, placed: Placed<'a>, leaving: &[&'a Pod]) -> Removal<'a> {
    let moved: BTreeSet<&PodUid> = leaving.iter().map(|pod| &pod.uid).collect();
    let busy = placed.existing.keys().copied().collect();
    let mut existing: BTreeMap<usize, Vec<&'a Pod>> = BTreeMap::new();
    for (node, pods) in placed.existing {
        let (moves, stays): (Vec<&Pod>, Vec<&Pod>) = pods.into_iter().partition(|pod| moved.contains(&pod.uid));
        if !stays.is_empty() {
            let node = world.nodes[node].node.name.clone();
            plan.placements.push(Placement { node, pods: select::pod_refs(&stays) });
        }
        if !moves.is_empty() {
            existing.insert(node, moves);
        }
    }
    plan.placements.sort();
    let mut listings = Listings::default();
    let launches = placed.launches.iter().map(|draft| draft.launch(world, &mut listings)).collect();
    Removal { removed: Vec::new(), existing, launches, listings, busy }
}

/// Pending pods whose shape the snapshot does not have.
fn dangling(world: &World<'_>) -> Vec<Unschedulable> {
    let pods = world.snapshot.pods.iter();
    let lost = pods.filter(|pod| pod.state == PodState::Pending && lots::moves(pod) && world.shape_of(pod).is_none());
    lost.map(|pod| {
        let message = format!("its shape {} is not in the snapshot", pod.shape);
        no_place(pod, vec![Reason { node_pool: String::new(), code: ReasonCode::InvalidPod, message }])
    })
    .collect()
}

fn no_place(pod: &Pod, reasons: Vec<Reason>) -> Unschedulable {
    Unschedulable { pod: select::pod_ref(pod), reasons }
}

/// Canonical order, sums and the bound.
fn finish(world: &World<'_>, plan: &mut Plan, removal: &mut Removal<'_>) {
    let mut launches = std::mem::take(&mut removal.launches);
    launches.extend(fixed::launches(world));
    launches.sort_by(|a, b| (&a.node_pool, a.pods.first()).cmp(&(&b.node_pool, b.pods.first())));
    plan.terminations = disruption::terminations(world, removal, &launches);
    plan.launches = launches;
    plan.hourly = plan.launches.iter().map(Launch::price).sum();
    let pods = &world.snapshot.pods;
    let mut demand: BTreeMap<usize, usize> = BTreeMap::new();
    for pod in plan.launches.iter().flat_map(|launch| &launch.pods) {
        let found = pods.binary_search_by(|one| one.uid.cmp(&pod.uid)).ok().and_then(|at| pods.get(at));
        if let Some(shape) = found.and_then(|pod| world.shape_of(pod)) {
            *demand.entry(shape).or_default() += 1;
        }
    }
    let demand: Vec<bound::Demand> = demand.into_iter().collect();
    // Nodes of static pools cost what they cost.
    let fixed = plan.launches.iter().filter(|launch| launch.pods.is_empty()).map(Launch::price).sum();
    plan.lower_bound =
        [bound::lower_bound(world, &demand), fixed].into_iter().sum::<MicroUsdPerHour>().min(plan.hourly);
    plan.next_time = plan.next_time.filter(|at| *at > world.snapshot.now && *at < Timestamp(i64::MAX));
}
