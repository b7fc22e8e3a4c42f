//! Replays how kube-scheduler would execute a plan, before the plan is returned.
//!
//! A valid plan has a node for each pod. However, kube-scheduler binds pods one by one, and the actuator can nominate
//! only some of the pods of a spread at the same time. A pod that is rejected, or not nominated yet, is bound to any
//! node that fits and may use capacity that another pod needs.
//!
//! The plan is therefore run several times, with different random choices among equal nodes, different instance types
//! of each launch, and different speeds of the actuator. If some runs strand a pod, the moves search for a plan that
//! strands pods less often: the same nodes with the pods where kube-scheduler tends to bind them, other plans, or a
//! further node, which the next plan would launch anyway.
//!
//! Random choices are deterministic: see [`outcomes`].

mod add_nodes;
mod drop_pods;
mod exchange_pods;
mod outcomes;
mod projected;
pub(crate) mod removals;
mod replan;
mod run;
#[cfg(test)]
mod tests;

use super::edit::placed;
use super::moves::Move;
use super::{Inputs, Overlaid, Repair, depends_on_others};
use outcomes::{ANEW, Outcomes, RUNS};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid, ShapeId};
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use projected::Replay;
use std::collections::{BTreeMap, BTreeSet};

/// Largest cluster that is replayed, in pods and nodes. In larger clusters, building the cluster state takes longer
/// than the plan. There, a stranded pod is one of many, and its node is soon used by others.
const PODS: usize = 5_000;
const NODES: usize = 1_000;
/// Maximum number of pods of a plan that is replayed. More pods exceed [`LOOKS`] anyway.
const POD_SLOTS: usize = 500;
/// Maximum number of checks of a pod against a node in one run: some tenths of a millisecond.
const LOOKS: usize = 6_000;
/// Maximum number of checks per run for which a plan must also pass [`outcomes::CLOSE`] and [`outcomes::ANEW`] times as
/// many runs before it counts as reliable: some milliseconds.
const SOON: usize = 1_500;
const AT_ONCE: usize = 500;
/// Number of stranding runs from which on a further node is worth its price. A node that is launched for fewer is
/// nearly always unused: consolidation removes it minutes later, while a stranded pod waits for minutes.
const OFTEN: usize = ANEW * RUNS / 48;

/// Finds a better plan than the given plan with its number of stranding runs.
type Step = fn(&Repair<'_>, (&Plan, usize)) -> Option<(Plan, usize)>;

/// Moves for stranded pods, in order.
const STEPS: [(Move, Step); 4] = [
    (Move::AssignEvenly, replan::assign_evenly),
    (Move::SinglePool, replan::single_pool),
    (Move::AddNodes, add_nodes::with_more_nodes),
    (Move::DropPods, drop_pods::planned),
];

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayReport {
    /// Number of runs.
    pub runs: usize,
    /// Number of runs in which kube-scheduler found no node for a pod of the plan.
    pub stranding: usize,
    /// Pods that had no node in at least one of these runs.
    pub stranded: BTreeSet<PodUid>,
}

/// Replays the plan for `snapshot`. `None` if every pod is certain to be bound as planned, or if the plan is too large.
#[must_use]
pub fn replay(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Option<ReplayReport> {
    let snapshot = snapshot.sorted();
    let replay = replayed(Inputs { snapshot: &snapshot, catalogs, overlaid: &Overlaid::new() }, plan)?;
    let outcomes = Outcomes::last(&replay);
    let stranded = outcomes.stranded.keys().map(|slot| replay.slots[*slot].uid.clone()).collect();
    Some(ReplayReport { runs: ANEW * RUNS, stranding: outcomes.stranding, stranded })
}

/// If some runs of `plan` strand a pod, returns a plan that strands a pod in fewer runs. It drops pods only if most
/// runs of `plan` strand one. It has no lower bound.
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

/// Whether no run strands a pod. Small plans are run more often.
fn goes_well(replay: &Replay) -> bool {
    let looks = replay.looks();
    Outcomes::of(replay).stranding == 0
        && (looks > SOON || Outcomes::closely(replay).stranding == 0)
        && (looks > AT_ONCE || Outcomes::anew(replay).stranding == 0)
}

fn replayed(inputs: Inputs<'_>, plan: &Plan) -> Option<Replay> {
    let worth = needs_replay(inputs.snapshot, plan);
    worth.then(|| Replay::new(inputs, plan)).flatten().filter(|replay| replay.looks() <= LOOKS)
}

/// Whether kube-scheduler could bind a pod of the plan to another node than planned.
fn needs_replay(snapshot: &Snapshot, plan: &Plan) -> bool {
    // The capacity of nodes that are removed is reserved for their pods.
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
    // Pods without such constraints are nominated at once, and each fits on its planned node.
    placed.len() > 1 && snapshot.shapes.iter().any(|shape| used.contains(&shape.id) && depends_on_others(shape))
}

/// Whether kube-scheduler binds the pod. Pods that a plan moves between nodes run already, and virtual pods do not
/// exist for kube-scheduler.
fn is_pod_slot(pod: &Pod) -> bool {
    pod.state == PodState::Pending && !pod.is_virtual()
}
