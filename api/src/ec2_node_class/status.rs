//! Status of a node class.

use super::InstanceMatchCriteria;
use crate::{Requirement, null_default, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a node class comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// Subnets that were selected, the one with most free addresses first.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
    /// Security groups that were selected, by id.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// Capacity reservations that were selected, by id.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// The placement group that was selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<PlacementGroup>,
    /// Images that were selected, the newest first. An instance gets the first whose requirements its type meets.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// IAM instance profile of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// What is known about the node class.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::plain_conditions")]
    pub conditions: Vec<Condition>,
}

/// A subnet that was selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// The subnet.
    pub id: String,
    /// Its zone.
    pub zone: String,
    /// Its zone, by the id that is the same in every account.
    #[serde(rename = "zoneID", default, skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// A security group that was selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroup {
    /// The security group.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image that was selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ami {
    /// The image.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its owner advises against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// Conditions on the labels of instance types that it runs on.
    #[schemars(schema_with = "schema::image_requirements")]
    pub requirements: Vec<Requirement>,
}

/// A capacity reservation that was selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// The reservation.
    #[schemars(regex(pattern = schema::pattern::CAPACITY_RESERVATION))]
    pub id: String,
    /// Zone that it is in.
    pub availability_zone: String,
    /// When it ends; without it, when its owner says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub end_time: Option<Time>,
    /// Which instances use it.
    pub instance_match_criteria: InstanceMatchCriteria,
    /// Instance type that it is for.
    pub instance_type: String,
    /// AWS account that owns it.
    #[serde(rename = "ownerID")]
    #[schemars(regex(pattern = schema::pattern::ACCOUNT))]
    pub owner_id: String,
    /// An ordinary reservation or a capacity block.
    #[serde(default)]
    pub reservation_type: ReservationType,
    /// Whether EC2 may take the instances back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// Whether it ends soon.
    #[serde(default)]
    pub state: ReservationState,
}

/// Kind of a capacity reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationType {
    /// An ordinary one.
    #[default]
    Default,
    /// A capacity block: for a time that was paid for.
    CapacityBlock,
}

/// Whether a capacity reservation ends soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReservationState {
    /// It does not.
    #[default]
    Active,
    /// It does.
    Expiring,
}

/// A placement group that was selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementGroup {
    /// The placement group.
    #[schemars(regex(pattern = schema::pattern::PLACEMENT_GROUP))]
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How its instances are placed.
    pub strategy: PlacementStrategy,
    /// Number of its partitions in each zone; only of the strategy partition.
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
