//! Preferences of pods.

use crate::Feature;
use crate::constraints::{node_term, pod_term, spread};
use crate::generate::Draft;
use crate::manifest::push;
use crate::pools::LEGACY;
use plimsoll_model::names::label;
use serde_json::json;

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Applies a feature of this module to a workload.
pub(crate) fn apply(draft: &mut Draft, feature: Feature, index: usize) {
    match feature {
        Feature::PreferredNodeAffinity => node_affinity(draft, index),
        Feature::PreferredPodAffinity => pod_affinity(draft, index),
        Feature::SoftSpread => {
            let key = draft.rng.text(&[label::ZONE, label::HOSTNAME]);
            spread(draft, index, key, "ScheduleAnyway");
        }
        Feature::SoftTaints if draft.rng.chance(40) => {
            if let Some(workload) = draft.workloads.get_mut(index) {
                push(&mut workload.pod, &["tolerations"], json!({"key": LEGACY, "operator": "Exists"}));
            }
        }
        _ => {}
    }
}

fn node_affinity(draft: &mut Draft, index: usize) {
    for _ in 0..draft.rng.range(1, 2) {
        let term = node_term(draft);
        let weight = draft.rng.range(1, 100);
        if let Some(workload) = draft.workloads.get_mut(index) {
            let term = json!({"weight": weight, "preference": {"matchExpressions": [term]}});
            push(&mut workload.pod, &["affinity", "nodeAffinity", PREFERRED], term);
        }
    }
}

fn pod_affinity(draft: &mut Draft, index: usize) {
    let key = draft.rng.text(&[label::ZONE, label::HOSTNAME]);
    let kind = draft.rng.text(&["podAffinity", "podAntiAffinity"]);
    let term = pod_term(draft, index, key);
    let weight = draft.rng.range(1, 100);
    if let Some(workload) = draft.workloads.get_mut(index) {
        let term = json!({"weight": weight, "podAffinityTerm": term});
        push(&mut workload.pod, &["affinity", kind, PREFERRED], term);
    }
}
