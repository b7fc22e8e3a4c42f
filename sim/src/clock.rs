//! Simulation time: the clock of the services on tokio's time, so that paused time is virtual time.

use jiff::Timestamp;
use plimsoll_runtime::clock::Clock;

/// Default start of simulations: 2026-01-05T00:00:00Z, a Monday.
pub const START_SECONDS: i64 = 1_767_571_200;

/// A clock that reads the default start time now.
#[must_use]
pub fn usual() -> Clock {
    Clock::starting_at(Timestamp::from_second(START_SECONDS).unwrap_or_default())
}
