//! Checks a stored launch request against the cluster before it is sent again. A request is an annotation of a
//! NodeClaim: without the check, the right to create NodeClaims would be the right to launch any image with the node's
//! role, and any number of instances.

use super::{LaunchGroup, record};
use crate::ports::FleetRequest;
use plimsoll_api::EC2NodeClass;
use std::collections::BTreeSet;

/// Prefix of the names of launch templates.
const TEMPLATE_PREFIX: &str = "karpenter.k8s.aws/";

/// Why the request of a group must not be sent, if its node class does not select what the request names, or if it is
/// not for as many instances as the group has claims. The instances that an earlier request may have launched are then
/// looked up by tag.
pub(super) fn check(group: &LaunchGroup, request: &FleetRequest, class: Option<&EC2NodeClass>) -> Result<(), String> {
    let name = group.claims.values().next().map(|claim| claim.spec.node_class_ref.name.as_str());
    let class = class.ok_or_else(|| format!("node class {} is gone", name.unwrap_or_default()))?;
    if let Some(claim) = group.claims.values().find(|it| Some(it.spec.node_class_ref.name.as_str()) != name) {
        return Err(format!("claim {} has another node class than the rest of its group", record::name(claim)));
    }
    let (instances, size) = (request.total_target_capacity, group.key.size);
    if instances != size {
        return Err(format!("it requests {instances} instances, for a group of {size}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{LaunchTemplateConfig, Override};
    use crate::state::launch_group::GroupKey;
    use plimsoll_api::{EC2NodeClassSpec, NodeClaim, NodeClaimSpec};
    use plimsoll_model::catalog::CapacityType;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn class() -> EC2NodeClass {
        let mut class = EC2NodeClass::new("class", EC2NodeClassSpec::default());
        let image = json!({"id": "ami-1", "requirements": []});
        let subnets = json!([{"id": "subnet-1", "zone": "a"}, {"id": "subnet-2", "zone": "b"}]);
        class.status = serde_json::from_value(json!({"amis": [image], "subnets": subnets})).unwrap();
        class
    }

    /// A group with a claim of each of these node classes.
    fn group(classes: &[&str]) -> LaunchGroup {
        let claims = classes.iter().enumerate().map(|(index, class)| {
            let mut claim = NodeClaim::new(&format!("claim-{index}"), NodeClaimSpec::default());
            (*class).clone_into(&mut claim.spec.node_class_ref.name);
            (record::name(&claim).to_owned(), claim)
        });
        let key = GroupKey { id: "g".to_owned(), size: u32::try_from(classes.len()).unwrap() };
        LaunchGroup { key, claims: claims.collect(), held: BTreeMap::new(), cycle_id: "c".to_owned() }
    }

    /// A request for two instances.
    fn request(change: impl FnOnce(&mut LaunchTemplateConfig)) -> FleetRequest {
        let way = |zone: &str, subnet: Option<&str>| Override {
            instance_type: "m.large".to_owned(),
            zone: zone.to_owned(),
            subnet_id: subnet.map(str::to_owned),
            image_id: "ami-1".to_owned(),
            priority: 1,
        };
        let mut config = LaunchTemplateConfig {
            launch_template_name: "karpenter.k8s.aws/1".to_owned(),
            version: 1,
            overrides: vec![way("a", Some("subnet-1")), way("b", Some("subnet-2")), way("c", None)],
            reservation: None,
        };
        change(&mut config);
        FleetRequest {
            client_token: "g-1".to_owned(),
            capacity_type: CapacityType::Spot,
            total_target_capacity: 2,
            launch_template_configs: vec![config],
            ..FleetRequest::default()
        }
    }

    #[test]
    fn only_a_request_for_what_its_node_class_selects_is_sent_again() {
        let (two, ours) = (group(&["class", "class"]), request(|_| ()));
        assert_eq!(check(&two, &ours, Some(&class())), Ok(()));
        let refused = |group: &LaunchGroup, request: &FleetRequest, class: Option<&EC2NodeClass>, cause: &str| {
            assert_eq!(check(group, request, class), Err(cause.to_owned()));
        };
        refused(&two, &ours, None, "node class class is gone");
        let new = EC2NodeClass { status: None, ..class() };
        refused(&two, &ours, Some(&new), "the node class has no status");
        let mixed = group(&["class", "other"]);
        refused(&mixed, &ours, Some(&class()), "claim claim-1 has another node class than the rest of its group");
        let foreign = request(|config| config.launch_template_name = "admin".to_owned());
        refused(&two, &foreign, Some(&class()), "launch template admin is not one of ours");
        let image = request(|config| config.overrides[1].image_id = "ami-2".to_owned());
        refused(&two, &image, Some(&class()), "the node class does not select image ami-2");
        let subnet = request(|config| config.overrides[1].subnet_id = Some("subnet-3".to_owned()));
        refused(&two, &subnet, Some(&class()), "the node class does not select subnet subnet-3");
        let (one, many) = (group(&["class"]), FleetRequest { total_target_capacity: 200, ..request(|_| ()) });
        refused(&one, &ours, Some(&class()), "it requests 2 instances, for a group of 1");
        refused(&two, &many, Some(&class()), "it requests 200 instances, for a group of 2");
    }
}
