//! Checks a stored launch request against the cluster before it is sent again. A request is an annotation of a
//! NodeClaim: without the check, the right to create NodeClaims would be the right to launch any image with the node's
//! role.

use super::{LaunchGroup, record};
use crate::ports::FleetRequest;
use plimsoll_api::EC2NodeClass;
use std::collections::BTreeSet;

/// Prefix of the names of launch templates.
const TEMPLATE_PREFIX: &str = "karpenter.k8s.aws/";

/// Why the request of a group must not be sent, if its node class does not select what the request names. The
/// instances that an earlier request may have launched are then looked up by tag.
pub(super) fn check(group: &LaunchGroup, request: &FleetRequest, class: Option<&EC2NodeClass>) -> Result<(), String> {
    let name = group.claims.values().next().map(|claim| claim.spec.node_class_ref.name.as_str());
    let class = class.ok_or_else(|| format!("node class {} is gone", name.unwrap_or_default()))?;
    if let Some(claim) = group.claims.values().find(|it| Some(it.spec.node_class_ref.name.as_str()) != name) {
        return Err(format!("claim {} has another node class than the rest of its group", record::name(claim)));
    }
    let status = class.status.as_ref().ok_or("the node class has no status")?;
    let images: BTreeSet<&str> = status.amis.iter().map(|image| image.id.as_str()).collect();
    let subnets: BTreeSet<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    for config in &request.launch_template_configs {
        if !config.launch_template_name.starts_with(TEMPLATE_PREFIX) {
            return Err(format!("launch template {} is not one of ours", config.launch_template_name));
        }
        for item in &config.overrides {
            if !images.contains(item.image_id.as_str()) {
                return Err(format!("the node class does not select image {}", item.image_id));
            }
            if let Some(subnet) = item.subnet_id.as_deref().filter(|subnet| !subnets.contains(subnet)) {
                return Err(format!("the node class does not select subnet {subnet}"));
            }
        }
    }
    Ok(())
}
