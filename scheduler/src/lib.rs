//! The scheduler: answers with plans, keeps nothing but what a session or a request brings, and talks to nobody.
//!
//! [`answer`] is the pure function from a request to its answer, in this process as over gRPC. [`session`] is the same for
//! a cluster that sends changes instead of whole snapshots. [`service`] puts both on ports.

pub mod answer;
pub mod args;
pub mod catalogs;
pub mod fragments;
pub mod metrics;
#[cfg(test)]
mod samples;
pub mod server;
pub mod service;
pub mod session;
mod solve;
