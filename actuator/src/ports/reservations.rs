//! Capacity reservations, and how a node class selects them.

use super::Tags;
pub use plimsoll_api::ec2_node_class::{InstanceMatchCriteria, ReservationType};
use plimsoll_model::time::Timestamp;

/// One selector term. All fields that are set must match; terms are alternatives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ReservationTerm {
    /// `cr-...`; no other field is set then.
    pub id: Option<String>,
    /// Owner's account.
    pub owner_id: Option<String>,
    /// Which instances may use the reservation.
    pub match_criteria: Option<InstanceMatchCriteria>,
    /// Tags; the value `*` means any value.
    pub tags: Tags,
}

/// A capacity reservation in state `active`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapacityReservation {
    /// `cr-...`.
    pub id: String,
    /// Owner's account.
    pub owner_id: String,
    /// Instance type.
    pub instance_type: String,
    /// Availability zone by name.
    pub zone: String,
    /// Operating system of its instances in EC2's words, such as `Linux/UNIX`; empty if not known.
    pub platform: String,
    /// Which instances may use the reservation.
    pub match_criteria: InstanceMatchCriteria,
    /// An ordinary reservation or a Capacity Block.
    pub kind: ReservationType,
    /// Whether its owner may take the instances back.
    pub interruptible: bool,
    /// When it ends; `None` if it has no end date.
    pub ends: Option<Timestamp>,
    /// Instances that EC2 could launch in it now.
    pub free: u32,
    /// Tags.
    pub tags: Tags,
}
