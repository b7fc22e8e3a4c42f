//! Launches a further or a larger node for pods that are often stranded. The next plan would launch it anyway, after
//! the pods have waited in vain.

use super::outcomes::{ANEW, Outcomes, RUNS};
use super::projected::{Assignment, PlannedPod, Replay};
use super::{Inputs, OFTEN, exchange_pods};
use crate::input::intern::{Amounts, add, fits};
use crate::repair::edit::{self, Change, Targets};
use crate::repair::projection::{self, CapacityAssumption};
use crate::repair::{Repair, shapes_of_pods};
use crate::retries;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, PodState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Value of a plan without stranded pods, as a multiple of its price. It is scaled by the share of runs that strand a
/// pod. The next plan would launch most of these nodes a minute later, and consolidation removes the others, while a
/// stranded pod waits for that minute.
const WORTH: usize = 8;

/// Returns a plan with further or larger nodes that strands a pod in fewer runs. Uses one or more rounds.
pub(super) fn with_more_nodes(repair: &Repair<'_>, (plan, stranding): (&Plan, usize)) -> Option<(Plan, usize)> {
    let mut best: Option<(Plan, usize)> = None;
    let mut last: Option<(Plan, usize)> = None;
    for _ in 0..retries::SEVERAL {
        let (from, still) = last.as_ref().map_or((plan, stranding), |(plan, still)| (plan, *still));
        if still < OFTEN {
            break;
        }
        let Some(next) = once(repair, from, still) else { break };
        let known = best.as_ref().map_or((plan, stranding), |(plan, still)| (plan, *still));
        if is_worth((&next.0, next.1), known) {
            best = Some(next.clone());
        }
        last = Some(next);
    }
    best
}

/// One round: the best plan that strands a pod in fewer runs, with its number of stranding runs. Plans that strand pods
/// rarely come first, then cheaper plans.
fn once(repair: &Repair<'_>, plan: &Plan, stranding: usize) -> Option<(Plan, usize)> {
    let inputs = repair.inputs;
    let replay = Replay::new(inputs, plan)?;
    let mut best: Option<((bool, i64, usize), Plan)> = None;
    for (_, assignment) in Outcomes::anew(&replay).broken.iter().take(retries::FEW) {
        let more = with_nodes(repair, plan, &replay, assignment, Nodes::Any);
        let larger = with_room(inputs, plan, &replay, assignment);
        // Pods stay as planned, and stranded pods get new nodes. Their planned capacity stays free for others.
        let apart = replay.slots.iter().zip(assignment).map(|(slot, place)| place.map(|_| slot.node));
        let apart = with_nodes(repair, plan, &replay, &apart.collect(), Nodes::New);
        // Pods that were not bound as planned and used the capacity of others get new nodes, too.
        let strayed = |(slot, place): (&PlannedPod, &Option<Id<Node>>)| place.is_none_or(|place| place == slot.node);
        let home = replay.slots.iter().zip(assignment).map(|pair| strayed(pair).then_some(pair.0.node));
        let home = with_nodes(repair, plan, &replay, &home.collect(), Nodes::New);
        for other in more.into_iter().chain(larger).chain(apart).chain(home) {
            let Some((other, still)) = improved_by_exchange(repair, other) else { continue };
            let key = (still >= OFTEN, other.hourly.0, still);
            if still + OFTEN <= stranding && best.as_ref().is_none_or(|(known, _)| key < *known) {
                best = Some((key, other));
            }
        }
    }
    best.map(|((_, _, still), other)| (other, still))
}

/// `plan`, or a better one on the same nodes, with its number of stranding runs. `None` if no work is left.
pub(super) fn improved_by_exchange(repair: &Repair<'_>, plan: Plan) -> Option<(Plan, usize)> {
    let inputs = repair.inputs;
    let replay = Replay::new(inputs, &plan)?;
    repair.work.spend(exchange_pods::AMONG + 2 * ANEW * RUNS * replay.looks()).then_some(())?;
    let (better, still) = exchange_pods::better(inputs, &plan, replay, exchange_pods::AMONG);
    Some((better.unwrap_or(plan), still))
}

/// Whether a plan is worth its price compared to the known one. Compares the price plus [`WORTH`] times the higher
/// price, scaled by the share of runs that strand a pod.
pub(super) fn is_worth((other, still): (&Plan, usize), (known, stranding): (&Plan, usize)) -> bool {
    let dearer = other.hourly.max(known.hourly).0;
    let of = |plan: &Plan, stranding: usize| {
        let strands = i64::try_from(WORTH * stranding).unwrap_or(i64::MAX);
        let all = i64::try_from(ANEW * RUNS).unwrap_or(i64::MAX);
        plan.hourly.0.saturating_mul(all).saturating_add(dearer.saturating_mul(strands))
    };
    of(other, still) < of(known, stranding)
}

/// `plan` with nodes large enough for the pods that this run binds to them, in addition to the stranded pods.
fn with_room(inputs: Inputs<'_>, plan: &Plan, replay: &Replay, assignment: &Assignment) -> Option<Plan> {
    let asks = shapes_of_pods(&replay.after);
    let pairs = || replay.slots.iter().zip(assignment);
    // Only nodes without enough capacity. Other stranded pods are excluded by constraints.
    let mut free: IndexVec<Node, Amounts> =
        (0..replay.state.nodes()).map(|node| replay.state.machine(node).free().to_vec()).collect();
    for (slot, place) in pairs() {
        place.iter().for_each(|place| add(&mut free[*place], replay.requests(slot), -1));
    }
    let full = |slot: &PlannedPod| !fits(replay.requests(slot), &free[slot.node]);
    let short: BTreeSet<Id<Node>> =
        pairs().filter(|(slot, place)| place.is_none() && full(slot)).map(|(slot, _)| slot.node).collect();
    let mut more: BTreeMap<&NodeName, Resources> = BTreeMap::new();
    for (slot, place) in pairs().filter(|(slot, place)| **place != Some(slot.node)) {
        if let (Some(place), Some(shape)) = (place.filter(|place| short.contains(place)), asks.get(&slot.uid)) {
            more.entry(replay.state.node_name(place.number())).or_default().add(&shape.requests);
        }
    }
    edit::with_room(inputs, plan, &replay.after.nodes, &more)
}

/// Nodes that stranded pods may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nodes {
    Any,
    New,
    /// Any node. Pods that fit on no node are dropped.
    AnyOrNone,
}

/// Final state of a run.
pub(super) struct AfterRun {
    /// The cluster, with stranded pods pending.
    pub(super) snapshot: Snapshot,
    /// The nodes of all other pods.
    targets: Targets,
    pub(super) stranded: BTreeSet<PodUid>,
}

impl AfterRun {
    pub(super) fn new(inputs: Inputs<'_>, plan: &Plan, replay: &Replay, assignment: &Assignment) -> Self {
        let mut targets = Targets::new();
        let mut stranded: BTreeSet<PodUid> = BTreeSet::new();
        for (slot, place) in replay.slots.iter().zip(assignment) {
            match place {
                Some(place) => drop(targets.insert(slot.uid.clone(), replay.state.node_name(place.number()).clone())),
                None => drop(stranded.insert(slot.uid.clone())),
            }
        }
        let mut snapshot = replay.bound(assignment);
        projection::count_limits(inputs, plan, CapacityAssumption::Least, &mut snapshot);
        // Pods that the plan leaves unplaced are not considered.
        snapshot.pods.retain(|pod| pod.state != PodState::Pending || stranded.contains(&pod.uid));
        Self { snapshot, targets, stranded }
    }
}

/// `plan` with pods on the nodes of `assignment`, and `nodes` for stranded pods.
pub(super) fn with_nodes(
    repair: &Repair<'_>,
    plan: &Plan,
    replay: &Replay,
    assignment: &Assignment,
    nodes: Nodes,
) -> Option<Plan> {
    let inputs = repair.inputs;
    let AfterRun { mut snapshot, targets, stranded } = AfterRun::new(inputs, plan, replay, assignment);
    snapshot.nodes.iter_mut().for_each(|node| node.cordoned |= nodes == Nodes::New);
    let more = repair.plan_keeping_nodes(&snapshot)?;
    let mut change = Change { targets, ..Change::default() };
    for launch in more.launches.into_iter().filter(|launch| launch.pods.iter().any(|pod| stranded.contains(&pod.uid))) {
        change.launch(named(launch));
    }
    for to in &more.placements {
        let own = to.pods.iter().filter(|pod| stranded.contains(&pod.uid));
        change.targets.extend(own.map(|pod| (pod.uid.clone(), to.node.clone())));
    }
    let left = more.unschedulable.into_iter();
    change.left =
        left.filter(|one| stranded.contains(&one.pod.uid) && !change.targets.contains_key(&one.pod.uid)).collect();
    if !change.left.is_empty() && nodes != Nodes::AnyOrNone {
        return None;
    }
    edit::with(inputs, plan, &replay.after.nodes, &change)
}

/// Gives the launch a distinct action id, since the plan may have a launch for the same pods.
fn named(mut launch: Launch) -> Launch {
    launch.action_id = edit::anew(&launch.action_id, "further launch");
    let many = launch.pods.len();
    launch.why.push_str(&format!("; without it kube-scheduler would often find no node for {many} of the plan's pods"));
    launch
}
