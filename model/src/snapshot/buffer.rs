//! Virtual pods of CapacityBuffers.

use super::Pod;
use crate::identity::NodeName;
use serde::{Deserialize, Serialize};

/// Marks a pod as virtual: it does not exist in the cluster but represents capacity that a CapacityBuffer reserves. A
/// virtual pod is always pending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufferPod {
    /// Name of the CapacityBuffer, in the pod's namespace.
    pub buffer: String,
    /// The node that was launched for the pod, if known. The pod stays there while it fits, so that nothing is launched
    /// for it again.
    pub node: Option<NodeName>,
}

impl Pod {
    /// Whether the pod is virtual, that is, does not exist in the cluster.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.buffer.is_some()
    }
}
