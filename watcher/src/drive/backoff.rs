//! Pauses after failures of plan requests and Execute calls.

use plimsoll_runtime::backoff;
use std::time::Duration;
use tokio::time::Instant;

/// Pause after a failed plan request or Execute call, doubled by each further failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Pause of plans with removals after the second of them in a row that failed, doubled by each further one. Only the
/// first failure is retried at once.
const FIRST_REMOVALS_PAUSE: Duration = Duration::from_secs(1);
const MAX_REMOVALS_PAUSE: Duration = Duration::from_secs(60);

/// Backoff after consecutive failures that concern no specific action.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    pub(super) until: Option<Instant>,
}

impl Backoff {
    /// A failure during the pause has the cause of the last one: the streams of an actuator that ends break together.
    pub(super) fn failed(&mut self, now: Instant) {
        if self.until.is_some_and(|until| now < until) {
            return;
        }
        let pause = backoff::delay(FIRST_PAUSE, MAX_PAUSE, self.failures);
        *self = Self { failures: self.failures.saturating_add(1), until: Some(now + pause) };
    }
}

/// Backoff of plans with removals, which may fail although plans without removals do not.
#[derive(Debug, Default)]
pub(super) struct RemovalsBackoff {
    failures: u32,
}

impl RemovalsBackoff {
    /// Records whether a plan with removals was made. Returns for how long none is requested.
    pub(super) fn planned(&mut self, made: bool) -> Duration {
        let failures = if made { 0 } else { self.failures.saturating_add(1) };
        self.failures = failures;
        match failures.checked_sub(2) {
            Some(others) => backoff::delay(FIRST_REMOVALS_PAUSE, MAX_REMOVALS_PAUSE, others),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_with_removals_pause_from_their_second_failure_in_a_row_on() {
        let mut backoff = RemovalsBackoff::default();
        let mut pauses = |made: &[bool]| made.iter().map(|made| backoff.planned(*made).as_secs()).collect::<Vec<_>>();
        assert_eq!(pauses(&[false; 10]), [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(pauses(&[true, false, false]), [0, 0, 1]);
    }
}
