//! Indices of the watch cache: the pods of a node, the pod of a UID, and the Node or NodeClaim of an instance.

use super::{CachedObjects, Cursor};
use crate::nodes;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use plimsoll_api::{CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, Pod};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Group of the pods without a node.
const UNBOUND: &str = "";

/// Values by which cached objects of a kind can be found.
pub trait Indexed: Resource {
    /// A value that several objects may have.
    fn group(&self) -> Option<&str> {
        None
    }

    /// A value that at most one object has.
    fn unique(&self) -> Option<&str> {
        None
    }
}

impl Indexed for Pod {
    /// The pod's node, or [`UNBOUND`].
    fn group(&self) -> Option<&str> {
        Some(self.node_name.as_deref().unwrap_or(UNBOUND))
    }

    /// The UID.
    fn unique(&self) -> Option<&str> {
        self.metadata.uid.as_deref()
    }
}

impl Indexed for Node {
    /// The providerID. Two Nodes may have the same, as after a kubelet was renamed.
    fn group(&self) -> Option<&str> {
        nodes::provider_id(self).filter(|id| !id.is_empty())
    }
}

impl Indexed for NodeClaim {
    /// The providerID.
    fn group(&self) -> Option<&str> {
        self.provider_id()
    }
}

impl Indexed for NodePool {}
impl Indexed for EC2NodeClass {}
impl Indexed for PodDisruptionBudget {}
impl Indexed for CapacityQuota {}
impl Indexed for NodeOverlay {}

impl CachedObjects<Pod> {
    /// The pods that are bound to a node, by namespace and name.
    #[must_use]
    pub fn on_node(&self, node: &str) -> Vec<Arc<Pod>> {
        self.group(node)
    }

    /// The pods that are bound to no node, by namespace and name.
    #[must_use]
    pub fn unbound(&self) -> Vec<Arc<Pod>> {
        self.group(UNBOUND)
    }

    /// Names of the nodes with pods.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<String> {
        let mut nodes = self.groups();
        nodes.remove(UNBOUND);
        nodes
    }

    /// Nodes with pods that changed, came or left since `cursor`, which is advanced; `None` for all nodes.
    pub fn changed_nodes(&self, cursor: &mut Cursor) -> Option<BTreeSet<String>> {
        let mut changed = self.changed_groups(cursor)?;
        changed.remove(UNBOUND);
        Some(changed)
    }

    /// The pod with this UID.
    #[must_use]
    pub fn with_uid(&self, uid: &str) -> Option<Arc<Pod>> {
        self.unique(uid)
    }
}

impl CachedObjects<Node> {
    /// The Nodes with this providerID, by name.
    #[must_use]
    pub fn with_provider_id(&self, id: &str) -> Vec<Arc<Node>> {
        self.group(id)
    }
}

impl CachedObjects<NodeClaim> {
    /// The NodeClaims with this providerID, by name.
    #[must_use]
    pub fn with_provider_id(&self, id: &str) -> Vec<Arc<NodeClaim>> {
        self.group(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_by_its_uid_as_long_as_it_is_there() {
        let pod = |uid: &str| {
            let mut pod = Pod::default();
            (pod.metadata.name, pod.metadata.uid) = (Some("web".to_owned()), Some(uid.to_owned()));
            pod
        };
        let pods = CachedObjects::<Pod>::default();
        let is_found = |uid: &str| pods.with_uid(uid).is_some();
        pods.show(pod("1"));
        assert!(is_found("1") && !is_found("2"));
        pods.show(pod("2"));
        assert!(!is_found("1") && is_found("2"), "another pod has the name");
        pods.show_gone(pod("2"));
        assert!(!is_found("2"));
    }
}
