//! The steps from a snapshot to a plan: place pods, explain unschedulable pods, remove nodes, compute the lower bound.

use crate::disrupt::{Followed, Removal};
use crate::input::context::SolveContext;
use crate::place::draft::Demand;
use crate::place::pod_groups::PodGroup;
use crate::place::{Placed, State};
use crate::place::{buffer_pods, draft, early_batch, launch, local_search, multi_start, pod_groups};
use crate::place::{priority, static_pools, topology};
use crate::{bound, disrupt, explain, place, retries};

use plimsoll_model::identity::PodUid;
use plimsoll_model::index::Id;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Placement, Plan, PlanOptions, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{Node, NodePool, Pod};
use plimsoll_model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// From this number of pods on, assign counted pods too from the first round: so many pods occupy all domains anyway.
const LARGE: usize = 500;

/// Lower bound of the cost of any plan for these pods, including the cost of nodes of static pools.
pub(crate) fn lower_bound(context: &SolveContext<'_>, plan: &Plan, demand: &Demand) -> MicroUsdPerHour {
    uncut_bound(context, plan, demand, plan.hourly).min(plan.hourly)
}

/// Lower bound that may exceed the cost of the plan if it is false. It need not be higher than `enough`.
pub(crate) fn uncut_bound(
    context: &SolveContext<'_>,
    plan: &Plan,
    demand: &Demand,
    enough: MicroUsdPerHour,
) -> MicroUsdPerHour {
    let static_cost: MicroUsdPerHour =
        plan.launches.iter().filter(|launch| launch.pods.is_empty()).map(Launch::price).sum();
    let enough = MicroUsdPerHour(enough.0 - static_cost.0);
    [bound::lower_bound(context, demand, enough), static_cost].into_iter().sum()
}

/// Pods of the plan's launches, counted by shape.
pub(crate) fn demand(context: &SolveContext<'_>, plan: &Plan) -> Demand {
    let mut demand = Demand::new();
    for launch in &plan.launches {
        let zone = launch.offerings.first().map_or("", |one| one.zone.as_str());
        for pod in &launch.pods {
            if let Some(shape) = context.snapshot.pod(&pod.uid).and_then(|pod| context.shape_of(pod)) {
                demand.entry(shape).or_default().add(zone, 1);
            }
        }
    }
    demand
}

/// Computes the plan for a snapshot in canonical order. `early` receives the first launches if they are final before
/// the rest is planned. The plan has a lower bound if `bounded`.
pub(crate) fn planned(
    context: &mut SolveContext<'_>,
    options: &PlanOptions,
    bounded: bool,
    early: &mut dyn FnMut(&[Launch]),
) -> Plan {
    let snapshot = context.snapshot;
    let mut plan = Plan {
        snapshot_sequence: snapshot.sequence,
        ledger: snapshot.ledger,
        ignored: snapshot.ignored.clone(),
        pool_problems: explain::of_pools(context),
        next_time: next_time(context),
        ..Plan::default()
    };
    let kept = kept_nodes(context, options);
    let (expired, successors) = if options.disruption { disrupt::expired(context, &kept) } else { Default::default() };
    let planned = expired.iter().filter(|one| !successors.contains_key(&one.node));
    let leaving = planned.flat_map(|one| one.pods.iter().copied()).filter(|pod| pod_groups::can_leave(context, pod));
    let leaving: Vec<&Pod> = leaving.collect();
    let (mut wanted, refused) = wanted(context, &leaving);
    let mut state = State::new(context, options.work_budget);
    expired.iter().for_each(|one| state.close(one.node));
    pod_groups::leave(context, &mut state, &wanted);
    let buffer_groups = buffer_pods::split(&mut wanted);
    // With expired nodes, all launches are reported at the end, together with the removals that they replace.
    let mut with_the_rest = |_: &[Launch]| ();
    let early = if leaving.is_empty() { early } else { &mut with_the_rest };
    let early_batch = early_batch(context, &mut state, &mut wanted, early);
    let (mut state, mut placed) = place(context, &state, &wanted);
    let placed_buffer_pods = buffer_pods::place(context, &mut state, buffer_groups, &mut placed);
    plan.unschedulable = dangling(context);
    plan.unschedulable.extend(refused);
    report_left(context, &state, &mut plan, &placed.left);
    // Not earlier: explanations name the usage of limits that pods need, without that of larger types which are listed
    // too.
    place::widen(context, &mut state, &mut placed.launches);
    let mut removal = split(&mut plan, context, placed, early_batch, &leaving);
    (removal.removed, removal.placed_buffer_pods, removal.successors) = (expired, placed_buffer_pods, successors);
    if options.disruption {
        removal.kept = kept;
        disrupt::remove(context, &mut state, &mut plan, &mut removal, options);
        report_left(context, &state, &mut plan, &removal.unplaced);
    }
    finish(context, &mut plan, &mut removal, bounded);
    plan
}

/// When an offering is tried again, or a protected pod of a node that is being deleted needs a place.
fn next_time(context: &SolveContext<'_>) -> Option<Timestamp> {
    let snapshot = context.snapshot;
    let tried_again = snapshot.unavailable_offerings.iter().map(|one| snapshot.now.plus(one.remaining));
    let deleting = context.nodes.iter().filter(|view| view.node.deleting);
    let pods = deleting.flat_map(|view| view.pods.iter()).filter(|pod| !pod.terminating);
    let unprotected = pods.filter_map(|pod| pod.do_not_disrupt_until).filter(|until| *until > snapshot.now);
    tried_again.chain(unprotected).min()
}

/// Nodes that the plan must not remove.
fn kept_nodes(context: &SolveContext<'_>, options: &PlanOptions) -> BTreeSet<Id<Node>> {
    let nodes = context.nodes.iter_enumerated();
    nodes.filter(|(_, view)| options.kept_nodes.contains(&view.node.name)).map(|(node, _)| node).collect()
}

/// Pods that are placed before the rest of a large burst.
#[derive(Default)]
struct EarlyBatch<'a> {
    launches: Vec<Launch>,
    demand: Demand,
    existing: BTreeMap<Id<Node>, Vec<&'a Pod>>,
}

/// Removes the early batch from `wanted` and places it.
fn early_batch<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    wanted: &mut Vec<PodGroup<'a>>,
    early: &mut dyn FnMut(&[Launch]),
) -> EarlyBatch<'a> {
    let pod_groups = early_batch::split(context, wanted);
    if pod_groups.is_empty() {
        return EarlyBatch::default();
    }
    wanted.retain(|pod_group| !pod_group.pods.is_empty());
    let work = state.work;
    state.work = early_batch::WORK.min(work);
    let placed = multi_start::place(context, state, pod_groups);
    state.work = work;
    wanted.extend(placed.left);
    let mut early_batch = EarlyBatch { existing: placed.existing, ..EarlyBatch::default() };
    early_batch.launches = draft::listed(context, &placed.launches, &mut early_batch.demand);
    early_batch.launches.sort_by(Launch::in_plan_order);
    early(&early_batch.launches);
    early_batch
}

/// Places `wanted` on the capacity of `start`. If a spread then counts too many pods that it does not bind, these pods
/// are assigned to domains too, and everything is placed again. A second round is enough unless it reveals further such
/// spreads.
fn place<'a>(context: &mut SolveContext<'a>, start: &State, wanted: &[PodGroup<'a>]) -> (State, Placed<'a>) {
    let mut round = 1;
    let large = pod_groups::count(wanted) >= LARGE;
    if large {
        let mixed = context.topology.mixed.clone();
        context.assign_counted(mixed);
    }
    loop {
        let mut state = start.clone();
        state.even = large;
        let mut placed = multi_start::place(context, &mut state, wanted.to_vec());
        place_left(context, &mut state, &mut placed);
        let uneven = topology::uneven(context, &start.counts, &placed);
        if uneven.is_empty() || round == retries::FEW {
            place_counted(context, &mut state, &mut placed);
            topology::restrict(context, &start.counts, &mut placed);
            return (state, placed);
        }
        context.assign_counted(uneven);
        round += 1;
    }
}

/// Places pods that were left because other pods were placed together with them, on what these leave: few pod groups
/// one after another, since they may exclude each other, too. Pods of higher priority come first.
fn place_left<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>) {
    let left = std::mem::take(&mut placed.left).into_iter();
    let left = left.map(|pod_group| PodGroup::plain(context.relaxation.base(pod_group.shape), pod_group.pods));
    let mut left: Vec<PodGroup<'a>> = left.collect();
    left.sort_by_key(|pod_group| Reverse(context.shapes[pod_group.shape].shape.priority));
    let at_once = if left.len() > retries::SEVERAL { left.len() } else { 1 };
    let launches = placed.launches.len();
    for some in left.chunks(at_once) {
        placed.add(priority::place(context, state, some.to_vec()));
    }
    if placed.launches.len() > launches {
        local_search::improve(context, state, placed);
    }
}

/// Places pods that were left because the spreads of other pods count them. kube-scheduler does not hold them back.
fn place_counted<'a>(context: &mut SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>) {
    let is_counted = |pod_group: &PodGroup<'_>| context.topology.is_assigned_for_others(pod_group.shape);
    let (counted, others): (Vec<_>, Vec<_>) = std::mem::take(&mut placed.left).into_iter().partition(is_counted);
    placed.left = counted;
    if !placed.left.is_empty() {
        let assigned = std::mem::take(&mut context.topology.assigned_spreads);
        place_left(context, state, placed);
        context.topology.assigned_spreads = assigned;
    }
    placed.left.extend(others);
}

/// Returns the pod groups to place, including pods of expired nodes, and the pods with an unsupported feature.
fn wanted<'a>(context: &SolveContext<'a>, leaving: &[&'a Pod]) -> (Vec<PodGroup<'a>>, Vec<Unschedulable>) {
    let mut refused = Vec::new();
    let mut wanted = Vec::new();
    for pod_group in pod_groups::to_place(context, leaving) {
        match explain::unsupported(context.shapes[pod_group.shape].shape) {
            Some(reason) => {
                let why = Arc::new(vec![reason]);
                refused.extend(pod_group.pods.iter().map(|pod| no_place(pod, &why)));
            }
            None => wanted.push(pod_group),
        }
    }
    (wanted, refused)
}

/// Splits placements. Pods of expired nodes on existing nodes are moves, all others are placements.
fn split<'a>(
    plan: &mut Plan,
    context: &SolveContext<'a>,
    mut placed: Placed<'a>,
    early_batch: EarlyBatch<'a>,
    leaving: &[&'a Pod],
) -> Removal<'a> {
    let EarlyBatch { launches: early, demand, existing: first } = early_batch;
    placed.add(Placed { existing: first, ..Placed::default() });
    let moved: BTreeSet<&PodUid> = leaving.iter().map(|pod| &pod.uid).collect();
    let busy = placed.existing.keys().copied().collect();
    let mut existing: BTreeMap<Id<Node>, Vec<&'a Pod>> = BTreeMap::new();
    for (node, pods) in placed.existing {
        let (moves, stays): (Vec<&Pod>, Vec<&Pod>) = pods.into_iter().partition(|pod| moved.contains(&pod.uid));
        if !stays.is_empty() {
            let node = context.nodes[node].node.name.clone();
            plan.placements.push(Placement { node, pods: launch::pod_refs(&stays) });
        }
        if !moves.is_empty() {
            existing.insert(node, moves);
        }
    }
    plan.placements.sort();
    let (launches, followed) = (placed.launches, Followed::new(context));
    Removal { existing, early, launches, demand, followed, busy, ..Removal::default() }
}

/// Pending pods whose shape is missing in the snapshot.
fn dangling(context: &SolveContext<'_>) -> Vec<Unschedulable> {
    let lost = context.pending().filter(|(pod, shape)| pod.moves() && shape.is_none());
    lost.map(|(pod, _)| {
        let message = format!("its shape {} is not in the snapshot", pod.shape);
        no_place(pod, &Arc::new(vec![Reason { node_pool: String::new(), code: ReasonCode::InvalidPod, message }]))
    })
    .collect()
}

/// Adds pods without a place to the unschedulable ones. Pods of many shapes may have the same dozens of reasons, so
/// equal lists are kept once.
fn report_left(context: &SolveContext<'_>, state: &State, plan: &mut Plan, left: &[PodGroup<'_>]) {
    let mut known: BTreeSet<Arc<Vec<Reason>>> = BTreeSet::new();
    for pod_group in left {
        let mut why = Arc::new(explain::explain(context, state, pod_group.shape));
        if let Some(same) = known.get(&why) {
            why = Arc::clone(same);
        } else {
            known.insert(Arc::clone(&why));
        }
        plan.unschedulable.extend(pod_group.pods.iter().map(|pod| no_place(pod, &why)));
    }
    plan.unschedulable.sort();
}

fn no_place(pod: &Pod, reasons: &Arc<Vec<Reason>>) -> Unschedulable {
    Unschedulable { pod: launch::pod_ref(pod), reasons: Arc::clone(reasons) }
}

/// Sets the canonical order, the sums, and the lower bound if `bounded`.
fn finish(context: &SolveContext<'_>, plan: &mut Plan, removal: &mut Removal<'_>, bounded: bool) {
    let mut rest = draft::listed(context, &removal.launches, &mut removal.demand);
    let successors = |pool: &NodePool| disrupt::successors_of(context, removal, pool);
    let static_launches = static_pools::launches(context, &[&removal.early, &rest], successors);
    rest.extend(static_launches);
    rest.sort_by(Launch::in_plan_order);
    // Early launches come first, since terminations refer to launches by their index.
    let mut launches = std::mem::take(&mut removal.early);
    launches.extend(rest);
    disrupt::link_successors(context, removal, &launches);
    plan.terminations = disrupt::terminations(context, removal, &launches);
    plan.postponed_removals = disrupt::postponed(context, removal);
    buffer_pods::add_to_plan(context, plan, &removal.placed_buffer_pods);
    plan.launches = launches;
    plan.hourly = plan.launches.iter().map(Launch::price).sum();
    if bounded {
        plan.lower_bound = lower_bound(context, plan, &removal.demand);
    }
    plan.next_time = plan.next_time.filter(|at| *at > context.snapshot.now && *at < Timestamp(i64::MAX));
}
