//! The launch path of the actuator alone: a plan over gRPC in, an instance and a launched claim out, exactly one each,
//! whatever happens in between. The watcher is the test itself; the scheduler's part is written by hand.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot be had ends the test")]

mod crashes;
mod plans;
mod stage;
mod templates;
mod unanswered;
