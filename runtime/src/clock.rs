//! The one source of wall time.
//!
//! A [`Clock`] is a wall-clock reading plus what the monotonic clock has counted since. On tokio's paused time it is
//! therefore virtual, and a step of the machine's clock cannot make time go backwards within a process.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall time that advances with [`tokio::time::Instant`]. Cheap to copy; copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    started: Instant,
}

impl Clock {
    /// Reads the machine's wall clock once, here, and counts on from it.
    #[must_use]
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// A clock that shows `base` now. For simulations and tests.
    #[must_use]
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, started: Instant::now() }
    }

    /// The present wall time. Stays at the last representable moment rather than overflow.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        SignedDuration::try_from(self.started.elapsed())
            .ok()
            .and_then(|elapsed| self.base.checked_add(elapsed).ok())
            .unwrap_or(Timestamp::MAX)
    }

    /// The present wall time in milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_millis(&self) -> i64 {
        self.now().as_millisecond()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn advances_with_virtual_time_only() {
        let clock = Clock::starting_at(Timestamp::from_millisecond(1_000).unwrap());
        assert_eq!(clock.now_millis(), 1_000);
        tokio::time::advance(Duration::from_millis(90_500)).await;
        assert_eq!(clock.now_millis(), 91_500);
    }

    #[tokio::test(start_paused = true)]
    async fn stops_at_the_end_of_time() {
        let clock = Clock::starting_at(Timestamp::MAX);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
