//! Drops what no controller reads from cached objects, so that the cache of a large cluster stays small. Changes are
//! written as merge patches of single fields, so that a dropped field is never overwritten.

use crate::pods::NOMINATION_FIELD_MANAGER;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use plimsoll_api::{CapacityQuota, EC2NodeClass, NodeClaim, NodePool};

/// An object whose unused fields can be dropped.
pub(super) trait Trim: Resource {
    /// Whether another provider manages the object. Such objects are not cached, so no controller touches them.
    fn is_foreign(&self) -> bool {
        false
    }

    /// Drops the unused fields.
    fn trim(&mut self) {
        self.meta_mut().managed_fields = None;
    }
}

impl Trim for NodeClaim {
    fn is_foreign(&self) -> bool {
        !self.spec.node_class_ref.is_ec2_node_class()
    }
}

impl Trim for NodePool {
    fn is_foreign(&self) -> bool {
        !self.spec.template.spec.node_class_ref.is_ec2()
    }
}

impl Trim for EC2NodeClass {}
impl Trim for PodDisruptionBudget {}
impl Trim for CapacityQuota {}

impl Trim for Node {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
        if let Some(status) = &mut self.status {
            status.images = None;
        }
    }
}

impl Trim for Pod {
    fn trim(&mut self) {
        // Our own entry stays: a nomination is withdrawn only by its owner.
        let ours = |manager: Option<&str>| manager == Some(NOMINATION_FIELD_MANAGER);
        self.metadata.managed_fields.iter_mut().for_each(|all| all.retain(|entry| ours(entry.manager.as_deref())));
        let Some(spec) = &mut self.spec else { return };
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            *container = Container {
                name: std::mem::take(&mut container.name),
                ports: container.ports.take(),
                resources: container.resources.take(),
                restart_policy: container.restart_policy.take(),
                ..Container::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_keeps_what_decides_where_it_runs_and_loses_its_environment() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "managedFields": [{"manager": "kubectl"}, {"manager": NOMINATION_FIELD_MANAGER}]},
            "spec": {
                "containers": [{"name": "app", "image": "web:1", "env": [{"name": "TOKEN", "value": "secret"}],
                    "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 80, "hostPort": 80}]}],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always",
                    "resources": {"requests": {"memory": "1Gi"}}}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
            "status": {"phase": "Running"},
        }))
        .unwrap();
        pod.trim();
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "managedFields": [{"manager": NOMINATION_FIELD_MANAGER}]},
            "spec": {
                "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}},
                    "ports": [{"containerPort": 80, "hostPort": 80}]}],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always",
                    "resources": {"requests": {"memory": "1Gi"}}}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
            "status": {"phase": "Running"},
        });
        assert_eq!(serde_json::to_value(&pod).unwrap(), expected);
    }
}
