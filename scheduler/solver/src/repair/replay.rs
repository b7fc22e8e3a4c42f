//! What kube-scheduler will make of a plan, run through before the plan is told.
//!
//! A valid plan has a place for each pod. But kube-scheduler takes pods one after another, and of those that must be spread only some can be nominated at
//! once: where one is refused, or not nominated yet, it goes to any node that bears it, and may take the room that another one needs. So the
//! plan is run a few times: with other draws among equal nodes, other types of those that launches list, a quicker and a slower
//! actuator. Where some runs strand a pod, a plan is looked for of which fewer do: the same nodes with the pods where kube-scheduler tends to put
//! them; and, where many strand one and that does not help, a further node, which the next plan would have to buy anyway.
//!
//! It draws, but always the same: see [`outcomes`].

mod add_nodes;
mod drop_pods;
mod edit;
mod exchange_pods;
mod outcomes;
mod projected;
mod replan;
mod run;
#[cfg(test)]
mod tests;

use super::moves::Move;
use super::{Inputs, Repair};
use outcomes::{ANEW, Outcomes, RUNS};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid, ShapeId};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{Pod, PodShape, PodState, Snapshot};
use projected::Replay;
use std::collections::{BTreeMap, BTreeSet};

/// Pods and nodes of a cluster that is replayed: it is looked at anew for it, which in larger ones would take longer than the plan. In those a pod that is
/// stranded is one of very many, and its node is soon used by others.
const PODS: usize = 5_000;
const NODES: usize = 1_000;
/// Pods of a plan that is replayed: with more there are too many [`LOOKS`] anyway.
const POD_SLOTS: usize = 500;
/// Looks of a pod at a node that one run may take: some tenths of a millisecond.
const LOOKS: usize = 6_000;
/// Looks of a pod at a node that one run may take where a plan is looked at closely, and once more, before it is said to go well: some milliseconds.
const SOON: usize = 1_500;
const AT_ONCE: usize = 500;
/// A further node is bought if so many runs strand a pod. Less often it would nearly always be bought in vain; where it is, consolidation finds out
/// minutes later, while a pod without it would wait for minutes.
const OFTEN: usize = ANEW * RUNS / 48;

/// Finds a better plan than one of which so many runs strand a pod.
type Step = fn(&Repair<'_>, (&Plan, usize)) -> Option<(Plan, usize)>;

/// Moves for pods that are stranded, in their order.
const STEPS: [(Move, Step); 4] = [
    (Move::AssignEvenly, replan::assign_evenly),
    (Move::SinglePool, replan::single_pool),
    (Move::AddNodes, add_nodes::bought),
    (Move::DropPods, drop_pods::planned),
];

/// What a replay of a plan shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayReport {
    /// How often the plan was run.
    pub runs: usize,
    /// In how many of them kube-scheduler found no node for a pod of the plan.
    pub stranding: usize,
    /// Pods that it found none for in any of them.
    pub stranded: BTreeSet<PodUid>,
}

/// Plays the plan for that snapshot; `None` if there is nothing to play, or too much of it.
#[must_use]
pub fn replay(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Option<ReplayReport> {
    let snapshot = snapshot.sorted();
    let replay = replayed(Inputs { snapshot: &snapshot, catalogs }, plan)?;
    let outcomes = Outcomes::last(&replay);
    let stranded = outcomes.stranded.keys().map(|slot| replay.slots[*slot].uid.clone()).collect();
    Some(ReplayReport { runs: ANEW * RUNS, stranding: outcomes.stranding, stranded })
}

/// A plan of which fewer runs strand a pod, if some runs of `plan` do. It leaves other pods only where most runs of
/// `plan` strand some. It has no lower bound.
pub(crate) fn improve(repair: &Repair<'_>, plan: &Plan) -> Option<Plan> {
    let replay = replayed(repair.inputs, plan)?;
    if goes_well(&replay) {
        return None;
    }
    let exchanges = repair.moves.has(Move::ExchangePods) && repair.work.spend(exchange_pods::ALONE);
    let looks = if exchanges { exchange_pods::ALONE } else { 0 };
    let (mut better, mut stranding) = exchange_pods::better(repair.inputs, plan, replay, looks);
    for (_, step) in STEPS.iter().filter(|(one, _)| repair.moves.has(*one)) {
        if stranding < OFTEN {
            break;
        }
        if let Some((other, still)) = step(repair, (better.as_ref().unwrap_or(plan), stranding)) {
            (better, stranding) = (Some(other), still);
        }
    }
    better
}

/// The one of `others` that leaves the fewest pods and hardly strands any, if `plan` often does.
pub(crate) fn most_reliable(inputs: Inputs<'_>, plan: &Plan, others: Vec<Plan>) -> Option<Plan> {
    let is_sure = |plan: &Plan| replayed(inputs, plan).is_none_or(|replay| Outcomes::anew(&replay).stranding < OFTEN);
    if others.is_empty() || is_sure(plan) {
        return None;
    }
    others.into_iter().filter(is_sure).min_by_key(|other| other.unschedulable.len())
}

/// Whether all goes well in each run: the more of them, the less each takes.
fn goes_well(replay: &Replay) -> bool {
    let looks = replay.looks();
    Outcomes::of(replay).stranding == 0
        && (looks > SOON || Outcomes::closely(replay).stranding == 0)
        && (looks > AT_ONCE || Outcomes::anew(replay).stranding == 0)
}

fn replayed(inputs: Inputs<'_>, plan: &Plan) -> Option<Replay> {
    let worth = is_to_be(inputs.snapshot, plan);
    worth.then(|| Replay::new(inputs, plan)).flatten().filter(|replay| replay.looks() <= LOOKS)
}

/// Whether anything could go otherwise than planned.
fn is_to_be(snapshot: &Snapshot, plan: &Plan) -> bool {
    // Where nodes go, their pods need the room that is meant for them.
    if !plan.terminations.is_empty() || snapshot.pods.len() > PODS || snapshot.nodes.len() + plan.launches.len() > NODES
    {
        return false;
    }
    if placed(plan).count() > POD_SLOTS {
        return false;
    }
    let placed: BTreeSet<&PodUid> = placed(plan).map(|pod| &pod.uid).collect();
    let used: BTreeSet<&ShapeId> =
        snapshot.pods.iter().filter(|pod| placed.contains(&pod.uid)).map(|pod| &pod.shape).collect();
    // All others are nominated at once, and each fits where it is.
    let waits = |shape: &PodShape| {
        let follows = shape.pod_affinity.iter().any(|one| !one.anti && one.weight.is_none());
        follows || shape.topology_spread.iter().any(|one| one.required)
    };
    placed.len() > 1 && snapshot.shapes.iter().any(|shape| used.contains(&shape.id) && waits(shape))
}

/// Pods that the plan has a place for.
fn placed(plan: &Plan) -> impl Iterator<Item = &PodRef> {
    plan.launches.iter().flat_map(|launch| &launch.pods).chain(plan.placements.iter().flat_map(|to| &to.pods))
}

/// Whether kube-scheduler is to bind the pod. Those that a plan moves from one node to another are there already, and virtual ones never come.
fn is_pod_slot(pod: &Pod) -> bool {
    pod.state == PodState::Pending && !pod.is_virtual()
}
