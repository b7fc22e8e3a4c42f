//! Shared infrastructure of the three services: time, shutdown, telemetry, the admin ports, gRPC servers and clients
//! with mutual TLS, and leader election.
//!
//! This crate does not depend on pods, nodes or plans.

pub mod admin;
pub mod args;
pub mod backoff;
pub mod client_pool;
pub mod clock;
pub mod cluster_access;
pub mod connection;
mod connection_age;
pub mod lease;
pub mod memory;
pub mod metrics;
mod peer_limit;
pub mod program;
pub mod request_body;
pub mod rpc;
pub mod serve;
pub mod shutdown;
pub mod signal;
pub mod telemetry;
pub mod tls;
pub mod workers;
