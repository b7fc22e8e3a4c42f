//! The vocabulary that Plimsoll's rooms share: quantities, resources, the algebra of requirements, taints, the catalog,
//! the snapshot that a scheduler is asked about and the plan it answers with.
//!
//! Pure: no clock, no IO, no environment, no randomness, no iteration over hash maps.

pub mod catalog;
pub mod costs;
pub mod execution;
pub mod identity;
pub mod money;
pub mod names;
pub mod overlay;
pub mod plan;
pub mod quantity;
pub mod requirements;
pub mod resources;
pub mod snapshot;
pub mod taints;
pub mod time;
