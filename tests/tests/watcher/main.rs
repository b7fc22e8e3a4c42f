//! Tests of the watcher on the in-memory API server, with a fake scheduler and a fake actuator.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what is not as it should be ends the test")]

mod actuator;
mod commit;
mod failover;
mod first_call;
mod knowing;
mod scheduler;
mod stage;
mod stream;
