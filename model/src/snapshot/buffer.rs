//! Room that a CapacityBuffer keeps: pods that do not exist.

use super::Pod;
use crate::identity::NodeName;
use serde::{Deserialize, Serialize};

/// What makes a pod a virtual one: the cluster does not have it, it stands for room that a CapacityBuffer keeps. It is always to be placed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufferPod {
    /// Name of the CapacityBuffer, which is in the pod's namespace.
    pub buffer: String,
    /// The node that was launched for it, if it is known: it stays there as long as there is room, so that nothing is launched for it again.
    pub node: Option<NodeName>,
}

impl Pod {
    /// Whether the cluster does not have it.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.buffer.is_some()
    }
}
