//! Reads DaemonSets, whose pods use resources on each new node.

use crate::Objects;
use crate::daemon_pods::DaemonPods;
use crate::problems::{Problem, full_name};
use crate::requests::effective_requests;
use crate::shapes::{NodeBinding, Shapes, Template};
use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use plimsoll_model::snapshot::DaemonSet;

/// Tolerations that the DaemonSet controller adds to every pod: taint key and effect.
const CONTROLLER_TOLERATIONS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// Toleration that the controller adds to pods in the host network.
const HOST_NETWORK_TOLERATION: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

pub(crate) fn build(
    objects: &Objects,
    pods: &DaemonPods,
    shapes: &mut Shapes<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<DaemonSet> {
    let mut daemon_sets = Vec::new();
    for daemon_set in &objects.daemon_sets {
        let metadata = &daemon_set.metadata;
        let Some(template) = daemon_set.spec.as_ref().map(|spec| &spec.template) else { continue };
        let Some(mut spec) = template.spec.clone() else { continue };
        if let Some(newest) = pods.newest(daemon_set).filter(|newest| effective_requests(newest).is_ok()) {
            use_containers_of(newest, &mut spec);
        }
        let host_network = spec.host_network == Some(true);
        let added = CONTROLLER_TOLERATIONS.into_iter().chain(host_network.then_some(HOST_NETWORK_TOLERATION));
        spec.tolerations.get_or_insert_default().extend(added.map(|(key, effect)| Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        }));
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
        match shapes.add(&Template { namespace, name, labels, spec: &spec, on_demand: None }, NodeBinding::Daemon) {
            Ok(shape) => daemon_sets.push(DaemonSet {
                uid: metadata.uid.clone().unwrap_or_else(|| full_name(metadata)),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                shape: shape.id.clone(),
            }),
            Err(fault) => problems.push(Problem::of("DaemonSet", metadata, fault.below("spec.template"))),
        }
    }
    daemon_sets
}

/// Uses the containers of an existing pod, which differ from those of the template if the admission added defaults of a
/// LimitRange or a sidecar, or if a VerticalPodAutoscaler changed the requests. Node affinity and tolerations stay
/// those of the template: the controller replaces them in each pod.
fn use_containers_of(pod: &PodSpec, template: &mut PodSpec) {
    template.containers.clone_from(&pod.containers);
    template.init_containers.clone_from(&pod.init_containers);
    template.resources.clone_from(&pod.resources);
    template.overhead.clone_from(&pod.overhead);
}

#[cfg(test)]
mod tests;
