//! Affinity terms that select namespaces by their labels. The actuator does not watch Namespaces.

use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plimsoll_api::Pod;
use std::sync::Arc;

/// Whether the pod must be near pods of namespaces that are not known.
pub(crate) fn needs_namespaces(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
    has_selector(affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref()))
}

/// Extends required anti-affinity of namespaces that are not known to all namespaces, so that no pod is placed near
/// another one that it must avoid.
pub(crate) fn widen_anti_affinity(pod: &mut Arc<Pod>) {
    let spec = pod.spec.as_ref();
    let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    if !has_selector(affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref())) {
        return;
    }
    let spec = Arc::make_mut(pod).spec.as_mut().map(Arc::make_mut);
    let affinity = spec.and_then(|spec| spec.affinity.as_mut()?.pod_anti_affinity.as_mut());
    let terms = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_mut());
    for term in terms.into_iter().flatten().filter(|term| selects_by_labels(term)) {
        term.namespace_selector = Some(LabelSelector::default());
    }
}

fn has_selector(terms: Option<&Vec<PodAffinityTerm>>) -> bool {
    terms.is_some_and(|terms| terms.iter().any(selects_by_labels))
}

/// An empty selector selects all namespaces.
fn selects_by_labels(term: &PodAffinityTerm) -> bool {
    term.namespace_selector.as_ref().is_some_and(|selector| *selector != LabelSelector::default())
}
