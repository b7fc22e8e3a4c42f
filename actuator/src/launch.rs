//! Launching nodes (safety rules 1 to 8). A launch goes through six types, in this order:
//!
//! 1. [`Launch`](plimsoll_model::plan::Launch): what the plan proposes.
//! 2. [`Admitted`]: the launch as the live pool and node class allow it, admitted by the ledger. It keeps the pool, the
//!    node class and the catalog that it was admitted with, so no later step looks them up again.
//! 3. [`Purchase`](purchase::Purchase): what is requested of EC2, without the names of a group. Launches with equal
//!    purchases share a group.
//! 4. [`LaunchGroup`]: the NodeClaims that a single CreateFleet request launches, each built once.
//! 5. [`Attempt`](attempt::Attempt): a numbered try of the group, written to the cluster before it is sent.
//! 6. [`FleetRequest`](crate::ports::FleetRequest): the request of an attempt, sent byte for byte as it was written.

pub mod admit;
mod admitted;
pub mod attempt;
pub mod build;
pub mod create;
mod group;
pub mod launcher;
pub mod matching;
pub mod preview;
pub mod purchase;
pub mod record;
pub mod replacement;
pub mod results;
pub mod run;
pub mod standalone;
mod stored;
pub mod tagging;
pub mod write;

pub use admitted::Admitted;
pub use group::LaunchGroup;
pub use launcher::{Groups, LaunchQueue};
pub use replacement::{ReplacementResult, request_replacement};
