//! Drift as EC2 and the status of the node class tell it. Each check says `Unknown` if a fact is missing.

use super::Drift;
use crate::resolve;
use crate::state::catalogs::OfferedTypes;
use crate::state::instances::InstanceFacts;
use jiff::{SignedDuration, Timestamp};
use plimsoll_api::condition::{self, ec2_node_class::CAPACITY_RESERVATIONS_READY};
use plimsoll_api::{EC2NodeClass, NodeClaim};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType};
use plimsoll_model::names::label;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Instance types of younger claims are not looked up: they were on offer at launch.
const TYPE_CHECKED_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// Reason for an instance in a capacity reservation that is not selected.
pub(in crate::node_pool_status) const CAPACITY_RESERVATION_DRIFT: &str = "CapacityReservationDrift";

/// What is known about a claim's instance and about its node class' instance types.
#[derive(Debug, Clone, Default)]
pub(in crate::node_pool_status) struct ProviderFacts {
    /// Catalog of the node class.
    pub(in crate::node_pool_status) catalog: Option<Arc<Catalog>>,
    /// The types that EC2 offers; empty if EC2 has not answered yet.
    pub(in crate::node_pool_status) offered: OfferedTypes,
    /// The instance, if EC2 listed it.
    pub(in crate::node_pool_status) instance: Option<InstanceFacts>,
}

impl ProviderFacts {
    fn type_of(&self, claim: &NodeClaim) -> Option<&InstanceType> {
        self.catalog.as_ref()?.get(label_of(claim, label::INSTANCE_TYPE)?)
    }
}

fn label_of<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether EC2 still offers the instance type in the claim's zone. The catalog does not tell: it lacks types whose
/// prices are not known at the moment.
pub(super) fn instance_type(claim: &NodeClaim, facts: &ProviderFacts, now: Timestamp) -> Drift {
    let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    if created.is_none_or(|created| now.duration_since(created) <= TYPE_CHECKED_AFTER) {
        return Drift::None;
    }
    let (Some(name), Some(zone)) = (label_of(claim, label::INSTANCE_TYPE), label_of(claim, label::ZONE)) else {
        return Drift::Unknown;
    };
    if facts.offered.is_empty() {
        return Drift::Unknown;
    }
    let is_offered = facts.offered.get(zone).is_some_and(|types| types.contains(name));
    if is_offered { Drift::None } else { Drift::Drifted("InstanceTypeNotFound") }
}

/// Whether the node class would launch the instance type with another image now.
pub(super) fn image(claim: &NodeClaim, class: &EC2NodeClass, facts: &ProviderFacts) -> Drift {
    let amis = class.status.as_ref().map(|status| status.amis.as_slice()).unwrap_or_default();
    let image = claim.status.as_ref().and_then(|status| status.image_id.as_deref()).filter(|id| !id.is_empty());
    let (Some(image), Some(instance_type), Ok(images)) = (image, facts.type_of(claim), resolve::images(amis)) else {
        return Drift::Unknown;
    };
    if images.is_empty() {
        return Drift::Unknown;
    }
    match resolve::image_for(&images, instance_type) {
        Some(current) if current.id == image => Drift::None,
        // AWS has not published the image yet, so nothing could replace the node.
        None if class.spec.effective_ami_selector_terms().iter().any(|term| term.alias.is_some()) => Drift::Unknown,
        _ => Drift::Drifted("AMIDrift"),
    }
}

/// Whether the instance has other security groups than the node class selects.
pub(super) fn security_groups(class: &EC2NodeClass, facts: &ProviderFacts) -> Drift {
    let groups = class.status.iter().flat_map(|status| &status.security_groups);
    let wanted: BTreeSet<&str> = groups.map(|group| group.id.as_str()).collect();
    let ids = facts.instance.iter().flat_map(|instance| &instance.security_group_ids);
    let actual: BTreeSet<&str> = ids.map(String::as_str).collect();
    match (wanted.is_empty(), actual.is_empty()) {
        (false, false) if wanted == actual => Drift::None,
        (false, false) => Drift::Drifted("SecurityGroupDrift"),
        _ => Drift::Unknown,
    }
}

/// Whether the instance is in a subnet that the node class does not select.
pub(super) fn subnet(class: &EC2NodeClass, facts: &ProviderFacts) -> Drift {
    let subnets = class.status.as_ref().map(|status| status.subnets.as_slice()).unwrap_or_default();
    let actual = facts.instance.as_ref().map(|instance| instance.subnet_id.as_str()).filter(|id| !id.is_empty());
    match actual {
        Some(actual) if subnets.iter().any(|subnet| subnet.id == actual) => Drift::None,
        Some(_) if !subnets.is_empty() => Drift::Drifted("SubnetDrift"),
        _ => Drift::Unknown,
    }
}

/// Whether a reserved instance runs in a capacity reservation that the node class does not select.
pub(super) fn capacity_reservation(class: &EC2NodeClass, facts: &ProviderFacts) -> Drift {
    let Some(instance) = &facts.instance else { return Drift::Unknown };
    if instance.capacity_type != CapacityType::Reserved {
        return Drift::None;
    }
    let Some(status) = &class.status else { return Drift::Unknown };
    let selected = &status.capacity_reservations;
    let is_known = !selected.is_empty() || condition::is_true(&status.conditions, CAPACITY_RESERVATIONS_READY);
    match &instance.capacity_reservation_id {
        Some(id) if selected.iter().any(|reservation| reservation.id == *id) => Drift::None,
        Some(_) if is_known => Drift::Drifted(CAPACITY_RESERVATION_DRIFT),
        _ => Drift::Unknown,
    }
}

/// Whether the claim was launched in another placement group than the node class selects, or in none.
pub(super) fn placement_group(claim: &NodeClaim, class: &EC2NodeClass) -> Drift {
    let selected = match (&class.spec.placement_group_selector, class.placement_group()) {
        (None, _) => "",
        (Some(_), Some(group)) => group.id.as_str(),
        (Some(_), None) => return Drift::Unknown,
    };
    let actual = label_of(claim, label::PLACEMENT_GROUP_ID).unwrap_or_default();
    if actual == selected { Drift::None } else { Drift::Drifted("PlacementGroupDrift") }
}
