//! CreateFleet, the only call that launches instances.

use super::{MarketType, ReservationSpec, Tags};
use plimsoll_model::catalog::CapacityType;
use serde::{Deserialize, Serialize};

/// A CreateFleet request of type `instant`. The request is stored on the claims and sent again byte for byte (safety
/// rules 2 and 3). So every field is ordered, and nothing is filled in while sending.
/// An unknown field makes the request unreadable, since the request would differ without it. The instances of such a
/// group are looked up, and the request is not sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetRequest {
    /// Launch group, `-`, attempt.
    pub client_token: String,
    /// Capacity type of all instances.
    pub capacity_type: CapacityType,
    /// The launch group's size.
    pub total_target_capacity: u32,
    /// Templates with their overrides, in order; each template has at least one override.
    pub launch_template_configs: Vec<LaunchTemplateConfig>,
    /// Honour [`Override::priority`] instead of price alone: a price overlay applies.
    pub prioritized: bool,
    /// `Context` of the fleet, from the node class.
    pub context: Option<String>,
    /// Tags of fleet, instances and volumes.
    pub tags: Tags,
}

impl FleetRequest {
    /// Market type of the capacity reservations that the templates target; `None` for ordinary ones, and without any.
    #[must_use]
    pub fn market_type(&self) -> Option<MarketType> {
        self.launch_template_configs.iter().find_map(|config| match &config.reservation {
            Some(ReservationSpec::Target { market_type, .. }) => *market_type,
            Some(ReservationSpec::Avoid) | None => None,
        })
    }

    /// Id of the capacity reservation that a type in a zone is launched in.
    #[must_use]
    pub fn reservation_of(&self, instance_type: &str, zone: &str) -> Option<&str> {
        let is = |way: &Override| way.instance_type == instance_type && way.zone == zone;
        let config = self.launch_template_configs.iter().find(|config| config.overrides.iter().any(is))?;
        match &config.reservation {
            Some(ReservationSpec::Target { id, .. }) => Some(id),
            Some(ReservationSpec::Avoid) | None => None,
        }
    }

    /// All overrides of all templates, in order.
    pub fn overrides(&self) -> impl Iterator<Item = &Override> {
        self.launch_template_configs.iter().flat_map(|config| &config.overrides)
    }
}

/// A launch template with its overrides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchTemplateConfig {
    /// The template's name.
    pub launch_template_name: String,
    /// The template's version. Always a number, since `$Latest` could change between two sends.
    pub version: u64,
    /// Ways to launch, in order of preference.
    pub overrides: Vec<Override>,
    /// The capacity reservation that the template targets, for reserved instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationSpec>,
}

/// One combination of type, zone, subnet and image to launch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// Subnet in the zone; `None` if the template names it.
    pub subnet_id: Option<String>,
    /// Image.
    pub image_id: String,
    /// Lower is preferred: the position or the price in micro-dollars per hour. A whole number, so that it is stored
    /// exactly.
    pub priority: u64,
}

/// A single instance of a launch template, for RunInstances as a dry run. Plimsoll launches only by CreateFleet, but
/// EC2 checks the permission to run instances only here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRequest {
    /// The template's name.
    pub launch_template_name: String,
    /// The template's version.
    pub version: u64,
    /// Instance type.
    pub instance_type: String,
    /// Subnet of the first network interface.
    pub subnet_id: String,
    /// Security groups of the first network interface.
    pub security_group_ids: Vec<String>,
    /// Tags of the instance, its volumes and its network interfaces.
    pub tags: Tags,
}

/// CreateFleet's answer. Both lists may be non-empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FleetAnswer {
    /// Instances that were launched.
    pub instances: Vec<FleetInstance>,
    /// Refused offerings.
    pub errors: Vec<OfferingError>,
}

/// An instance that CreateFleet launched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FleetInstance {
    /// `i-...`.
    pub instance_id: String,
    /// Instance type.
    pub instance_type: String,
    /// Availability zone; empty if not in the answer.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Subnet; empty if not in the answer.
    pub subnet_id: String,
    /// Image; empty if not in the answer.
    pub image_id: String,
}

/// Why an offering was refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OfferingError {
    /// Instance type; empty if the error does not name one.
    pub instance_type: String,
    /// Availability zone; empty if the error does not name one.
    pub zone: String,
    /// Subnet; empty if the error does not name one.
    pub subnet_id: String,
    /// Requested capacity type.
    pub capacity_type: CapacityType,
    /// EC2's error code.
    pub code: String,
    /// EC2's message.
    pub message: String,
}

/// The placement group is in use in another zone.
const GROUP_IN_USE_CODE: &str = "InvalidPlacementGroup.InUse";

/// EC2 could not launch what was requested. If there are other errors, they name the cause.
const UNFULFILLABLE_CODE: &str = "UnfulfillableCapacity";

/// Codes that mean "no capacity" rather than "invalid request".
const CAPACITY_CODES: [&str; 10] = [
    "InsufficientInstanceCapacity",
    // A quota of the instance type, or of instances that quotas of vCPUs do not cover.
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    // The Spot price is above the On-Demand price, which is the maximum of a request without one.
    "SpotMaxPriceTooLow",
    "VcpuLimitExceeded",
    UNFULFILLABLE_CODE,
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
];

/// Codes of offerings for which the account launches too many instances at the moment.
const THROTTLED_CODES: [&str; 2] = ["RequestLimitExceeded", "RequestThrottled"];

/// EC2 failed without saying why.
const INTERNAL_CODES: [&str; 4] = ["InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"];

/// The account cannot use Spot: its service-linked role is missing and cannot be created.
const SPOT_ROLE_CODE: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";

impl OfferingError {
    /// Whether another offering, or the same one later, may succeed.
    #[must_use]
    pub fn is_capacity(&self) -> bool {
        CAPACITY_CODES.contains(&self.code.as_str()) || self.is_group_full() || self.is_not_sold()
    }

    /// Whether EC2 does not sell the offering in the zone.
    fn is_not_sold(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        let is_named = message.contains("not supported in your requested availability zone");
        self.code == "InvalidFleetConfiguration" && (is_named || message.contains("not offered"))
    }

    /// Whether the placement group takes no instance of any type in the zone: a spread group has as many as it may
    /// have, or a cluster group is in another zone. EC2 documents neither text.
    #[must_use]
    pub fn is_group_full(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        let is_spread = message.contains("spread placement group") && message.contains("limit");
        is_spread || self.code == GROUP_IN_USE_CODE
    }

    /// Whether EC2 limits the rate of launched instances. The same request may succeed later.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        THROTTLED_CODES.contains(&self.code.as_str())
    }

    /// Whether EC2 failed to launch the offering, and does not say why. It may succeed at once, or fail for hours.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        INTERNAL_CODES.contains(&self.code.as_str())
    }

    /// Whether the account cannot use Spot at all.
    #[must_use]
    pub fn is_spot_role_missing(&self) -> bool {
        self.code == SPOT_ROLE_CODE
    }

    /// Whether the error says which offering was refused.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.is_spot_role_missing() || !(self.instance_type.is_empty() || self.zone.is_empty())
    }

    /// Whether the capacity reservation of the offering has no capacity: neither the subnet nor the placement group is
    /// the cause, nor is the type not sold in the zone (spec: AWS provider section 4.8).
    #[must_use]
    pub fn is_reservation_full(&self) -> bool {
        let is_other = self.is_subnet_full() || self.is_group_full() || self.is_not_sold();
        self.capacity_type == CapacityType::Reserved && self.is_capacity() && !is_other
    }

    /// Whether the subnet has no free address.
    #[must_use]
    pub fn is_subnet_full(&self) -> bool {
        self.code == "InsufficientFreeAddressesInSubnet"
    }
}

impl FleetAnswer {
    /// The errors that may tell which offerings lack capacity. EC2 adds `UnfulfillableCapacity` to a request that it
    /// refuses for another reason, such as an invalid parameter of the node class. Other classes may use the offering.
    pub fn offering_errors(&self) -> impl Iterator<Item = &OfferingError> {
        let is_refused = self.errors.iter().any(|error| !error.is_capacity());
        self.errors.iter().filter(move |error| !is_refused || error.code != UNFULFILLABLE_CODE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_placement_group_says_nothing_of_a_capacity_reservation() {
        let is_full = |capacity_type: CapacityType, code: &str, message: &str| {
            let error = OfferingError {
                instance_type: "m5.large".to_owned(),
                zone: "us-east-1a".to_owned(),
                subnet_id: "subnet-1".to_owned(),
                capacity_type,
                code: code.to_owned(),
                message: message.to_owned(),
            };
            assert!(error.is_capacity(), "{code}");
            error.is_reservation_full()
        };
        let (reserved, spread) = (CapacityType::Reserved, "Spread placement group pg-1: limit of 7 instances");
        assert!(is_full(reserved, "ReservationCapacityExceeded", ""));
        assert!(is_full(reserved, "InsufficientInstanceCapacity", ""));
        assert!(!is_full(CapacityType::OnDemand, "InsufficientInstanceCapacity", ""));
        assert!(!is_full(reserved, "InsufficientFreeAddressesInSubnet", ""));
        assert!(!is_full(reserved, "InstanceLimitExceeded", spread));
        assert!(!is_full(reserved, "InvalidPlacementGroup.InUse", ""));
        assert!(!is_full(reserved, "InvalidFleetConfiguration", "m5.large is not offered in us-east-1a"));
    }

    #[test]
    fn quotas_are_a_lack_of_capacity_and_internal_errors_are_not() {
        for (code, is_capacity, is_internal) in [
            ("InstanceLimitExceeded", true, false),
            ("VcpuLimitExceeded", true, false),
            ("MaxSpotInstanceCountExceeded", true, false),
            ("InternalError", false, true),
            ("ServiceUnavailable", false, true),
            ("UnauthorizedOperation", false, false),
        ] {
            let error = OfferingError {
                instance_type: "m5.large".to_owned(),
                zone: "us-east-1a".to_owned(),
                subnet_id: String::new(),
                capacity_type: CapacityType::Spot,
                code: code.to_owned(),
                message: String::new(),
            };
            assert_eq!((error.is_capacity(), error.is_internal()), (is_capacity, is_internal), "{code}");
        }
    }

    #[test]
    fn what_ec2_does_not_sell_in_a_zone_is_a_lack_of_capacity() {
        let is_capacity = |code: &str, message: &str| {
            let error = OfferingError {
                instance_type: "m5.large".to_owned(),
                zone: "us-east-1e".to_owned(),
                subnet_id: "subnet-1".to_owned(),
                capacity_type: CapacityType::Spot,
                code: code.to_owned(),
                message: message.to_owned(),
            };
            error.is_capacity()
        };
        let in_zone = "Your requested instance type (m5.large) is not supported in your requested Availability Zone";
        assert!(is_capacity("InvalidFleetConfiguration", in_zone));
        assert!(is_capacity("InvalidFleetConfiguration", "The instance type m5.large is not offered in us-east-1e."));
        assert!(!is_capacity("VolumeTypeNotAvailableInZone", ""), "it concerns one node class");
        assert!(!is_capacity("InvalidFleetConfiguration", "The fleet configuration is invalid."));
        assert!(!is_capacity("InvalidParameterValue", in_zone));
    }
}
