//! Client-side rate limits: one token bucket per API action, like EC2's own limits. Launches never wait for reads, and
//! EC2 need not throttle. Nominations, bindings and Events have buckets too, because nothing waits for them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// An API action with its own bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Launches instances.
    CreateFleet,
    /// Asks for a fleet as a dry run, which EC2 counts as [`Self::CreateFleet`], too.
    DryRunFleet,
    /// Asks for an instance as a dry run.
    RunInstances,
    /// Terminates instances.
    TerminateInstances,
    /// Writes tags.
    CreateTags,
    /// Looks up a launch template and creates it if it is missing.
    EnsureLaunchTemplate,
    /// Reads instances.
    DescribeInstances,
    /// Writes a pod's nominated node in Kubernetes.
    Nominate,
    /// Binds a pod to its node in Kubernetes.
    Bind,
    /// Publishes the node of a pod as an Event.
    NominatedEvent,
}

impl Action {
    /// Burst size and refill rate per second. Below EC2's limits, which are shared by the account; for nominations
    /// and bindings, about as many as kube-scheduler itself writes.
    fn limits(self) -> (u32, u32) {
        match self {
            Self::CreateFleet | Self::EnsureLaunchTemplate => (50, 5),
            Self::TerminateInstances | Self::CreateTags => (50, 10),
            // EC2's smallest bucket. Nothing urgent waits for it. A dry run asks for an instance and for a fleet.
            Self::RunInstances | Self::DryRunFleet => (5, 2),
            Self::DescribeInstances => (50, 20),
            Self::Nominate | Self::Bind => (200, 100),
            // Karpenter's. In a burst of pods, some get no Event.
            Self::NominatedEvent => (10, 5),
        }
    }

    /// How long one token takes to be refilled, and how long all tokens of the bucket take.
    fn refill(self) -> (Duration, Duration) {
        let (burst, per_second) = self.limits();
        let interval = Duration::from_secs(1) / per_second;
        (interval, interval.saturating_mul(burst))
    }
}

/// All token buckets. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RateLimiter {
    /// When each bucket will be full again.
    full_at: Arc<Mutex<BTreeMap<Action, Instant>>>,
}

impl RateLimiter {
    /// Takes a token, and waits for one if the bucket is empty. Callers are served in order. A caller that is cancelled
    /// while it waits takes none.
    pub async fn take(&self, action: Action) {
        let at = self.reserve(action, Instant::now());
        let mut reserved = ReservedToken { limiter: self, action, taken: false };
        tokio::time::sleep_until(at).await;
        reserved.taken = true;
    }

    /// Takes a token if the bucket has one.
    #[must_use]
    pub fn try_take(&self, action: Action) -> bool {
        let (now, (interval, all)) = (Instant::now(), action.refill());
        let mut full_at = self.full_at.lock();
        let slot = full_at.entry(action).or_insert(now);
        let next = (*slot).max(now) + interval;
        let is_available = next <= now + all;
        if is_available {
            *slot = next;
        }
        is_available
    }

    /// Reserves the next token and returns when it is available.
    fn reserve(&self, action: Action, now: Instant) -> Instant {
        let (interval, all) = action.refill();
        let mut full_at = self.full_at.lock();
        let slot = full_at.entry(action).or_insert(now);
        *slot = (*slot).max(now) + interval;
        // The tokens of a full bucket cost no wait.
        slot.checked_sub(all).map_or(now, |at| at.max(now))
    }
}

/// A token that its caller waits for.
struct ReservedToken<'a> {
    limiter: &'a RateLimiter,
    action: Action,
    taken: bool,
}

impl Drop for ReservedToken<'_> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let (interval, _) = self.action.refill();
        if let Some(slot) = self.limiter.full_at.lock().get_mut(&self.action) {
            *slot = slot.checked_sub(interval).unwrap_or(*slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_costs_no_wait_and_further_calls_are_rate_limited() {
        let (limiter, now) = (RateLimiter::default(), Instant::now());
        let waits: Vec<Duration> = (0..60).map(|_| limiter.reserve(Action::CreateFleet, now) - now).collect();
        assert!(waits.iter().take(50).all(Duration::is_zero));
        assert_eq!(waits[50], Duration::from_millis(200));
        assert_eq!(waits[59], Duration::from_secs(2));
        assert_eq!(limiter.reserve(Action::CreateTags, now), now, "other actions have their own");
        let later = now + Duration::from_secs(12);
        assert_eq!(limiter.reserve(Action::CreateFleet, later), later, "the bucket fills again");
    }

    /// Ten Events at once, and five a second.
    #[tokio::test(start_paused = true)]
    async fn a_token_is_taken_only_if_there_is_one() {
        let limiter = RateLimiter::default();
        let taken = || (0..20).filter(|_| limiter.try_take(Action::NominatedEvent)).count();
        assert_eq!((taken(), taken()), (10, 0));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(taken(), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(), 10, "no more than the bucket holds");
    }

    /// Two dry runs a second after the first five.
    #[tokio::test(start_paused = true)]
    async fn callers_wait_for_their_tokens() {
        let (limiter, start) = (RateLimiter::default(), Instant::now());
        let mut times = Vec::new();
        for _ in 0..7 {
            limiter.take(Action::RunInstances).await;
            times.push(start.elapsed().as_millis() / 100);
        }
        assert_eq!(times, [0, 0, 0, 0, 0, 5, 10], "in tenths of a second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_cancelled_while_it_waits_takes_no_token() {
        let (limiter, start) = (RateLimiter::default(), Instant::now());
        for _ in 0..5 {
            limiter.take(Action::RunInstances).await;
        }
        for _ in 0..10 {
            let waiting = limiter.take(Action::RunInstances);
            assert!(tokio::time::timeout(Duration::from_millis(10), waiting).await.is_err());
        }
        limiter.take(Action::RunInstances).await;
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }
}
