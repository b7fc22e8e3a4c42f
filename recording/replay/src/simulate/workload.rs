//! The workload of a recorded snapshot: how many pods of each kind there are.

use plimsoll_model::identity::ShapeId;
use plimsoll_model::snapshot::{Pod, Snapshot};
use std::collections::BTreeMap;

/// Pods that are alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    namespace: String,
    shape: ShapeId,
    returns: bool,
    is_virtual: bool,
}

impl Kind {
    pub(super) fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            shape: pod.shape.clone(),
            returns: pod.returns,
            is_virtual: pod.buffer.is_some(),
        }
    }
}

/// The pods of each kind. Pods of DaemonSets belong to their nodes, and pods that are being deleted are gone unless
/// their owner replaces them.
pub(super) fn by_kind(recorded: &Snapshot) -> BTreeMap<Kind, Vec<&Pod>> {
    let mut kinds: BTreeMap<Kind, Vec<&Pod>> = BTreeMap::new();
    for pod in recorded.pods.iter().filter(|pod| pod.moves()) {
        kinds.entry(Kind::of(pod)).or_default().push(pod);
    }
    kinds
}
