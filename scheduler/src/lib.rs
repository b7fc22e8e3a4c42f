//! The scheduler service. It computes plans from the data of a session or request, keeps no other state, and calls no
//! other service.
//!
//! [`answer`] contains the pure functions from request to response, for callers in this process and over gRPC.
//! [`session`] keeps the mirror of a cluster that sends deltas instead of full snapshots. [`service`] serves both on
//! gRPC ports.

#![deny(clippy::indexing_slicing)]

pub mod answer;
pub mod args;
pub mod catalogs;
mod decoded_size;
pub mod fragments;
pub mod metrics;
#[cfg(test)]
mod samples;
pub mod server;
pub mod service;
pub mod session;
mod solve;

pub use solve::{PlanFailure, PlanFn};
