//! Drops pods that kube-scheduler would mostly strand.
//!
//! Other pods may fill the only domains in which these pods can run, usually before their turn. The plan would then
//! launch capacity that these pods rarely get. Such pods are dropped if they cannot be placed once all others are
//! bound.

use super::add_nodes::{AfterRun, Nodes, improved_by_exchange, with_nodes};
use super::outcomes::{ANEW, Outcomes, RUNS};
use super::projected::Replay;
use super::{Inputs, OFTEN};
use crate::repair::Repair;
use crate::repair::edit::{self, Change, placed};
use crate::repair::projection::{self, CapacityAssumption};
use crate::retries;
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::index::Id;
use plimsoll_model::plan::{Plan, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{PodShape, Snapshot};
use std::collections::BTreeSet;
use std::sync::Arc;

/// If `plan` strands a pod in at least half of the runs, returns a plan that drops pods but strands one in fewer than
/// [`OFTEN`] runs. On average, `plan` must strand at least half of the dropped pods. kube-scheduler may still bind a
/// dropped pod if its turn comes first.
pub(super) fn planned(repair: &Repair<'_>, (plan, stranding): (&Plan, usize)) -> Option<(Plan, usize)> {
    let inputs = repair.inputs;
    if 2 * stranding < ANEW * RUNS {
        return None;
    }
    let replay = Replay::new(inputs, plan)?;
    let outcomes = Outcomes::anew(&replay);
    let assignments = || outcomes.broken.iter().take(retries::PLANS).map(|(_, assignment)| assignment);
    if assignments().any(|assignment| finds_room(repair, &AfterRun::new(inputs, plan, &replay, assignment))) {
        return None;
    }
    let shapes = stranded(&replay, &outcomes);
    let lost: usize = outcomes.stranded.values().sum();
    let anew = without_self_affinity(inputs.snapshot, &shapes).into_iter().map(|snapshot| made_for(repair, &snapshot));
    let ended = assignments().map(|assignment| with_nodes(repair, plan, &replay, assignment, Nodes::AnyOrNone));
    let never = || never_bound(repair, plan, &replay, &outcomes);
    anew.chain(ended).chain(std::iter::once_with(never)).flatten().find_map(|other| {
        let more = left(&other).len().saturating_sub(left(plan).len());
        if 2 * lost < more * ANEW * RUNS {
            return None;
        }
        improved_by_exchange(repair, other).filter(|(_, still)| *still < OFTEN)
    })
}

/// Whether the next plan places all stranded pods without another node. These pods are only late.
fn finds_room(repair: &Repair<'_>, after: &AfterRun) -> bool {
    let Some(next) = repair.plan_keeping_nodes(&after.snapshot) else { return false };
    let bought = next.launches.iter().any(|launch| launch.pods.iter().any(|pod| after.stranded.contains(&pod.uid)));
    let left = next.unschedulable.iter().any(|one| after.stranded.contains(&one.pod.uid));
    !bought && !left && !always_strands(repair.inputs, &after.snapshot, &next)
}

/// Whether every run of a plan for this snapshot strands a pod.
fn always_strands(inputs: Inputs<'_>, snapshot: &Snapshot, plan: &Plan) -> bool {
    let replay = Replay::new(Inputs { snapshot, ..inputs }, plan);
    replay.is_some_and(|replay| Outcomes::of(&replay).stranding == RUNS)
}

/// The plan for a changed snapshot, unless a pod that it leaves unplaced could be placed once its nodes exist.
fn made_for(repair: &Repair<'_>, snapshot: &Snapshot) -> Option<Plan> {
    let mut plan = repair.plan_keeping_nodes(snapshot)?;
    let then =
        repair.plan_keeping_nodes(&projection::launched_with(repair.inputs, &plan, CapacityAssumption::Least))?;
    if placed(&then).next().is_some() {
        return None;
    }
    plan.unschedulable = then.unschedulable;
    repair.inputs.is_valid(&plan).then_some(plan)
}

/// `plan` without pods that are stranded in at least three of four runs and that cannot be placed once all others are
/// bound, such as pods that wait for each other.
fn never_bound(repair: &Repair<'_>, plan: &Plan, replay: &Replay, outcomes: &Outcomes) -> Option<Plan> {
    let inputs = repair.inputs;
    let rarely = outcomes.stranded.iter().filter(|(_, times)| 4 * **times >= 3 * ANEW * RUNS);
    let rarely: BTreeSet<&PodUid> = rarely.map(|(slot, _)| &replay.slots[*slot].uid).collect();
    let reason = Reason {
        node_pool: String::new(),
        code: ReasonCode::TopologyUnsatisfiable,
        message: "topology constraints depend on pods that cannot be scheduled before this pod".to_owned(),
    };
    let reasons = Arc::new(vec![reason]);
    let left = placed(plan).filter(|pod| rarely.contains(&pod.uid));
    let left = left.map(|pod| Unschedulable { pod: pod.clone(), reasons: Arc::clone(&reasons) });
    let change = Change { left: left.collect(), ..Change::default() };
    let other = edit::with(inputs, plan, &replay.after.nodes, &change)?;
    let after = projection::launched_with(inputs, &other, CapacityAssumption::Least);
    let next = repair.plan_keeping_nodes(&after)?;
    (placed(&next).next().is_none() || always_strands(inputs, &after, &next)).then_some(other)
}

/// Shapes of stranded pods.
fn stranded(replay: &Replay, outcomes: &Outcomes) -> BTreeSet<ShapeId> {
    let shapes: BTreeSet<Id<PodShape>> = outcomes.stranded.keys().map(|slot| replay.slots[*slot].shape).collect();
    shapes.into_iter().filter_map(|shape| Some(replay.after.shapes.get(shape.number())?.id.clone())).collect()
}

/// The snapshot with labels removed so that no pod of these shapes matches its own pod affinity. None of these pods can
/// then be the first of a group. `None` if no shape matches its own affinity.
fn without_self_affinity(snapshot: &Snapshot, shapes: &BTreeSet<ShapeId>) -> Option<Snapshot> {
    let mut changed_snapshot = snapshot.clone();
    let mut any = false;
    for shape in changed_snapshot.shapes.iter_mut().filter(|shape| shapes.contains(&shape.id)) {
        let keys = own_terms(shape);
        any |= !keys.is_empty();
        shape.labels.retain(|key, _| !keys.contains(key));
    }
    any.then_some(changed_snapshot)
}

/// Keys of labels by which a pod matches its own required pod affinity.
fn own_terms(shape: &PodShape) -> BTreeSet<String> {
    let required = shape.pod_affinity.iter().filter(|term| !term.anti && term.weight.is_none());
    let selectors = required.filter(|term| term.selects(shape)).filter_map(|term| term.selector.as_ref());
    let keys = selectors.flat_map(|selector| {
        let expressions = selector.match_expressions.iter().map(|one| &one.key);
        selector.match_labels.keys().chain(expressions).cloned()
    });
    keys.collect()
}

pub(super) fn left(plan: &Plan) -> BTreeSet<&PodUid> {
    plan.unschedulable.iter().map(|one| &one.pod.uid).collect()
}
