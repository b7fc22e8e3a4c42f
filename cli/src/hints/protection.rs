//! Hints about annotations that are meant to protect pods or Nodes from disruption, but do not.

use super::misspelt::MAX_HINTS;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_model::names::annotation;
use plimsoll_snapshot::{Objects, full_name, protecting_annotation};
use std::collections::BTreeMap;

/// Annotations of Karpenter before v1 that `karpenter.sh/do-not-disrupt` has replaced.
const FORMER: [&str; 2] = ["karpenter.sh/do-not-consolidate", "karpenter.sh/do-not-evict"];
/// Annotations of pods, and the values that protect. That of Karpenter is checked where pods are read.
const OF_PODS: [(&str, &[&str]); 1] = [(annotation::SAFE_TO_EVICT, &["false", "on-completion"])];
/// Annotations of Nodes, and the values that protect.
const OF_NODES: [(&str, &[&str]); 2] =
    [(annotation::DO_NOT_DISRUPT, &["true"]), (annotation::SCALE_DOWN_DISABLED, &["true"])];

/// One hint for all objects of a kind that have the same annotation with the same value. Objects that are protected by
/// another annotation are left out: many charts set those of several versions of Karpenter.
pub(crate) fn of_idle_protection(objects: &Objects) -> Vec<String> {
    let mut found: BTreeMap<(&'static str, String), (String, usize)> = BTreeMap::new();
    let mut add = |kind: &'static str, metadata: &ObjectMeta, count: usize, known: &[(&str, &[&str])]| {
        for (key, value) in metadata.annotations.iter().flatten() {
            if let Some(fault) = fault(key, value, known) {
                let (_, total) = found.entry((kind, fault)).or_insert_with(|| (full_name(metadata), 0));
                *total += count;
            }
        }
    };
    let pods = objects.pods.iter().filter(|pod| pod.protected_until().is_none());
    pods.for_each(|pod| add("Pod", &pod.metadata, 1, &OF_PODS));
    for replicas in &objects.replicas {
        if let Some(pod) = replicas.pods().next().filter(|pod| pod.protected_until().is_none()) {
            add("Pod", &pod.metadata, replicas.len(), &OF_PODS);
        }
    }
    let nodes = objects.nodes.iter().filter(|node| protecting_annotation(node).is_none());
    nodes.for_each(|node| add("Node", &node.metadata, 1, &OF_NODES));
    let text = |((kind, fault), (name, total)): ((&str, String), (String, usize))| {
        let others = if total > 1 { format!(" and {} more", total - 1) } else { String::new() };
        format!("{kind} {name}{others}: {fault}")
    };
    found.into_iter().map(text).take(MAX_HINTS).collect()
}

/// Why the annotation does not protect, unless that is intended.
fn fault(key: &str, value: &str, known: &[(&str, &[&str])]) -> Option<String> {
    if FORMER.contains(&key) {
        let advice = format!("Karpenter v1 has {} instead", annotation::DO_NOT_DISRUPT);
        return (value != "false").then(|| format!("the annotation {key} has no effect; {advice}"));
    }
    let (_, protecting) = known.iter().find(|(name, _)| *name == key)?;
    if matches!(value, "true" | "false") || protecting.contains(&value) {
        return None;
    }
    Some(format!("the annotation {key}: {value:?} protects nothing; {} would", protecting.join(" or ")))
}
