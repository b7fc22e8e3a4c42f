//! Tests of launches in the actuator: each plan over gRPC leads to exactly one instance and one launched claim,
//! whatever fails in between. The test acts as the watcher and writes the plans.
#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod claims;
mod crashes;
mod deleted;
mod drivers;
mod fixture;
mod groups;
mod overlays;
mod plans;
mod pods;
mod probation;
mod queue;
mod quotas;
mod subnets;
mod tags;
mod templates;
mod unanswered;
mod zonal_shift;
