//! Simulation time: calendar time on tokio's clock, so that paused time is virtual time.

use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use tokio::time::Instant;

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Default start of simulations: 2026-01-05T00:00:00Z, a Monday.
pub const START_SECONDS: i64 = 1_767_571_200;

/// A clock that reads `start` now and advances with tokio's time.
#[must_use]
pub fn from(start: Timestamp) -> Clock {
    let origin = Instant::now();
    Arc::new(move || {
        let passed = SignedDuration::try_from(origin.elapsed()).unwrap_or(SignedDuration::MAX);
        start.checked_add(passed).unwrap_or(Timestamp::MAX)
    })
}

/// A clock that reads the default start time now.
#[must_use]
pub fn usual() -> Clock {
    from(Timestamp::from_second(START_SECONDS).unwrap_or_default())
}
