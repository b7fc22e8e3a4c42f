//! EC2 facts: instance types, where they are offered, and prices.

pub use plimsoll_catalog::InstanceTypeFacts;
use plimsoll_model::money::MicroUsdPerHour;

/// A type that is offered in a zone.
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
