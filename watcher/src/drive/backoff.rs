//! Pauses after failures of plan requests and Execute calls.

use plimsoll_runtime::backoff;
use std::time::Duration;
use tokio::time::Instant;

/// Pause after a failed plan request or Execute call, doubled by each further failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Backoff after consecutive failures that concern no specific action.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    pub(super) until: Option<Instant>,
}

impl Backoff {
    pub(super) fn failed(&mut self, now: Instant) {
        let pause = backoff::delay(FIRST_PAUSE, MAX_PAUSE, self.failures);
        *self = Self { failures: self.failures.saturating_add(1), until: Some(now + pause) };
    }
}
