//! Keeps the instance of a drained node for as long as its NodePool wants: load balancers may take longer to deregister
//! the node than its pods take to end.

use super::{POLL_INTERVAL, Stage, TerminationFlow, condition_of};
use crate::io::WriteError;
use jiff::{SignedDuration, Timestamp};
use plimsoll_api::condition::Status;
use plimsoll_api::condition::node_claim::{DRAINED, INSTANCE_TERMINATING};
use plimsoll_snapshot::termination_delay;
use std::time::Duration;

/// Reason of the condition InstanceTerminating meanwhile.
const TERMINATION_DELAY: &str = "TerminationDelay";

impl TerminationFlow<'_> {
    /// Waits until the delay of the NodePool has passed since the drain, at most until the deadline. The condition
    /// Drained has the time of the drain, so that another leader waits no longer.
    pub(super) async fn outlive_drain(&self, deadline: Option<Timestamp>) -> Result<Stage, WriteError> {
        let (deps, claim) = (self.deps, &*self.subject.claim);
        let pool = deps.stores.pools.get(claim.node_pool());
        // An invalid delay is in the condition of the NodePool.
        let delay = pool.and_then(|pool| termination_delay(&pool.metadata).ok()).unwrap_or_default();
        let is_true = |name: &str| condition_of(claim, name).filter(|(status, _)| status == "True");
        let drained = is_true(DRAINED).map(|(_, since)| since);
        // A Node that has never registered was not drained, and no load balancer had it. That of a drained claim may be
        // gone, or the watch does not show it.
        let is_unregistered = drained.is_none() && self.registered().is_empty();
        if delay.is_zero() || is_unregistered || is_true(INSTANCE_TERMINATING).is_some() {
            return Ok(Stage::Done);
        }
        let now = deps.clock.now();
        let deleted = claim.metadata.deletion_timestamp.as_ref().map_or(now, |at| at.0);
        let until = kept_until(drained, deleted, delay, now);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        if until <= now {
            return Ok(Stage::Done);
        }
        let message = format!("the instance is terminated {delay:?} after the drain");
        self.set(INSTANCE_TERMINATING, Status::False, TERMINATION_DELAY, &message).await?;
        Ok(Stage::Wait(Duration::try_from(until.duration_since(now)).unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL)))
    }
}

/// When an instance may be terminated. `drained` is unknown while the watch cache does not show the end of the drain.
fn kept_until(drained: Option<Timestamp>, deleted: Timestamp, delay: Duration, now: Timestamp) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    let since = match drained {
        // The clock of a former leader was far ahead. Instead, that of the API server counts. A clock that was a little
        // ahead makes the delay a little longer. The deletion may be long ago, so that there would be no delay.
        Some(since) if since > now.saturating_add(delay).unwrap_or(Timestamp::MAX) => deleted,
        Some(since) => since,
        None => now,
    };
    since.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_begins_with_the_end_of_the_drain() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let until = |drained: Option<i64>| {
            let until = kept_until(drained.map(at), at(1000), Duration::from_secs(300), at(1200));
            until.as_second()
        };
        assert_eq!(until(Some(1100)), 1400);
        assert_eq!(until(Some(1200)), 1500);
        assert_eq!(until(None), 1500, "the watch lags");
        assert_eq!(until(Some(1201)), 1501, "the clock of a former leader was a little ahead");
        assert_eq!(until(Some(1500)), 1800, "it was ahead by the delay");
        assert_eq!(until(Some(1501)), 1300, "it was further ahead");
    }
}
