//! Labels that selectors name. A shape keeps only these labels of its pods. With the others, each pod of a StatefulSet
//! and each pod of a Job would have a shape of its own.

use crate::Objects;
use crate::buffers::Buffer;
use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Keys of the labels by which topology spread and pod affinity of a pod select pods, with repetitions.
pub fn keys(spec: &PodSpec) -> impl Iterator<Item = &String> {
    let spreads = spec.topology_spread_constraints.iter().flatten();
    let of_spreads = spreads
        .flat_map(|spread| of_selector(spread.label_selector.as_ref()).chain(spread.match_label_keys.iter().flatten()));
    of_spreads.chain(spec.affinity.iter().flat_map(terms).flat_map(|term| {
        let keys = term.match_label_keys.iter().chain(&term.mismatch_label_keys).flatten();
        of_selector(term.label_selector.as_ref()).chain(keys)
    }))
}

/// Keys of DaemonSets and CapacityBuffers, with repetitions.
pub(crate) fn keys_of_templates<'a>(
    objects: &'a Objects,
    buffers: &'a [Buffer<'a>],
) -> impl Iterator<Item = &'a String> {
    let daemon_sets = objects.daemon_sets.iter().filter_map(|it| it.spec.as_ref()?.template.spec.as_ref());
    let of_buffers = buffers.iter().filter_map(|buffer| Some(&buffer.room.as_ref().ok()?.spec));
    daemon_sets.chain(of_buffers).flat_map(keys)
}

fn of_selector(selector: Option<&LabelSelector>) -> impl Iterator<Item = &String> {
    selector.into_iter().flat_map(|selector| {
        let labels = selector.match_labels.iter().flat_map(|labels| labels.keys());
        labels.chain(selector.match_expressions.iter().flatten().map(|requirement| &requirement.key))
    })
}

fn terms(affinity: &Affinity) -> impl Iterator<Item = &PodAffinityTerm> {
    let (with, apart) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
    let required = with.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let required_apart = apart.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let preferred = with.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let preferred_apart = apart.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let preferred = preferred.into_iter().chain(preferred_apart).flatten().map(|it| &it.pod_affinity_term);
    required.into_iter().chain(required_apart).flatten().chain(preferred)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn term(key: &str) -> Value {
        json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {key: "a"}}})
    }

    fn spread(key: &str) -> Value {
        json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {key: "a"}}})
    }

    #[test]
    fn the_labels_of_all_selectors_of_a_pod_are_found() {
        let weighted = |key: &str| json!({"weight": 1, "podAffinityTerm": term(key)});
        let (mut with_keys, mut spread) = (term("required"), spread("spread"));
        with_keys["matchLabelKeys"] = json!(["same"]);
        with_keys["mismatchLabelKeys"] = json!(["different"]);
        spread["labelSelector"]["matchExpressions"] = json!([{"key": "expression", "operator": "Exists"}]);
        spread["matchLabelKeys"] = json!(["same-spread"]);
        let affinity = json!({
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [with_keys],
                "preferredDuringSchedulingIgnoredDuringExecution": [weighted("preferred")]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("apart")],
                "preferredDuringSchedulingIgnoredDuringExecution": [weighted("rather-apart")]},
        });
        let spec = json!({"containers": [], "topologySpreadConstraints": [spread], "affinity": affinity});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let mut found: Vec<&str> = keys(&spec).map(String::as_str).collect();
        found.sort_unstable();
        let expected = [
            "apart",
            "different",
            "expression",
            "preferred",
            "rather-apart",
            "required",
            "same",
            "same-spread",
            "spread",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn daemon_sets_and_buffers_select_pods_too() {
        let template = |key: &str| json!({"spec": {"containers": [], "topologySpreadConstraints": [spread(key)]}});
        let named = |name: &str| json!({"namespace": "shop", "name": name});
        let set = json!({"metadata": named("agent"), "spec": {"selector": {}, "template": template("daemon")}});
        let spare = json!({"metadata": named("spare"), "template": template("buffer")});
        let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
            "metadata": named("spare"), "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 1}});
        let objects = Objects {
            daemon_sets: vec![serde_json::from_value(set).unwrap()],
            pod_templates: vec![serde_json::from_value(spare).unwrap()],
            capacity_buffers: vec![serde_json::from_value(buffer).unwrap()],
            ..Objects::default()
        };
        let buffers = crate::buffers::resolve(&objects);
        assert_eq!(keys_of_templates(&objects, &buffers).collect::<Vec<_>>(), ["daemon", "buffer"]);
    }
}
