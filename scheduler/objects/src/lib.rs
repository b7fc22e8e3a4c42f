//! Plans for Kubernetes objects as JSON: the gRPC service of callers that have no snapshot, and the scheduler's binary.
//!
//! The scheduler itself knows no Kubernetes. This crate turns objects into a snapshot, with the same code and the same
//! built-in catalog as `plimsoll plan`, and asks the scheduler in the same process. Its requests share the limits of
//! the open port.

mod answer;
mod lines;
mod service;

pub use answer::{MAX_PODS, plan_objects};
pub use service::run;
