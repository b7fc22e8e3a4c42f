//! The mutating EC2 requests of a launch, with the EC2 API's own member names. What is in a request is decided here;
//! the adapter only converts it to the SDK's types, and `plimsoll requests` prints it.

mod fleet;
mod instance;
mod template;

pub use fleet::{
    AllocationOptions, CreateFleet, FleetLaunchTemplateConfig, FleetOverride, LaunchTemplateSpecification,
    TargetCapacity,
};
pub use instance::{InstanceInterface, RunInstances};
pub use template::{
    BlockDeviceMapping, ConnectionTracking, CpuOptions, CreateLaunchTemplate, Ebs, Enabled, InstanceProfileName,
    Interface, LaunchTemplateData, MarketOptions, Metadata, Placement, Reservation, ReservationTarget,
};

use crate::ports::Tags;
use serde::Serialize;

/// Tags for one type of resource that a request creates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TagSpecification {
    /// Type of resource, such as `instance`.
    pub resource_type: &'static str,
    /// Tags, sorted by key.
    pub tags: Vec<Tag>,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Tag {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
}

fn tag_specification(resource_type: &'static str, tags: &Tags) -> TagSpecification {
    let tags = tags.iter().map(|(key, value)| Tag { key: key.clone(), value: value.clone() }).collect();
    TagSpecification { resource_type, tags }
}

/// Converts a number to EC2's integer type. A number that is too large saturates, and EC2 rejects it.
fn number(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn small(value: u32) -> i32 {
    number(u64::from(value))
}

#[cfg(test)]
mod tests;
