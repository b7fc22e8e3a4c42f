//! Look-ups by key.

use super::{Node, NodePool, Pod, Snapshot};
use crate::identity::{NodeName, NodePoolName, PodUid};

/// The lists must be in canonical order.
impl Snapshot {
    /// The pod with this UID.
    #[must_use]
    pub fn pod(&self, uid: &PodUid) -> Option<&Pod> {
        let position = self.pods.binary_search_by(|pod| pod.uid.cmp(uid)).ok()?;
        self.pods.get(position)
    }

    /// The node with this name.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        let position = self.nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
        self.nodes.get(position)
    }

    /// The NodePool with this name.
    #[must_use]
    pub fn node_pool(&self, name: &NodePoolName) -> Option<&NodePool> {
        let position = self.node_pools.binary_search_by(|pool| pool.name.cmp(name)).ok()?;
        self.node_pools.get(position)
    }
}
