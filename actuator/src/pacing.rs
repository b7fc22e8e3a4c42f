//! Pauses between passes over all objects, whose number has no bound, and loops that end when the actuator stops.

use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A pause is this many times as long as the pass before it, so that passes take at most a fifth of a core.
const PAUSE_FACTOR: u32 = 4;
/// Maximum pause: the reaction to a change is this late at most.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Pause after a pass that took this long. In a large cluster something changes all the time, so that without a pause
/// the passes would take a whole core.
pub(crate) fn pause_after(pass: Duration) -> Duration {
    pass.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE)
}

/// Runs `work` to its end. Returns `None`, without running it any further, once `stop` is cancelled.
pub(crate) async fn until<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        result = work => Some(result),
    }
}

/// Waits for `interval`. Returns false, without waiting any longer, once `stop` is cancelled.
pub(crate) async fn interval_passed(stop: &CancellationToken, interval: Duration) -> bool {
    until(stop, tokio::time::sleep(interval)).await.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_a_fifth_of_a_core_at_most_and_a_change_never_waits_long() {
        assert_eq!(pause_after(Duration::ZERO), Duration::ZERO);
        assert_eq!(pause_after(Duration::from_millis(20)), Duration::from_millis(80));
        assert_eq!(pause_after(Duration::from_secs(3)), MAX_PAUSE);
    }
}
