//! Each pod at most once, each pending pod accounted for, and whether a pod may run at a place.

use crate::{Facts, Violation};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::snapshot::{PodShape, PodState};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let leaving: BTreeSet<&str> = facts
        .snapshot
        .nodes
        .iter()
        .filter(|node| node.deleting || plan.terminations.iter().any(|one| one.node == node.name))
        .map(|node| node.name.as_str())
        .collect();
    let placed = plan.launches.iter().flat_map(|one| &one.pods);
    let placed = placed.chain(plan.placements.iter().flat_map(|one| &one.pods));
    let moved = plan.terminations.iter().flat_map(|one| &one.moved_to).flat_map(|one| &one.pods);
    let refused = plan.unschedulable.iter().map(|one| &one.pod);
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for PodRef { name, uid } in placed.chain(moved).chain(refused) {
        if !seen.insert(uid.as_str()) {
            found.push(Violation::PodTwice(name.clone()));
        }
        let wants = facts.pods.get(uid.as_str()).is_some_and(|pod| {
            !pod.terminating
                && !pod.stays_with_node
                && match &pod.state {
                    PodState::Pending => true,
                    PodState::Bound(node) | PodState::Reserved(node) => leaving.contains(node.as_str()),
                }
        });
        if !wants {
            found.push(Violation::UnknownPod(name.clone()));
        }
    }
    for pod in &facts.snapshot.pods {
        let wants = pod.state == PodState::Pending && !pod.terminating && !pod.stays_with_node;
        if wants && !seen.contains(pod.uid.as_str()) {
            found.push(Violation::PodForgotten(pod.full_name()));
        }
    }
    let silent = plan.unschedulable.iter().filter(|one| one.reasons.is_empty());
    found.extend(silent.map(|one| Violation::NoReason(one.pod.name.clone())));
}

/// What keeps pods of `shape` from a place with these taints.
pub(crate) fn taint_problem(shape: &PodShape, taints: &[Taint]) -> Option<String> {
    let hard = taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    let bad = hard.into_iter().find(|taint| !shape.tolerations.iter().any(|one| one.tolerates(taint)))?;
    Some(format!("taint {}={}:{}", bad.key, bad.value, bad.effect.as_str()))
}

/// What keeps pods of `shape` from a node whose labels are known.
pub(crate) fn label_problem(shape: &PodShape, name: &str, labels: &BTreeMap<String, String>) -> Option<String> {
    let wrong = shape.node_selector.iter().find(|(key, value)| value_of(labels, key) != Some(value.as_str()));
    if let Some((key, value)) = wrong {
        return Some(format!("node selector {key}={value}"));
    }
    let required = &shape.required_node_affinity;
    let holds = |term: &NodeSelectorTerm| term.matches_node(name, labels);
    (!required.is_empty() && !required.iter().any(holds)).then(|| "required node affinity".to_owned())
}

fn value_of<'a>(labels: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    labels.get(key).or_else(|| labels.get(plimsoll_model::names::label::normalized(key))).map(String::as_str)
}
