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
mod relax_constraints;
mod run;
#[cfg(test)]
mod tests;

use crate::place::topology::AssignmentOrder;
use crate::repair::moves::{Move, Moves};
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

/// Looks for a better plan than one of which so many runs strand a pod.
type Step<'a> = &'a dyn Fn((&Plan, usize)) -> Option<(Plan, usize)>;

/// What a plan is for.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) catalogs: &'a BTreeMap<CatalogId, Catalog>,
}

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
    let replay = replayed(Question { snapshot: &snapshot, catalogs }, plan)?;
    let outcomes = Outcomes::last(&replay);
    let stranded = outcomes.stranded.keys().map(|slot| replay.slots[*slot].uid.clone()).collect();
    Some(ReplayReport { runs: ANEW * RUNS, stranding: outcomes.stranding, stranded })
}

/// A plan of which fewer runs strand a pod, if some of `plan` do and there is one. It leaves other pods only where most runs of `plan` strand
/// some. `again` plans for another snapshot. What is returned has no lower bound.
pub(crate) fn improve(
    question: Question<'_>,
    moves: &Moves,
    plan: &Plan,
    again: impl Fn(&Snapshot, AssignmentOrder) -> Plan,
) -> Option<Plan> {
    let replay = replayed(question, plan)?;
    if goes_well(&replay) {
        return None;
    }
    let (mut better, mut stranding) = exchange_pods::better(
        question,
        plan,
        replay,
        if moves.has(Move::ExchangePods) { exchange_pods::ALONE } else { 0 },
    );
    let usual = |facts: &Snapshot| again(facts, AssignmentOrder::Cheapest);
    let steps: [Step<'_>; 5] = [
        &|known| relax_constraints::planned(question, moves, known, &again),
        &|known| moves.has(Move::AddNodes).then(|| add_nodes::bought(question, known, &usual)).flatten(),
        &|known| moves.has(Move::DropPods).then(|| drop_pods::planned(question, known, &usual)).flatten(),
        &|known| moves.has(Move::SpreadCounted).then(|| relax_constraints::spread(question, known, &usual)).flatten(),
        &|known| moves.has(Move::AddNodes).then(|| add_nodes::bought(question, known, &usual)).flatten(),
    ];
    for step in steps {
        if stranding < OFTEN {
            break;
        }
        if let Some((other, still)) = step((better.as_ref().unwrap_or(plan), stranding)) {
            (better, stranding) = (Some(other), still);
        }
    }
    better
}

/// The one of `others` that leaves the fewest pods and hardly strands any, if `plan` often does.
pub(crate) fn most_reliable(question: Question<'_>, plan: &Plan, others: Vec<Plan>) -> Option<Plan> {
    let is_sure = |plan: &Plan| replayed(question, plan).is_none_or(|replay| Outcomes::anew(&replay).stranding < OFTEN);
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

fn replayed(question: Question<'_>, plan: &Plan) -> Option<Replay> {
    let worth = is_to_be(question.snapshot, plan);
    worth.then(|| Replay::new(question, plan)).flatten().filter(|replay| replay.looks() <= LOOKS)
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
