//! Where pods may run: tolerations, affinity and spreads.

use super::{Faults, Path, node_selector, node_selector_term};
use k8s_openapi::api::core::v1::{
    NodeAffinity, PodAffinityTerm, PodSpec, Toleration, TopologySpreadConstraint as Spread, WeightedPodAffinityTerm,
};
use plimsoll_api::validation::{is_label_key, is_label_value};
use std::collections::BTreeSet;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// How a spread treats nodes that its pods cannot run on.
const INCLUSION_POLICIES: [&str; 2] = ["Honor", "Ignore"];

pub(super) fn check(faults: &mut Faults<'_>, at: &Path<'_>, spec: &PodSpec) {
    for (index, one) in spec.tolerations.iter().flatten().enumerate() {
        toleration(faults, &at.item("tolerations", index), one);
    }
    if let Some(affinity) = &spec.affinity {
        let at = at.field("affinity");
        if let Some(of_nodes) = &affinity.node_affinity {
            node_affinity(faults, &at.field("nodeAffinity"), of_nodes);
        }
        if let Some(of_pods) = &affinity.pod_affinity {
            let required = of_pods.required_during_scheduling_ignored_during_execution.as_deref();
            let preferred = of_pods.preferred_during_scheduling_ignored_during_execution.as_deref();
            pod_affinity(faults, &at.field("podAffinity"), required, preferred);
        }
        if let Some(of_pods) = &affinity.pod_anti_affinity {
            let required = of_pods.required_during_scheduling_ignored_during_execution.as_deref();
            let preferred = of_pods.preferred_during_scheduling_ignored_during_execution.as_deref();
            pod_affinity(faults, &at.field("podAntiAffinity"), required, preferred);
        }
    }
    spreads(faults, at, spec.topology_spread_constraints.as_deref().unwrap_or_default());
}

pub(super) fn toleration(faults: &mut Faults<'_>, at: &Path<'_>, toleration: &Toleration) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, value, operator) = (text(&toleration.key), text(&toleration.value), text(&toleration.operator));
    if key.is_empty() && operator != "Exists" {
        faults.add(&at.field("operator"), "must be Exists if there is no key");
    }
    if !key.is_empty() && !is_label_key(&key) {
        faults.add(&at.field("key"), format_args!("{key:?} is not a label key"));
    }
    if operator == "Exists" && !value.is_empty() {
        faults.add(&at.field("value"), "must be empty for the operator Exists");
    }
    if matches!(operator.as_str(), "" | "Equal") && !is_label_value(&value) {
        faults.add(&at.field("value"), format_args!("{value:?} is not a label value"));
    }
    if toleration.toleration_seconds.is_some() && toleration.effect.as_deref() != Some("NoExecute") {
        faults.add(&at.field("tolerationSeconds"), "needs the effect NoExecute");
    }
}

fn node_affinity(faults: &mut Faults<'_>, at: &Path<'_>, affinity: &NodeAffinity) {
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        node_selector(faults, &at.field(REQUIRED), required);
    }
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    for (index, term) in preferred.enumerate() {
        let at = at.item(PREFERRED, index);
        weight(faults, &at, term.weight);
        node_selector_term(faults, &at.field("preference"), &term.preference);
    }
}

fn pod_affinity(
    faults: &mut Faults<'_>,
    at: &Path<'_>,
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
) {
    for (index, term) in required.into_iter().flatten().enumerate() {
        pod_affinity_term(faults, &at.item(REQUIRED, index), term);
    }
    for (index, term) in preferred.into_iter().flatten().enumerate() {
        let at = at.item(PREFERRED, index);
        weight(faults, &at, term.weight);
        pod_affinity_term(faults, &at.field("podAffinityTerm"), &term.pod_affinity_term);
    }
}

fn pod_affinity_term(faults: &mut Faults<'_>, at: &Path<'_>, term: &PodAffinityTerm) {
    // The snapshot finds an empty key.
    if !term.topology_key.is_empty() && !is_label_key(&term.topology_key) {
        faults.add(&at.field("topologyKey"), format_args!("{:?} is not a label key", term.topology_key));
    }
    let matched = term.match_label_keys.as_deref().unwrap_or_default();
    let mismatched = term.mismatch_label_keys.as_deref().unwrap_or_default();
    label_keys(faults, at, "matchLabelKeys", matched, term.label_selector.is_some());
    label_keys(faults, at, "mismatchLabelKeys", mismatched, term.label_selector.is_some());
    for (index, key) in matched.iter().enumerate().filter(|(_, key)| mismatched.contains(key)) {
        faults.add(&at.item("matchLabelKeys", index), format_args!("{key:?} is also in mismatchLabelKeys"));
    }
}

/// Keys whose values come from the pod's labels. Whether the selector may have them too depends on the API server's
/// version.
fn label_keys(faults: &mut Faults<'_>, at: &Path<'_>, list: &str, keys: &[String], has_selector: bool) {
    if !keys.is_empty() && !has_selector {
        faults.add(&at.field(list), "needs a labelSelector");
    }
    for (index, key) in keys.iter().enumerate().filter(|(_, key)| !is_label_key(key)) {
        faults.add(&at.item(list, index), format_args!("{key:?} is not a label key"));
    }
}

fn weight(faults: &mut Faults<'_>, at: &Path<'_>, weight: i32) {
    if !(1..=100).contains(&weight) {
        faults.add(&at.field("weight"), format_args!("{weight} is not between 1 and 100"));
    }
}

fn spreads(faults: &mut Faults<'_>, at: &Path<'_>, spreads: &[Spread]) {
    let mut known = BTreeSet::new();
    for (index, spread) in spreads.iter().enumerate() {
        let at = at.item("topologySpreadConstraints", index);
        let (key, when) = (spread.topology_key.as_str(), spread.when_unsatisfiable.as_str());
        // Other than in pod affinity, the API server takes any key but an empty one, which the snapshot finds.
        if !known.insert((key, when)) {
            faults.add(&at.field("topologyKey"), format_args!("another constraint has {key} with {when} as well"));
        }
        if let Some(domains) = spread.min_domains {
            let at = at.field("minDomains");
            if domains < 1 {
                faults.add(&at, "must be at least 1");
            } else if when != "DoNotSchedule" {
                faults.add(&at, "can be used with whenUnsatisfiable: DoNotSchedule only");
            }
        }
        let affinity = spread.node_affinity_policy.as_deref();
        faults.unless_one_of(&at.field("nodeAffinityPolicy"), affinity, &INCLUSION_POLICIES);
        faults.unless_one_of(&at.field("nodeTaintsPolicy"), spread.node_taints_policy.as_deref(), &INCLUSION_POLICIES);
        let keys = spread.match_label_keys.as_deref().unwrap_or_default();
        label_keys(faults, &at, "matchLabelKeys", keys, spread.label_selector.is_some());
    }
}
