//! Tests of the watcher on the in-memory API server, with a fake scheduler and a fake actuator.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod actuator;
mod commit;
mod executions;
mod failover;
mod first_call;
mod fixture;
mod knowing;
mod optional_kinds;
mod plans;
mod scheduler;
mod stream;
mod watches;
