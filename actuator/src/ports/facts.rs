//! What EC2 says about instance types, where they are offered, and for how much.

pub use plimsoll_catalog::InstanceTypeFacts;
use plimsoll_model::money::MicroUsdPerHour;

/// A type is offered in a zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeOffering {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone by name.
    pub zone: String,
}

/// The latest Spot price of a type in a zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpotPrice {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// Price.
    pub price: MicroUsdPerHour,
}
