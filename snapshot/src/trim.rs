//! Drops what plans do not depend on from pods that are kept in memory. A large cluster has 100,000 pods, and most of a
//! pod's size is environment, probes, projected volumes and the status of its containers.

use crate::{pods, requests};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use plimsoll_api::{Pod, needs_claim};
use plimsoll_model::names::annotation;
use std::sync::Arc;

/// Drops the fields of a pod that no plan depends on, and everything that may contain secrets. The snapshot of the
/// trimmed pod is that of the whole pod. `metadata.managedFields` is not changed.
pub fn pod(pod: &mut Pod) {
    let resized = pod.spec.as_ref().is_some_and(|spec| requests::resized(pod, spec).is_some());
    pod.metadata.generate_name = None;
    // The first annotation costs half a kilobyte, and most pods have none that is read. Where Cluster Autoscaler was
    // used, many pods are annotated as safe to evict, which means nothing here.
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, value| {
            annotation::OF_PODS.contains(&key.as_str()) && (key != annotation::SAFE_TO_EVICT || value != "true")
        });
    }
    pod.metadata.annotations.take_if(|annotations| annotations.is_empty());
    let stays = pod.node_name.is_some() && pods::stays_with_node(pod);
    if let Some(spec) = &mut pod.spec {
        let spec = Arc::make_mut(spec);
        trim_spec(spec);
        // That of a DaemonSet's pod names the node once more.
        spec.affinity.iter_mut().filter(|_| stays).for_each(|affinity| affinity.node_affinity = None);
    }
    if !resized {
        pod.status.allocated = Box::default();
    }
}

/// Drops the fields of the containers that no plan depends on.
pub fn containers(spec: &mut PodSpec) {
    // In the host network, every container port is a host port. The API server writes that into pods, not templates.
    let host_network = spec.host_network == Some(true);
    for one in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        container(one, host_network);
    }
}

fn container(container: &mut Container, host_network: bool) {
    let mut ports = container.ports.take();
    if let Some(ports) = &mut ports {
        ports.retain(|port| host_network || port.host_port.is_some_and(|port| port != 0));
        ports.shrink_to_fit();
    }
    *container = Container {
        name: std::mem::take(&mut container.name),
        ports: ports.filter(|ports| !ports.is_empty()),
        resources: container.resources.take(),
        restart_policy: container.restart_policy.take(),
        ..Container::default()
    };
}

fn trim_spec(spec: &mut PodSpec) {
    containers(spec);
    spec.containers.shrink_to_fit();
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(needs_claim);
        volumes.shrink_to_fit();
    }
    spec.volumes.take_if(|volumes| volumes.is_empty());
    spec.tolerations.iter_mut().for_each(Vec::shrink_to_fit);
    (spec.ephemeral_containers, spec.host_aliases, spec.image_pull_secrets) = (None, None, None);
    (spec.dns_config, spec.dns_policy, spec.security_context) = (None, None, None);
    (spec.service_account, spec.service_account_name) = (None, None);
    // A StatefulSet gives each of its pods a hostname.
    (spec.hostname, spec.subdomain) = (None, None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn trimmed(pod: Value) -> Value {
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        super::pod(&mut pod);
        serde_json::to_value(pod).unwrap()
    }

    #[test]
    fn a_pod_keeps_what_decides_where_it_runs_and_loses_its_environment() {
        let pod = json!({
            "metadata": {"name": "web", "generateName": "web-",
                "annotations": {"karpenter.sh/do-not-disrupt": "true", "prometheus.io/scrape": "true"}},
            "spec": {
                "containers": [{"name": "app", "image": "web:1", "env": [{"name": "TOKEN", "value": "secret"}],
                    "resources": {"requests": {"cpu": "1"}},
                    "ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 9090}]}],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 15001}],
                    "resources": {"requests": {"memory": "1Gi"}}}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
                "serviceAccountName": "web", "nodeName": "n",
            },
            "status": {"phase": "Running", "hostIP": "10.0.0.1",
                "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "app", "image": "web:1", "imageID": "i", "ready": true,
                    "restartCount": 0, "allocatedResources": {"cpu": "1"}}]},
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": {
                "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}},
                    "ports": [{"containerPort": 80, "hostPort": 80}]}],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always",
                    "resources": {"requests": {"memory": "1Gi"}}}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                "nodeName": "n",
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert_eq!(trimmed(pod), expected);
    }

    #[test]
    fn what_the_kubelet_has_allocated_is_kept_during_a_resize() {
        let pod = json!({
            "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{"name": "app", "image": "web:1", "imageID": "i", "ready": true,
                "restartCount": 3, "allocatedResources": {"cpu": "2"}}]},
        });
        let kept = &trimmed(pod)["status"]["containerStatuses"][0];
        assert_eq!((&kept["resources"]["requests"], &kept["restartCount"]), (&json!({"cpu": "2"}), &json!(0)));
    }

    /// Otherwise they could not share their spec.
    #[test]
    fn the_pods_of_a_workload_differ_only_in_their_node() {
        let spec = |kind: &str, node: &str, own: Value| {
            let mut spec = json!({"nodeName": node, "containers": [{"name": "app"}]});
            spec.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            let owner = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u"}]);
            let mut spec =
                trimmed(json!({"metadata": {"name": node, "ownerReferences": owner}, "spec": spec}))["spec"].take();
            assert_eq!(spec.as_object_mut().unwrap().remove("nodeName"), Some(json!(node)));
            spec
        };
        let affinity = |node: &str| {
            let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [field]}]}}}})
        };
        let daemon = |node| spec("DaemonSet", node, affinity(node));
        assert_eq!(daemon("a"), daemon("b"));
        // Another owner's pods may move, so that their node affinity matters.
        let replica = |node| spec("ReplicaSet", node, affinity(node));
        assert_ne!(replica("a"), replica("b"));
        let stateful = |node| spec("StatefulSet", node, json!({"hostname": node, "subdomain": "db"}));
        assert_eq!(stateful("a"), stateful("b"));
    }
}
