//! The only source of wall-clock time.
//!
//! A [`Clock`] is a wall-clock reading plus the elapsed monotonic time. On tokio's paused time it is therefore virtual,
//! and a step of the machine's clock cannot make time go backwards within a process. The system's clock follows forward
//! steps that last: a process may start before the time is synchronized, and the monotonic clock does not advance while
//! a machine is suspended. A step that is soon taken back is an error, which would end grace periods.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Forward steps below this value are ignored until they add up: the two clocks drift by less than this within a day.
const STEP_MS: i64 = 1_000;

/// How long the machine's clock must be ahead before a step counts.
const STEP_AGE: Duration = Duration::from_secs(30);

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
    OfMachine(&'static Mutex<MachineSteps>),
    /// A simulation makes the steps.
    Simulated(&'static AtomicI64),
}

/// Forward steps of the machine's clock, in milliseconds.
#[derive(Debug, Default)]
struct MachineSteps {
    /// The steps that count. Never decreases.
    counted: i64,
    /// Since when the machine's clock has been further ahead, and by how much at least.
    ahead: Option<(Instant, i64)>,
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
            Steps::OfMachine(steps) => steps.lock().follow(counted, Timestamp::now(), Instant::now()),
            Steps::Simulated(steps) => steps.load(Ordering::Relaxed),
        };
        counted.checked_add(SignedDuration::from_millis(ahead)).unwrap_or(Timestamp::MAX)
    }

    /// What the machine's clock shows, with all its steps at once; `None` in simulations and tests.
    #[must_use]
    pub fn of_machine(&self) -> Option<Timestamp> {
        matches!(self.steps, Steps::OfMachine(_)).then(Timestamp::now)
    }

    /// Current time in milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_millis(&self) -> i64 {
        self.now().as_millisecond()
    }
}

impl MachineSteps {
    /// Milliseconds to add to `time`, increased if `wall` has been further ahead for [`STEP_AGE`].
    fn follow(&mut self, time: Timestamp, wall: Timestamp, now: Instant) -> i64 {
        let ahead = wall.as_millisecond().saturating_sub(time.as_millisecond());
        if ahead.saturating_sub(self.counted) < STEP_MS {
            self.ahead = None;
            return self.counted;
        }
        let (since, least) = self.ahead.map_or((now, ahead), |(since, least)| (since, least.min(ahead)));
        self.ahead = Some((since, least));
        if now.saturating_duration_since(since) >= STEP_AGE {
            (self.counted, self.ahead) = (least, None);
        }
        self.counted
    }
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
    fn follows_forward_steps_that_last_and_no_backward_ones() {
        let began = Instant::now();
        let mut steps = MachineSteps::default();
        // The machine's clock is ahead by this much, this many seconds after the beginning.
        let mut follow = |seconds: i64, ahead: i64| {
            let time = Timestamp::from_second(1_000 + seconds).unwrap();
            let wall = time.checked_add(SignedDuration::from_millis(ahead)).unwrap();
            steps.follow(time, wall, began + Duration::from_secs(seconds.unsigned_abs()))
        };
        assert_eq!(follow(0, 999), 0, "clocks drift");
        assert_eq!(follow(1, 60_000), 0, "it may be an error");
        assert_eq!(follow(30, 60_000), 0);
        assert_eq!(follow(31, 60_500), 60_000, "the machine was paused for a minute");
        assert_eq!(follow(32, 0), 60_000, "the step was taken back");
        assert_eq!(follow(33, 60_999), 60_000);
        // A day, for 20 s.
        assert_eq!(follow(40, 86_400_000), 60_000);
        assert_eq!(follow(60, 0), 60_000);
        assert_eq!(follow(80, 86_400_000), 60_000, "an error of its own");
        assert_eq!(follow(109, 61_000), 60_000);
        assert_eq!(follow(110, 86_400_000), 61_000, "it was ahead by a second all the time");
    }

    #[tokio::test(start_paused = true)]
    async fn stops_at_the_end_of_time() {
        let clock = Clock::starting_at(Timestamp::MAX);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
