//! Volume attach limits of nodes, by CSI driver.

use crate::Objects;
use k8s_openapi::api::storage::v1::CSINode;
use plimsoll_model::names::ATTACHABLE_VOLUMES_PREFIX;
use plimsoll_model::resources::Resources;
use std::collections::BTreeMap;

/// CSINodes by node name.
pub(crate) struct AttachLimits<'objects> {
    by_node: BTreeMap<&'objects str, &'objects CSINode>,
}

impl<'objects> AttachLimits<'objects> {
    pub(crate) fn new(objects: &'objects Objects) -> Self {
        let named = |node: &'objects CSINode| Some((node.metadata.name.as_deref()?, node));
        Self { by_node: objects.csi_nodes.iter().filter_map(named).collect() }
    }

    /// Adds the limits of `node` to `allocatable`, one resource per driver. A driver without a count has no limit.
    pub(crate) fn add_to(&self, node: &str, allocatable: &mut Resources) {
        for driver in self.by_node.get(node).into_iter().flat_map(|node| &node.spec.drivers) {
            if let Some(count) = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count) {
                allocatable.set(&format!("{ATTACHABLE_VOLUMES_PREFIX}{}", driver.name), i64::from(count.max(0)));
            }
        }
    }
}
