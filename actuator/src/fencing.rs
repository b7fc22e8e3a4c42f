//! The fence before every side effect (safety rules 16 and 20): the lease must outlive the call, and Karpenter must not
//! be active. [`crate::io`] sends every write and every mutating call through it.

use plimsoll_runtime::lease::LeaseGuard;
use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Total timeout of a Kubernetes API call, retries included.
pub const CLUSTER_CALL: Duration = Duration::from_secs(4);
/// Total timeout of a cloud call, retries included. CreateFleet needs some seconds. A lease of 15 s that was just
/// renewed outlives the call and one missed renewal.
pub const CLOUD_CALL: Duration = Duration::from_secs(8);
/// The longest timeout. A new leader waits this long in addition to the old lease.
pub const LONGEST_CALL: Duration = CLOUD_CALL;

/// Why a side effect may not start, or did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// The lease is lost, or expires before the call would end.
    #[error("not the leader, or the lease expires before the call would end")]
    NotLeader,
    /// Another autoscaler is active.
    #[error("paused: {0}")]
    Paused(String),
    /// Calls of a former leader may still take effect.
    #[error("calls of the former leader may still take effect")]
    Quarantine,
    /// The call timed out: it may have taken effect.
    #[error("no response within {0:?}, the call may have taken effect")]
    TimedOut(Duration),
}

/// The right to cause side effects during one term of leadership. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Fence {
    guard: LeaseGuard,
    epoch: u64,
    quarantine_until: Instant,
    pause: watch::Receiver<Option<String>>,
}

impl Fence {
    /// Creates the fence of a term. `highest` is the highest epoch on any claim; `pause` holds the reason for a pause
    /// of all writes.
    ///
    /// A Lease that was deleted and created again counts its transitions from 0. The claims then show that there was a
    /// leader before: the epoch continues above the highest one, and the fence waits for that leader's lease and last
    /// call.
    #[must_use]
    pub fn new(guard: LeaseGuard, highest: Option<u64>, pause: watch::Receiver<Option<String>>) -> Self {
        let epoch = highest.map_or(guard.epoch(), |highest| guard.epoch().max(highest.saturating_add(1)));
        let led_before = guard.is_first_known() && highest.is_some();
        let quarantine_until = if led_before { guard.unknown_leader_until() } else { guard.quarantine_until() };
        Self { guard, epoch, quarantine_until, pause }
    }

    /// The epoch: the lease's transitions, or more. Increases with every leader, even if the Lease is deleted and
    /// created again.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes the epoch into the Lease, and waits for that. Until a claim has this epoch, only the Lease tells the next
    /// leader about it. Does not return if the lease is lost before. Returns whether it had to wait. An epoch above
    /// 2^30 is not written.
    pub async fn record_epoch(&self) -> bool {
        self.guard.raise_epoch(self.epoch).await
    }

    /// The reason why writes are paused, if they are.
    #[must_use]
    pub fn paused(&self) -> Option<String> {
        self.pause.borrow().clone()
    }

    /// Resolves at the next change of [`Fence::paused`]; never, once the sender is dropped.
    pub async fn pause_changed(&mut self) {
        if self.pause.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// A token that is cancelled when the term ends.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.guard.lost()
    }

    /// Checks that a side effect with timeout `deadline` may start now.
    ///
    /// # Errors
    /// Why the side effect may not start.
    pub fn check(&self, deadline: Duration) -> Result<(), NotAllowed> {
        if let Some(reason) = self.paused() {
            return Err(NotAllowed::Paused(reason));
        }
        if self.guard.outlives(deadline) { Ok(()) } else { Err(NotAllowed::NotLeader) }
    }

    /// Checks that new actions may be admitted: [`Fence::check`] passes, and the former leader's last call is over.
    ///
    /// # Errors
    /// Why nothing may be admitted.
    pub fn check_admission(&self) -> Result<(), NotAllowed> {
        self.check(LONGEST_CALL)?;
        if Instant::now() < self.quarantine_until { Err(NotAllowed::Quarantine) } else { Ok(()) }
    }

    /// Like [`Fence::run`], but also allowed while paused: used for the status that reports the pause.
    ///
    /// # Errors
    /// The side effect may not start, or timed out.
    pub async fn run_while_paused<T>(&self, effect: impl Future<Output = T>) -> Result<T, NotAllowed> {
        if !self.guard.outlives(CLUSTER_CALL) {
            return Err(NotAllowed::NotLeader);
        }
        tokio::time::timeout(CLUSTER_CALL, effect).await.map_err(|_| NotAllowed::TimedOut(CLUSTER_CALL))
    }

    /// Waits until the former leader's last call can no longer take effect.
    pub async fn quarantine(&self) {
        tokio::time::sleep_until(self.quarantine_until).await;
    }

    /// Runs a side effect, with a timeout of `deadline`.
    ///
    /// # Errors
    /// The side effect may not start, or timed out.
    pub async fn run<T>(&self, deadline: Duration, effect: impl Future<Output = T>) -> Result<T, NotAllowed> {
        self.check(deadline)?;
        tokio::time::timeout(deadline, effect).await.map_err(|_| NotAllowed::TimedOut(deadline))
    }
}
