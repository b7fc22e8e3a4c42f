//! What the three services share and none of them should build twice: time, shutdown, telemetry, the admin ports,
//! serving and calling gRPC over mutual TLS, and leader election.
//!
//! Nothing here knows a pod, a node or a plan.

pub mod admin;
pub mod args;
pub mod client_pool;
pub mod clock;
pub mod connection;
pub mod lease;
pub mod memory;
pub mod metrics;
pub mod rpc;
pub mod serve;
pub mod shutdown;
pub mod signal;
pub mod telemetry;
pub mod tls;
pub mod workers;
