//! Each pod at most once, each pending pod accounted for.

use crate::Violation;
use crate::facts::Facts;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::PodState;
use std::collections::HashSet;

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let placed = plan.launches.iter().flat_map(|one| &one.pods);
    let placed = placed.chain(plan.placements.iter().flat_map(|one| &one.pods));
    let moved = plan.terminations.iter().flat_map(|one| &one.moved_to).flat_map(|one| &one.pods);
    let refused = plan.unschedulable.iter().map(|one| &one.pod);
    // Only looked up, never walked.
    let mut seen: HashSet<&str> = HashSet::new();
    for PodRef { name, uid } in placed.chain(moved).chain(refused) {
        if !seen.insert(uid.as_str()) {
            found.push(Violation::PodTwice(name.clone()));
        }
        let wants = facts.pod(uid.as_str()).is_some_and(|pod| {
            pod.moves()
                && match &pod.state {
                    PodState::Pending => true,
                    PodState::Bound(node) | PodState::Reserved(node) => facts.leaving.contains(node.as_str()),
                }
        });
        if !wants {
            found.push(Violation::UnknownPod(name.clone()));
        }
    }
    let silent = plan.unschedulable.iter().filter(|one| one.reasons.is_empty());
    found.extend(silent.map(|one| Violation::NoReason(one.pod.name.clone())));
}

/// Every pending pod has a place, or a reason why it has none.
pub(crate) fn check_complete(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let placed = plan.launches.iter().flat_map(|one| &one.pods);
    let placed = placed.chain(plan.placements.iter().flat_map(|one| &one.pods));
    let all = placed.chain(plan.unschedulable.iter().map(|one| &one.pod));
    let seen: HashSet<&str> = all.map(|pod| pod.uid.as_str()).collect();
    for pod in facts.index.pending().iter().filter_map(|place| facts.snapshot.pods.get(*place as usize)) {
        if pod.moves() && !seen.contains(pod.uid.as_str()) {
            found.push(Violation::PodForgotten(pod.full_name()));
        }
    }
}
