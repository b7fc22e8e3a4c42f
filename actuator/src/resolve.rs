//! Resolves a node class for a launch, from its status alone, so that a launch needs no further EC2 calls that could
//! fail.

use plimsoll_api::ec2_node_class::{Ami, PlacementGroup};
use plimsoll_api::{EC2NodeClass, condition};
use plimsoll_model::catalog::InstanceType;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, Requirement, RequirementError, Requirements};

/// A node class that is ready for launches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The node class by name.
    pub node_class: String,
    /// Subnets, the one with most free addresses first.
    pub subnets: Vec<ResolvedSubnet>,
    /// Security groups by id, sorted; at least one.
    pub security_group_ids: Vec<String>,
    /// Images, the newest first; at least one.
    pub images: Vec<ResolvedImage>,
    /// Instance profile by name.
    pub instance_profile: String,
    /// The placement group, if the class selects one.
    pub placement_group: Option<PlacementGroup>,
}

/// A subnet of a node class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedSubnet {
    /// `subnet-...`.
    pub id: String,
    /// Availability zone by name.
    pub zone: String,
    /// Availability zone by id; empty where unknown.
    pub zone_id: String,
}

/// An image of a node class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedImage {
    /// `ami-...`.
    pub id: String,
    /// Name; empty where unknown.
    pub name: String,
    /// Label requirements that an instance type must meet to run the image.
    pub requirements: Requirements,
}

/// Why a node class cannot be used for launches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// It is being deleted.
    #[error("EC2NodeClass {0} is being deleted")]
    Deleting(String),
    /// The condition `Ready` is not true, or refers to an older generation.
    #[error("EC2NodeClass {name} is not ready: {message}")]
    Condition {
        /// The node class.
        name: String,
        /// The condition's message.
        message: String,
    },
    /// The status lacks a field or has an unreadable requirement.
    #[error("EC2NodeClass {name}: status.{field}: {message}")]
    Status {
        /// The node class.
        name: String,
        /// Field of the status.
        field: &'static str,
        /// What is wrong.
        message: String,
    },
}

/// Resolves a node class that is ready.
///
/// # Errors
/// The node class is not ready.
pub fn for_launch(class: &EC2NodeClass) -> Result<Resolved, NotReady> {
    let name = class.metadata.name.clone().unwrap_or_default();
    if class.metadata.deletion_timestamp.is_some() {
        return Err(NotReady::Deleting(name));
    }
    match condition::get(class.conditions(), condition::READY) {
        Some(ready) if ready.status != condition::Status::True.as_str() => {
            let message = if ready.message.is_empty() { ready.reason.clone() } else { ready.message.clone() };
            return Err(NotReady::Condition { name, message });
        }
        Some(ready) if ready.observed_generation != class.metadata.generation => {
            return Err(NotReady::Condition {
                name,
                message: "its latest change has not been reconciled yet".to_owned(),
            });
        }
        Some(_) => {}
        None => {
            return Err(NotReady::Condition { name, message: "it has not been reconciled yet".to_owned() });
        }
    }
    from_status(class)
}

/// Resolves the status of a node class, ready or not.
///
/// # Errors
/// A field is missing, or a requirement is unreadable.
pub fn from_status(class: &EC2NodeClass) -> Result<Resolved, NotReady> {
    let name = class.metadata.name.clone().unwrap_or_default();
    let status = class.status.clone().unwrap_or_default();
    let problem = |field, message: &str| NotReady::Status { name: name.clone(), field, message: message.to_owned() };
    if status.subnets.is_empty() {
        return Err(problem("subnets", "there are none"));
    }
    if status.security_groups.is_empty() {
        return Err(problem("securityGroups", "there are none"));
    }
    if status.amis.is_empty() {
        return Err(problem("amis", "there are none"));
    }
    let Some(instance_profile) = status.instance_profile.filter(|profile| !profile.is_empty()) else {
        return Err(problem("instanceProfile", "there is none"));
    };
    let placement_group = class.placement_group().cloned();
    if class.spec.placement_group_selector.is_some() && placement_group.is_none() {
        return Err(problem("placementGroup", "there is none that spec.placementGroupSelector selects"));
    }
    let images =
        images(&status.amis).map_err(|(id, error)| problem("amis", &format!("requirements of {id}: {error}")))?;
    let mut security_group_ids: Vec<String> = status.security_groups.into_iter().map(|group| group.id).collect();
    security_group_ids.sort();
    let subnets = status
        .subnets
        .into_iter()
        .map(|subnet| ResolvedSubnet { id: subnet.id, zone: subnet.zone, zone_id: subnet.zone_id.unwrap_or_default() })
        .collect();
    Ok(Resolved { node_class: name.clone(), subnets, security_group_ids, images, instance_profile, placement_group })
}

/// The images of a node class' status, in the same order.
///
/// # Errors
/// An image with an unreadable requirement, and what is wrong.
pub(crate) fn images(amis: &[Ami]) -> Result<Vec<ResolvedImage>, (String, RequirementError)> {
    let resolved = amis.iter().map(|ami| {
        let requirements = requirements(&ami.requirements).map_err(|error| (ami.id.clone(), error))?;
        Ok(ResolvedImage { id: ami.id.clone(), name: ami.name.clone().unwrap_or_default(), requirements })
    });
    resolved.collect()
}

/// The image for an instance type: the first one that the type can run.
pub(crate) fn image_for<'a>(images: &'a [ResolvedImage], instance_type: &InstanceType) -> Option<&'a ResolvedImage> {
    images.iter().find(|image| image.runs_on(instance_type))
}

fn requirements(api: &[plimsoll_api::Requirement]) -> Result<Requirements, RequirementError> {
    api.iter().map(|entry| Requirement::new(&NodeSelectorRequirement::from(entry))).collect()
}

impl Resolved {
    /// The subnet of a zone with the most free addresses.
    #[must_use]
    pub fn subnet_in(&self, zone: &str) -> Option<&ResolvedSubnet> {
        self.subnets.iter().find(|subnet| subnet.zone == zone)
    }

    /// The image for an instance type: the first one that the type can run.
    #[must_use]
    pub fn image_for(&self, instance_type: &InstanceType) -> Option<&ResolvedImage> {
        image_for(&self.images, instance_type)
    }
}

impl ResolvedImage {
    /// Whether an instance type can run the image.
    #[must_use]
    pub fn runs_on(&self, instance_type: &InstanceType) -> bool {
        self.requirements.iter().all(|requirement| match label_value(instance_type, &requirement.key) {
            Some(value) => requirement.has(value),
            None => requirement.allows_absence(),
        })
    }
}

/// The value of a label that an instance type defines.
pub(crate) fn label_value<'a>(instance_type: &'a InstanceType, key: &str) -> Option<&'a str> {
    match key {
        label::INSTANCE_TYPE => Some(&instance_type.name),
        label::ARCH => Some(&instance_type.architecture),
        // A catalog is for one AMI family, so there is at most one operating system.
        label::OS => instance_type.operating_systems.first().map(String::as_str),
        key => instance_type.labels.get(key).map(String::as_str),
    }
}

#[cfg(test)]
mod tests;
