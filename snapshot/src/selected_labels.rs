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
