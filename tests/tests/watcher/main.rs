//! The watcher on the in-memory API server, between a scheduler and an actuator that are made for the test: what it asks
//! them, when, and what it does not ask them.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what is not as it should be ends the test")]

mod actuator;
mod commit;
mod failover;
mod first_call;
mod knowing;
mod scheduler;
mod stage;
mod stream;
