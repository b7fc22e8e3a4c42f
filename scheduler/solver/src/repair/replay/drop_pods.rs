//! Plans that leave pods of which kube-scheduler would strand most.
//!
//! Where others fill the only domains that pods could be in, mostly before their turn comes, a place in the plan is a promise that is rarely kept; and
//! room is bought for them that they do not get. Such pods are left, if they have no place once all others are bound.

use super::add_nodes::{Ended, Nodes, WORK, played, with_nodes};
use super::edit::{self, Change};
use super::outcomes::{ANEW, Outcomes, RUNS};
use super::projected::Replay;
use super::relax_constraints::{is_valid, left, stranded, without_self_affinity};
use super::{OFTEN, Question, is_pod_slot, placed};
use crate::repair::projection::{self, Room};
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::plan::{Plan, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::Snapshot;
use std::collections::BTreeSet;

/// Shapes of stranded pods for which a plan without them is made, beginning with those that are stranded most, and assignments that are taken for one: each costs
/// one or two plans.
const TRIES: usize = 3;

/// A plan that leaves more pods than `plan`, of which so many runs strand one: if most do, and hardly one of the other. Of those that it leaves more, `plan`
/// would strand half on average, or more; kube-scheduler may bind them all the same where it comes to them first.
pub(super) fn planned(
    question: Question<'_>,
    (plan, stranding): (&Plan, usize),
    again: &impl Fn(&Snapshot) -> Plan,
) -> Option<(Plan, usize)> {
    if 2 * stranding < ANEW * RUNS {
        return None;
    }
    let replay = Replay::new(question, plan)?;
    let outcomes = Outcomes::anew(&replay);
    let assignments = || outcomes.broken.iter().take(TRIES).map(|(_, assignment)| assignment);
    if assignments().any(|assignment| finds_room(question, &Ended::new(question, plan, &replay, assignment), again)) {
        return None;
    }
    let shapes = stranded(&replay, &outcomes);
    let lost: usize = outcomes.stranded.values().sum();
    let following = without_self_affinity(question.snapshot, &shapes).into_iter();
    let without = shapes.iter().take(TRIES).map(|shape| without(question.snapshot, shape));
    let anew = following.chain(without).map(|facts| made_for(question, &facts, again));
    let ended =
        assignments().map(|assignment| with_nodes(question, plan, &replay, assignment, (again, Nodes::AnyOrNone)));
    let never = || never_bound(question, plan, &replay, &outcomes, again);
    let mut work = WORK;
    anew.chain(ended).chain(std::iter::once_with(never)).flatten().find_map(|other| {
        let more = left(&other).len().saturating_sub(left(plan).len());
        if 2 * lost < more * ANEW * RUNS {
            return None;
        }
        played(question, other, &mut work).filter(|(_, still)| *still < OFTEN)
    })
}

/// Whether the next plan has room for all that are stranded, without another node: then they are only late.
fn finds_room(question: Question<'_>, ended: &Ended, again: &impl Fn(&Snapshot) -> Plan) -> bool {
    let next = again(&ended.facts);
    let bought = next.launches.iter().any(|launch| launch.pods.iter().any(|pod| ended.stranded.contains(&pod.uid)));
    let left = next.unschedulable.iter().any(|one| ended.stranded.contains(&one.pod.uid));
    !bought && !left && !always_strands(question, &ended.facts, &next)
}

/// Whether each run of a plan for these facts strands a pod.
fn always_strands(question: Question<'_>, facts: &Snapshot, plan: &Plan) -> bool {
    let replay = Replay::new(Question { snapshot: facts, ..question }, plan);
    replay.is_some_and(|replay| Outcomes::of(&replay).stranding == RUNS)
}

/// As if there were no such pods.
fn without(snapshot: &Snapshot, shape: &ShapeId) -> Snapshot {
    let mut facts = snapshot.clone();
    facts.pods.retain(|pod| pod.shape != *shape || !is_pod_slot(pod));
    facts
}

/// The cluster once the plan is carried out, its nodes counted against limits.
fn once_done(question: Question<'_>, plan: &Plan) -> Snapshot {
    let mut after = projection::project(question.snapshot, question.catalogs, plan);
    projection::count_limits((question.snapshot, question.catalogs), plan, Room::Least, &mut after);
    after
}

/// The plan for these facts, told about the pods that it leaves as things are then.
fn made_for(question: Question<'_>, facts: &Snapshot, again: &impl Fn(&Snapshot) -> Plan) -> Option<Plan> {
    let mut plan = again(facts);
    let then = again(&once_done(question, &plan));
    if placed(&then).next().is_some() {
        return None;
    }
    plan.unschedulable = then.unschedulable;
    is_valid(question, &plan).then_some(plan)
}

/// `plan` without the pods that hardly any run binds, if none does either once all others are bound: such as wait for each other, each for the other
/// to be there.
fn never_bound(
    question: Question<'_>,
    plan: &Plan,
    replay: &Replay,
    outcomes: &Outcomes,
    again: &impl Fn(&Snapshot) -> Plan,
) -> Option<Plan> {
    let rarely = outcomes.stranded.iter().filter(|(_, times)| 4 * **times >= 3 * ANEW * RUNS);
    let rarely: BTreeSet<&PodUid> = rarely.map(|(slot, _)| &replay.slots[*slot].uid).collect();
    let left = placed(plan).filter(|pod| rarely.contains(&pod.uid)).map(|pod| Unschedulable {
        pod: pod.clone(),
        reasons: vec![Reason {
            node_pool: String::new(),
            code: ReasonCode::TopologyUnsatisfiable,
            message: "its spreads, affinity or anti-affinity wait for pods that cannot be there before it".to_owned(),
        }],
    });
    let change = Change { left: left.collect(), ..Change::default() };
    let other = edit::with(question, plan, &replay.after.nodes, &change)?;
    let after = once_done(question, &other);
    let next = again(&after);
    (placed(&next).next().is_none() || always_strands(question, &after, &next)).then_some(other)
}
