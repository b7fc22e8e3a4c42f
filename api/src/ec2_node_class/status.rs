//! Status of a node class.

use super::InstanceMatchCriteria;
use crate::{Requirement, null_default, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Observed state of the node class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// Selected subnets, those with most free addresses first.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
    /// Selected security groups, sorted by id.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// Selected capacity reservations, sorted by id.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Selected placement group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<PlacementGroup>,
    /// Selected images, the newest first. An instance uses the first image whose requirements its instance type meets.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// Name of the IAM instance profile of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Conditions of the node class.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::plain_conditions")]
    pub conditions: Vec<Condition>,
}

/// A selected subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// Id of the subnet.
    pub id: String,
    /// Availability zone of the subnet.
    pub zone: String,
    /// Id of the subnet's availability zone, which is the same in every AWS account.
    #[serde(rename = "zoneID", default, skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// A selected security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroup {
    /// Id of the security group.
    pub id: String,
    /// Name of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A selected image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ami {
    /// Id of the image.
    pub id: String,
    /// Name of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the owner has deprecated the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// Requirements on the labels of instance types that the image supports.
    #[schemars(schema_with = "schema::image_requirements")]
    pub requirements: Vec<Requirement>,
}

/// A selected capacity reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Id of the capacity reservation.
    #[schemars(regex(pattern = schema::pattern::CAPACITY_RESERVATION))]
    pub id: String,
    /// Availability zone of the reservation.
    pub availability_zone: String,
    /// When the reservation ends. Unset: it has no end date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub end_time: Option<Time>,
    /// Match criteria of the reservation: open or targeted.
    pub instance_match_criteria: InstanceMatchCriteria,
    /// Instance type of the reservation.
    pub instance_type: String,
    /// AWS account that owns the reservation.
    #[serde(rename = "ownerID")]
    #[schemars(regex(pattern = schema::pattern::ACCOUNT))]
    pub owner_id: String,
    /// Type of the reservation: default or capacity-block.
    #[serde(default)]
    pub reservation_type: ReservationType,
    /// Whether EC2 may interrupt instances of the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// State of the reservation: active or expiring.
    #[serde(default)]
    pub state: ReservationState,
}

/// Type of a capacity reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationType {
    /// An On-Demand Capacity Reservation.
    #[default]
    Default,
    /// A Capacity Block, which is paid in advance for a fixed period.
    CapacityBlock,
}

/// State of a capacity reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReservationState {
    /// The reservation does not end soon.
    #[default]
    Active,
    /// The reservation ends soon.
    Expiring,
}

/// A selected placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementGroup {
    /// Id of the placement group.
    #[schemars(regex(pattern = schema::pattern::PLACEMENT_GROUP))]
    pub id: String,
    /// Name of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Placement strategy: cluster, partition or spread.
    pub strategy: PlacementStrategy,
    /// Number of partitions in each zone; only with the strategy partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub partition_count: Option<i32>,
}

/// How the instances of a placement group are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementStrategy {
    /// Close together, in one zone.
    Cluster,
    /// In partitions that share no hardware with each other.
    Partition,
    /// Each on hardware of its own.
    Spread,
}

impl PlacementStrategy {
    /// All strategies.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Partition, Self::Spread];

    /// EC2's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Partition => "partition",
            Self::Spread => "spread",
        }
    }
}
