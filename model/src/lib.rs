//! The domain model that all Plimsoll crates share: quantities, resources, requirements on node labels, taints, the
//! catalog, the snapshot that a scheduler receives and the plan it returns.
//!
//! The crate uses no clock, I/O, environment or randomness, and never iterates over hash maps, so that results are
//! deterministic.

#![deny(clippy::indexing_slicing)]

pub mod catalog;
pub mod costs;
pub mod disruption;
pub mod execution;
pub mod identity;
pub mod index;
pub mod money;
pub mod names;
pub mod overlay;
pub mod plan;
pub mod quantity;
pub mod requirements;
pub mod resources;
pub mod similar;
pub mod snapshot;
pub mod taints;
pub mod time;
