//! The only source of wall-clock time.
//!
//! A [`Clock`] is a wall-clock reading plus the elapsed monotonic time. On tokio's paused time it is therefore virtual,
//! and a step of the machine's clock cannot make time go backwards within a process. The system's clock follows forward
//! steps: a process may start before the time is synchronized, and the monotonic clock does not advance while a machine
//! is suspended.

use jiff::{SignedDuration, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::time::Instant;

/// Forward steps below this value are ignored until they add up: the two clocks drift by less than this within a day.
const STEP_MS: i64 = 1_000;

/// Wall-clock time that advances with [`tokio::time::Instant`]. Cheap to copy; copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    started: Instant,
    steps: Steps,
}

/// Where a clock finds its steps, in milliseconds in total.
#[derive(Clone, Copy, Debug)]
enum Steps {
    None,
    /// Forward steps of the machine's clock so far.
    OfMachine(&'static AtomicI64),
    /// A simulation makes the steps.
    Simulated(&'static AtomicI64),
}

impl Clock {
    /// The machine's clock, without backward steps. Call once per process.
    #[must_use]
    pub fn system() -> Self {
        // Leaked so that the clock is `Copy`; a process has only one.
        Self { steps: Steps::OfMachine(Box::leak(Box::default())), ..Self::starting_at(Timestamp::now()) }
    }

    /// A clock that reads `base` now, for simulations and tests.
    #[must_use]
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, started: Instant::now(), steps: Steps::None }
    }

    /// A clock that reads `base` now, and is ahead of it by the milliseconds in `steps`, which must not decrease.
    #[must_use]
    pub fn with_steps(base: Timestamp, steps: &'static AtomicI64) -> Self {
        Self { steps: Steps::Simulated(steps), ..Self::starting_at(base) }
    }

    /// Current time. Saturates at the last representable time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let counted = SignedDuration::try_from(self.started.elapsed())
            .ok()
            .and_then(|elapsed| self.base.checked_add(elapsed).ok())
            .unwrap_or(Timestamp::MAX);
        let ahead = match self.steps {
            Steps::None => return counted,
            Steps::OfMachine(stepped) => follow(stepped, counted, Timestamp::now()),
            Steps::Simulated(steps) => steps.load(Ordering::Relaxed),
        };
        counted.checked_add(SignedDuration::from_millis(ahead)).unwrap_or(Timestamp::MAX)
    }

    /// Current time in milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_millis(&self) -> i64 {
        self.now().as_millisecond()
    }
}

/// Milliseconds to add to `counted`, increased if `wall` is further ahead. Never decreases.
fn follow(stepped: &AtomicI64, counted: Timestamp, wall: Timestamp) -> i64 {
    let ahead = wall.as_millisecond().saturating_sub(counted.as_millisecond());
    let known = stepped.load(Ordering::Relaxed);
    if ahead.saturating_sub(known) < STEP_MS { known } else { stepped.fetch_max(ahead, Ordering::Relaxed).max(ahead) }
}

/// Waits until `at`, or for ever if it is `None`.
pub async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
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
    async fn a_simulation_steps_a_clock() {
        static STEPS: AtomicI64 = AtomicI64::new(0);
        let clock = Clock::with_steps(Timestamp::from_millisecond(1_000).unwrap(), &STEPS);
        assert_eq!(clock.now_millis(), 1_000);
        STEPS.store(60_000, Ordering::Relaxed);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(clock.now_millis(), 61_500);
    }

    #[test]
    fn follows_forward_steps_and_no_backward_ones() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        let stepped = AtomicI64::default();
        assert_eq!(follow(&stepped, at(1_000), at(1_999)), 0, "clocks drift");
        assert_eq!(follow(&stepped, at(1_000), at(61_000)), 60_000, "the machine was paused for a minute");
        assert_eq!(follow(&stepped, at(2_000), at(2_000)), 60_000, "the step was taken back");
        assert_eq!(follow(&stepped, at(2_000), at(62_500)), 60_000);
        assert_eq!(follow(&stepped, at(2_000), at(63_000)), 61_000);
    }

    #[tokio::test(start_paused = true)]
    async fn stops_at_the_end_of_time() {
        let clock = Clock::starting_at(Timestamp::MAX);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
