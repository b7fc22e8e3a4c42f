//! Leaves pods that kube-scheduler would mostly strand.
//!
//! Other pods may fill the only domains that these pods could be in, mostly before their turn. A place in the plan
//! is then a promise that is rarely kept, and the plan buys capacity that they do not get. Such pods are left if
//! they have no place once all others are bound.

use super::add_nodes::{Ended, Nodes, played, with_nodes};
use super::outcomes::{ANEW, Outcomes, RUNS};
use super::projected::Replay;
use super::{Inputs, OFTEN};
use crate::repair::Repair;
use crate::retries;
use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::Snapshot;
use std::collections::BTreeSet;

/// If `plan` strands a pod in more than half of the runs, returns a plan that leaves more pods but strands one in
/// fewer than [`OFTEN`] runs. `plan` strands at least half of the pods that are left in addition, on average.
/// kube-scheduler may still bind them if their turn comes first.
pub(super) fn planned(repair: &Repair<'_>, (plan, stranding): (&Plan, usize)) -> Option<(Plan, usize)> {
    let inputs = repair.inputs;
    if 2 * stranding < ANEW * RUNS {
        return None;
    }
    let replay = Replay::new(inputs, plan)?;
    let outcomes = Outcomes::anew(&replay);
    let assignments = || outcomes.broken.iter().take(retries::PLANS).map(|(_, assignment)| assignment);
    if assignments().any(|assignment| finds_room(repair, &Ended::new(inputs, plan, &replay, assignment))) {
        return None;
    }
    let lost: usize = outcomes.stranded.values().sum();
    let ended = assignments().map(|assignment| with_nodes(repair, plan, &replay, assignment, Nodes::AnyOrNone));
    ended.flatten().find_map(|other| {
        let more = left(&other).len().saturating_sub(left(plan).len());
        if 2 * lost < more * ANEW * RUNS {
            return None;
        }
        played(repair, other).filter(|(_, still)| *still < OFTEN)
    })
}

/// Whether the next plan places all stranded pods without another node: then they are only late.
fn finds_room(repair: &Repair<'_>, ended: &Ended) -> bool {
    let Some(next) = repair.plan_keeping_nodes(&ended.facts) else { return false };
    let bought = next.launches.iter().any(|launch| launch.pods.iter().any(|pod| ended.stranded.contains(&pod.uid)));
    let left = next.unschedulable.iter().any(|one| ended.stranded.contains(&one.pod.uid));
    !bought && !left && !always_strands(repair.inputs, &ended.facts, &next)
}

/// Whether every run of a plan for these facts strands a pod.
fn always_strands(inputs: Inputs<'_>, facts: &Snapshot, plan: &Plan) -> bool {
    let replay = Replay::new(Inputs { snapshot: facts, ..inputs }, plan);
    replay.is_some_and(|replay| Outcomes::of(&replay).stranding == RUNS)
}

pub(super) fn is_valid(inputs: Inputs<'_>, plan: &Plan) -> bool {
    plimsoll_invariants::check(inputs.snapshot, inputs.catalogs, plan).is_empty()
}

pub(super) fn left(plan: &Plan) -> BTreeSet<&PodUid> {
    plan.unschedulable.iter().map(|one| &one.pod.uid).collect()
}
