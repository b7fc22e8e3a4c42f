//! Actions that were rejected or failed are tried again, later each time.

use plimsoll_model::identity::ActionId;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Pause after the second failure in a row; the first is followed at once, on the newer snapshot that its cause brings.
const FIRST: Duration = Duration::from_millis(200);

/// Longest pause: what stands in an action's way for so long will be there a little longer.
const LONGEST: Duration = Duration::from_secs(30);

/// How long a failure is remembered after its pause; an action that comes up again later begins anew.
const MEMORY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
struct Failure {
    count: u32,
    until: Instant,
}

/// Failures in a row, by action. An action's id says what it is about: another plan for other pods has another one.
#[derive(Debug, Clone, Default)]
pub struct Retries(BTreeMap<ActionId, Failure>);

impl Retries {
    /// No failures.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The action was rejected or failed.
    pub fn failed(&mut self, action: &ActionId, now: Instant) {
        self.0.retain(|_, failure| now < failure.until + MEMORY);
        let failure = self.0.entry(action.clone()).or_insert(Failure { count: 0, until: now });
        let pause = match failure.count {
            0 => Duration::ZERO,
            count => FIRST.saturating_mul(2_u32.saturating_pow(count - 1)).min(LONGEST),
        };
        *failure = Failure { count: failure.count.saturating_add(1), until: now + pause };
    }

    /// The action went well.
    pub fn succeeded(&mut self, action: &ActionId) {
        self.0.remove(action);
    }

    /// Whether the action failed and has not gone well since.
    #[must_use]
    pub fn has(&self, action: &ActionId) -> bool {
        self.0.contains_key(action)
    }

    /// Until when the action is left alone, if it is.
    #[must_use]
    pub fn until(&self, action: &ActionId, now: Instant) -> Option<Instant> {
        self.0.get(action).map(|failure| failure.until).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_is_at_once_and_later_ones_wait_longer_up_to_a_bound() {
        let (mut retries, action, start) = (Retries::new(), ActionId::from("a"), Instant::now());
        let mut pause = || {
            retries.failed(&action, start);
            retries.until(&action, start).map_or(0, |until| (until - start).as_millis())
        };
        let pauses: Vec<_> = std::iter::repeat_with(&mut pause).take(11).collect();
        assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(retries.until(&ActionId::from("b"), start), None);
        retries.succeeded(&action);
        assert_eq!(retries.until(&action, start), None);
    }

    #[test]
    fn old_failures_are_forgotten() {
        let (mut retries, start) = (Retries::new(), Instant::now());
        retries.failed(&ActionId::from("a"), start);
        retries.failed(&ActionId::from("b"), start + MEMORY + FIRST);
        assert_eq!(retries.0.len(), 1);
    }
}
