//! Checks that each pod appears at most once and that each pending pod is accounted for.

use crate::facts::Facts;
use crate::{Violation, pod_numbers};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{Pod, PodState};
use std::collections::BTreeSet;

pub(crate) fn check<'p>(facts: &Facts<'_>, plan: &'p Plan, violations: &mut Vec<Violation>) {
    let mut seen = SeenPods::new(facts);
    let mut check_pod = |pod: &'p PodRef, number: Option<usize>| {
        if !seen.insert(number, pod) {
            violations.push(Violation::PodTwice(pod.name.clone()));
        }
        let known = number.and_then(|number| facts.snapshot.pods.get(number));
        if !known.is_some_and(|pod| needs_place(facts, pod)) {
            violations.push(Violation::UnknownPod(pod.name.clone()));
        }
    };
    for list in pod_numbers::lists(plan) {
        facts.pod_numbers(list).zip(list).for_each(|(number, pod)| check_pod(pod, number));
    }
    for refused in &plan.unschedulable {
        check_pod(&refused.pod, facts.pod_number(refused.pod.uid.as_str()));
    }
    let without_reason = plan.unschedulable.iter().filter(|unschedulable| unschedulable.reasons.is_empty());
    violations.extend(without_reason.map(|unschedulable| Violation::NoReason(unschedulable.pod.name.clone())));
}

/// Whether the plan may place the pod.
fn needs_place(facts: &Facts<'_>, pod: &Pod) -> bool {
    pod.moves()
        && match &pod.state {
            PodState::Pending => true,
            PodState::Bound(node) | PodState::Reserved(node) => facts.leaving.contains(node.as_str()),
        }
}

/// Checks that every pending pod is placed or unschedulable with a reason.
pub(crate) fn check_complete(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut accounted: IndexVec<Pod, bool> = IndexVec::filled(false, facts.snapshot.pods.len());
    let launched = plan.launches.iter().map(|launch| &launch.pods);
    for list in launched.chain(plan.placements.iter().map(|placement| &placement.pods)) {
        facts.numbered(list).for_each(|(number, _)| accounted[Id::new(number)] = true);
    }
    let refused =
        plan.unschedulable.iter().filter_map(|unschedulable| facts.pod_number(unschedulable.pod.uid.as_str()));
    refused.for_each(|number| accounted[Id::new(number)] = true);
    for pending in facts.index.pending() {
        let number = *pending as usize;
        let Some(pod) = facts.snapshot.pods.get(number) else { continue };
        if pod.moves() && !accounted[Id::new(number)] {
            violations.push(Violation::PodForgotten(pod.full_name()));
        }
    }
}

/// Pods that occurred in the plan so far.
struct SeenPods<'p> {
    known: IndexVec<Pod, bool>,
    /// UIDs of pods that are not in the snapshot.
    unknown: BTreeSet<&'p str>,
}

impl<'p> SeenPods<'p> {
    fn new(facts: &Facts<'_>) -> Self {
        Self { known: IndexVec::filled(false, facts.snapshot.pods.len()), unknown: BTreeSet::new() }
    }

    /// Returns whether the pod occurs for the first time.
    fn insert(&mut self, number: Option<usize>, pod: &'p PodRef) -> bool {
        match number {
            Some(number) => !std::mem::replace(&mut self.known[Id::new(number)], true),
            None => self.unknown.insert(pod.uid.as_str()),
        }
    }
}
