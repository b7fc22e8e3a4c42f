//! The fence before every side effect (safety rules 16 and 20): the lease must outlive the call, and Karpenter must not run.
//! [`crate::io`] takes every write and every call that changes something through it.

use plimsoll_runtime::lease::LeaseGuard;
use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Total deadline of a call to the Kubernetes API, retries included.
pub const CLUSTER_CALL: Duration = Duration::from_secs(4);
/// Total deadline of a call to the cloud, retries included. CreateFleet needs some seconds; a lease that was just renewed
/// (15 s) outlives it and one missed renewal.
pub const CLOUD_CALL: Duration = Duration::from_secs(8);
/// The longest of them: what a new leader waits for besides the old lease.
pub const LONGEST_CALL: Duration = CLOUD_CALL;

/// Why a side effect may not begin, or what is known of one that did not end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// The lease is lost, or ends before the call would.
    #[error("this process does not lead, or not for long enough")]
    NotLeader,
    /// Another autoscaler is at work.
    #[error("paused: {0}")]
    Paused(String),
    /// A former leader's calls may still take effect.
    #[error("a former leader's calls may still take effect")]
    Quarantine,
    /// The call did not end in time: it may have happened.
    #[error("no answer within {0:?}, it may have happened")]
    TimedOut(Duration),
}

/// The right to act during one term of leadership. Clones share it.
#[derive(Debug, Clone)]
pub struct Fence {
    guard: LeaseGuard,
    epoch: u64,
    quarantine_until: Instant,
    pause: watch::Receiver<Option<String>>,
}

impl Fence {
    /// For a term. `highest` is the highest epoch written on any claim; `pause` says why nothing may be written, if so.
    ///
    /// A Lease that was deleted counts its transitions from 0 again, unless a contender remembers it. The claims then show
    /// that there was a leader before: the epoch goes on above theirs, and that leader's lease and last call are waited for.
    #[must_use]
    pub fn new(guard: LeaseGuard, highest: Option<u64>, pause: watch::Receiver<Option<String>>) -> Self {
        let epoch = highest.map_or(guard.epoch(), |highest| guard.epoch().max(highest.saturating_add(1)));
        let led_before = guard.is_first_known() && highest.is_some();
        let quarantine_until = if led_before { guard.unknown_leader_until() } else { guard.quarantine_until() };
        Self { guard, epoch, quarantine_until, pause }
    }

    /// The term: transitions of the lease, or more. Grows with every leader, also over a deleted Lease.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Why nothing may be written, if so.
    #[must_use]
    pub fn paused(&self) -> Option<String> {
        self.pause.borrow().clone()
    }

    /// Resolves at the next change of [`Fence::paused`]; never, once its sender is gone.
    pub async fn pause_changed(&mut self) {
        if self.pause.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves once the term is over.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.guard.lost()
    }

    /// Whether a side effect with that total deadline may begin now.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, deadline: Duration) -> Result<(), NotAllowed> {
        if let Some(reason) = self.paused() {
            return Err(NotAllowed::Paused(reason));
        }
        if self.guard.outlives(deadline) { Ok(()) } else { Err(NotAllowed::NotLeader) }
    }

    /// Whether new actions may be admitted: as [`Fence::check`], and the former leader's last call is over.
    ///
    /// # Errors
    /// Why not.
    pub fn check_admission(&self) -> Result<(), NotAllowed> {
        self.check(LONGEST_CALL)?;
        if Instant::now() < self.quarantine_until { Err(NotAllowed::Quarantine) } else { Ok(()) }
    }

    /// As [`Fence::run`], but also while paused: for the status that says so.
    ///
    /// # Errors
    /// It may not begin, or was given up.
    pub async fn run_while_paused<T>(&self, effect: impl Future<Output = T>) -> Result<T, NotAllowed> {
        if !self.guard.outlives(CLUSTER_CALL) {
            return Err(NotAllowed::NotLeader);
        }
        tokio::time::timeout(CLUSTER_CALL, effect).await.map_err(|_| NotAllowed::TimedOut(CLUSTER_CALL))
    }

    /// Waits until the former leader's last call can have no effect any more.
    pub async fn quarantine(&self) {
        tokio::time::sleep_until(self.quarantine_until).await;
    }

    /// Carries out one side effect, which is given up after `deadline`.
    ///
    /// # Errors
    /// It may not begin, or was given up.
    pub async fn run<T>(&self, deadline: Duration, effect: impl Future<Output = T>) -> Result<T, NotAllowed> {
        self.check(deadline)?;
        tokio::time::timeout(deadline, effect).await.map_err(|_| NotAllowed::TimedOut(deadline))
    }
}
