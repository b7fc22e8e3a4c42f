//! Each pod at most once, each pending pod accounted for.

use crate::facts::Facts;
use crate::{Violation, resolved};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{Pod, PodState};
use std::collections::BTreeSet;

pub(crate) fn check<'p>(facts: &Facts<'_>, plan: &'p Plan, found: &mut Vec<Violation>) {
    let mut seen = Seen::new(facts);
    let mut judge = |pod: &'p PodRef, number: Option<usize>| {
        if !seen.insert(number, pod) {
            found.push(Violation::PodTwice(pod.name.clone()));
        }
        if !number.is_some_and(|number| wants(facts, &facts.snapshot.pods[number])) {
            found.push(Violation::UnknownPod(pod.name.clone()));
        }
    };
    for list in resolved::lists(plan) {
        facts.resolved(list).zip(list).for_each(|(number, pod)| judge(pod, number));
    }
    for refused in &plan.unschedulable {
        judge(&refused.pod, facts.pod_number(refused.pod.uid.as_str()));
    }
    let silent = plan.unschedulable.iter().filter(|one| one.reasons.is_empty());
    found.extend(silent.map(|one| Violation::NoReason(one.pod.name.clone())));
}

/// Whether a pod is to be placed.
fn wants(facts: &Facts<'_>, pod: &Pod) -> bool {
    pod.moves()
        && match &pod.state {
            PodState::Pending => true,
            PodState::Bound(node) | PodState::Reserved(node) => facts.leaving.contains(node.as_str()),
        }
}

/// Every pending pod has a place, or a reason why it has none.
pub(crate) fn check_complete(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut accounted = vec![false; facts.snapshot.pods.len()];
    let launched = plan.launches.iter().map(|one| &one.pods);
    for list in launched.chain(plan.placements.iter().map(|one| &one.pods)) {
        facts.numbered(list).for_each(|(number, _)| accounted[number] = true);
    }
    let refused = plan.unschedulable.iter().filter_map(|one| facts.pod_number(one.pod.uid.as_str()));
    refused.for_each(|number| accounted[number] = true);
    for place in facts.index.pending() {
        let number = *place as usize;
        let Some(pod) = facts.snapshot.pods.get(number) else { continue };
        if pod.moves() && !accounted[number] {
            found.push(Violation::PodForgotten(pod.full_name()));
        }
    }
}

/// Pods that the plan has named.
struct Seen<'p> {
    known: Vec<bool>,
    /// UIDs of pods that the snapshot does not have.
    unknown: BTreeSet<&'p str>,
}

impl<'p> Seen<'p> {
    fn new(facts: &Facts<'_>) -> Self {
        Self { known: vec![false; facts.snapshot.pods.len()], unknown: BTreeSet::new() }
    }

    /// Whether it is named for the first time.
    fn insert(&mut self, number: Option<usize>, pod: &'p PodRef) -> bool {
        match number {
            Some(number) => !std::mem::replace(&mut self.known[number], true),
            None => self.unknown.insert(pod.uid.as_str()),
        }
    }
}
