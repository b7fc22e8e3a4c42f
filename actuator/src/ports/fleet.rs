//! CreateFleet: the one call that buys.

use super::Tags;
use plimsoll_model::catalog::CapacityType;
use serde::{Deserialize, Serialize};

/// A CreateFleet request of type `instant`. Stored with the claims and sent again byte for byte (safety rules 2 and 3), so
/// every field is ordered and nothing of it may be filled in while sending. A field that this version does not know makes it
/// unreadable: without that field it would be another request. Such a group is looked up and not sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetRequest {
    /// Launch group, `-`, attempt.
    pub client_token: String,
    /// How all of it is bought.
    pub capacity_type: CapacityType,
    /// The launch group's size.
    pub total_target_capacity: u32,
    /// Templates with their overrides, in order; each template has at least one override.
    pub launch_template_configs: Vec<LaunchTemplateConfig>,
    /// Honour [`Override::priority`] rather than price alone: a price overlay applies.
    pub prioritized: bool,
    /// `Context` of the fleet, from the node class.
    pub context: Option<String>,
    /// Tags of fleet, instances and volumes.
    pub tags: Tags,
}

impl FleetRequest {
    /// All overrides of all templates, in order.
    pub fn overrides(&self) -> impl Iterator<Item = &Override> {
        self.launch_template_configs.iter().flat_map(|config| &config.overrides)
    }
}

/// A launch template and what it is used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchTemplateConfig {
    /// The template's name.
    pub launch_template_name: String,
    /// Its version: always a number, since `$Latest` could change between two sendings.
    pub version: u64,
    /// Ways to launch, in order of preference.
    pub overrides: Vec<Override>,
}

/// One way to launch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// Subnet in that zone; `None` where the template names it.
    pub subnet_id: Option<String>,
    /// Image.
    pub image_id: String,
    /// Smaller is preferred; the position or price in micro-dollars per hour, as a whole number so that it is stored exactly.
    pub priority: u64,
}

/// What CreateFleet answered. Both lists may be filled at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FleetAnswer {
    /// Instances that were launched.
    pub instances: Vec<FleetInstance>,
    /// What was refused, by offering.
    pub errors: Vec<OfferingError>,
}

/// An instance that CreateFleet launched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FleetInstance {
    /// `i-...`.
    pub instance_id: String,
    /// Instance type.
    pub instance_type: String,
    /// Availability zone; empty where the answer does not tell.
    pub zone: String,
    /// How it was bought.
    pub capacity_type: CapacityType,
    /// Subnet; empty where the answer does not tell.
    pub subnet_id: String,
    /// Image; empty where the answer does not tell.
    pub image_id: String,
}

/// Why an offering was refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OfferingError {
    /// Instance type; empty where the error is not about one.
    pub instance_type: String,
    /// Availability zone; empty where the error is not about one.
    pub zone: String,
    /// Subnet; empty where the error is not about one.
    pub subnet_id: String,
    /// How it was to be bought.
    pub capacity_type: CapacityType,
    /// EC2's error code.
    pub code: String,
    /// EC2's words.
    pub message: String,
}

/// Codes that say "no capacity", not "wrong request" (spec: AWS provider section 4.8).
const CAPACITY_CODES: [&str; 8] = [
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
];

/// The account may not use Spot: its service-linked role is missing and may not be made.
const SPOT_ROLE_CODE: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";

impl OfferingError {
    /// Whether another offering, or the same one later, may do better.
    #[must_use]
    pub fn is_capacity(&self) -> bool {
        CAPACITY_CODES.contains(&self.code.as_str())
    }

    /// Whether Spot as a whole is closed to this account.
    #[must_use]
    pub fn is_spot_role_missing(&self) -> bool {
        self.code == SPOT_ROLE_CODE
    }

    /// Whether the subnet has no free address.
    #[must_use]
    pub fn is_subnet_full(&self) -> bool {
        self.code == "InsufficientFreeAddressesInSubnet"
    }
}

impl FleetAnswer {
    /// Whether the answer, if it has no instance, is for lack of capacity alone. An empty list of errors counts as that.
    #[must_use]
    pub fn is_capacity_only(&self) -> bool {
        self.errors.iter().all(|error| error.is_capacity() || error.is_spot_role_missing())
    }
}
