//! Drops what no controller reads from cached objects, so that the cache of a large cluster stays small. Changes are
//! written as merge patches of single fields, so that a dropped field is never overwritten.

use super::index::Indexed;
use crate::guarded::{self, PartialRead};
use crate::pods::NOMINATION_FIELD_MANAGER;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plimsoll_api::{CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, Pod, SharedParts};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// An object that is watched, and whose unused fields can be dropped.
pub(super) trait Trim:
    PartialRead<DynamicType = ()> + Indexed + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
    /// Whether another provider manages the object. Such objects are not cached, so no controller touches them.
    fn is_foreign(&self) -> bool {
        false
    }

    /// Why only a part of the object is known; `None` if it is readable.
    fn unreadable(&self) -> Option<&str> {
        None
    }

    /// Drops the unused fields.
    fn trim(&mut self) {
        self.meta_mut().managed_fields = None;
    }

    /// Shares what the object has in common with others.
    fn share(&mut self, _parts: &mut SharedParts) {}
}

impl Trim for NodeClaim {
    fn is_foreign(&self) -> bool {
        !self.spec.node_class_ref.is_ec2_node_class()
    }

    fn unreadable(&self) -> Option<&str> {
        guarded::unreadable(self)
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
impl Trim for NodeOverlay {}

impl Trim for Node {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
        let Some(NodeStatus { capacity, allocatable, mut conditions, .. }) = self.status.take() else { return };
        // Repairs and metrics need all conditions, but neither their texts nor the heartbeats.
        for condition in conditions.iter_mut().flatten() {
            (condition.message, condition.last_heartbeat_time) = (None, None);
        }
        self.status = Some(NodeStatus { capacity, allocatable, conditions, ..NodeStatus::default() });
    }
}

impl Trim for Pod {
    fn trim(&mut self) {
        // Our own entry stays: a nomination is withdrawn only by its owner.
        let ours = |manager: Option<&str>| manager == Some(NOMINATION_FIELD_MANAGER);
        let managed_fields = self.metadata.managed_fields.take().into_iter().flatten();
        let mut managed_fields: Vec<_> = managed_fields.filter(|entry| ours(entry.manager.as_deref())).collect();
        managed_fields.shrink_to_fit();
        // An empty list would keep the memory of four entries, nearly a kilobyte.
        self.metadata.managed_fields = Some(managed_fields).filter(|all| !all.is_empty());
        plimsoll_snapshot::trim::pod(self);
    }

    fn share(&mut self, parts: &mut SharedParts) {
        parts.share(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_keeps_its_resources_and_conditions() {
        let mut node: Node = serde_json::from_value(json!({
            "metadata": {"name": "a"}, "spec": {"providerID": "aws:///a/i-1"},
            "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "volumesInUse": ["v"],
                "volumesAttached": [{"name": "v", "devicePath": ""}], "images": [{"names": ["web:1"]}],
                "conditions": [{"type": "KernelReady", "status": "False", "reason": "Hang", "message": "a task hangs",
                    "lastHeartbeatTime": "2026-01-05T00:05:00Z", "lastTransitionTime": "2026-01-05T00:00:00Z"}]},
        }))
        .unwrap();
        node.trim();
        let condition = json!({"type": "KernelReady", "status": "False", "reason": "Hang",
            "lastTransitionTime": "2026-01-05T00:00:00Z"});
        let expected = json!({
            "metadata": {"name": "a"}, "spec": {"providerID": "aws:///a/i-1"},
            "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}, "conditions": [condition]},
        });
        assert_eq!(node, serde_json::from_value(expected).unwrap());
    }

    #[test]
    fn a_pod_loses_its_environment_and_keeps_our_nomination() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "managedFields": [{"manager": "kubectl"}, {"manager": NOMINATION_FIELD_MANAGER}]},
            "spec": {"containers": [{"name": "app", "env": [{"name": "TOKEN", "value": "secret"}]}]},
        }))
        .unwrap();
        pod.trim();
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "managedFields": [{"manager": NOMINATION_FIELD_MANAGER}]},
            "spec": {"containers": [{"name": "app"}]},
        });
        assert_eq!(serde_json::to_value(&pod).unwrap(), expected);
        let other = json!({"metadata": {"name": "web", "managedFields": [{"manager": "kubectl"}]}});
        let mut other: Pod = serde_json::from_value(other).unwrap();
        other.trim();
        assert_eq!(other.metadata.managed_fields, None, "not an empty list, which keeps its memory");
    }
}
