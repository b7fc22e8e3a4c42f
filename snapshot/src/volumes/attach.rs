//! Volume attach limits of nodes, by CSI driver.

use crate::Objects;
use plimsoll_model::names::ATTACHABLE_VOLUMES_PREFIX;
use plimsoll_model::resources::Resources;
use std::collections::BTreeMap;

/// Limits by node name, one resource per driver. A driver without a count has no limit.
pub(crate) fn attach_limits(objects: &Objects) -> BTreeMap<&str, Resources> {
    let mut by_node: BTreeMap<&str, Resources> = BTreeMap::new();
    for node in &objects.csi_nodes {
        let limits = by_node.entry(node.metadata.name.as_deref().unwrap_or_default()).or_default();
        for driver in &node.spec.drivers {
            if let Some(count) = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count) {
                limits.set(&format!("{ATTACHABLE_VOLUMES_PREFIX}{}", driver.name), i64::from(count.max(0)));
            }
        }
    }
    by_node
}
