//! The gate before every side effect (safety rules 16 and 20): the lease must outlive the call, and Karpenter must be gone.

use plimsoll_runtime::lease::LeaseGuard;
use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;
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
pub struct Authority {
    guard: LeaseGuard,
    pause: watch::Receiver<Option<String>>,
}

impl Authority {
    /// For a term. `pause` says why nothing may be written, if so.
    #[must_use]
    pub fn new(guard: LeaseGuard, pause: watch::Receiver<Option<String>>) -> Self {
        Self { guard, pause }
    }

    /// The term: transitions of the lease. Grows with every leader.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.guard.epoch()
    }

    /// Why nothing may be written, if so.
    #[must_use]
    pub fn paused(&self) -> Option<String> {
        self.pause.borrow().clone()
    }

    /// Resolves at the next change of [`Authority::paused`]; never, once nobody tells any more.
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

    /// Whether a side effect with that total deadline may begin now. Ask before each.
    ///
    /// # Errors
    /// Why not.
    pub fn may_act(&self, deadline: Duration) -> Result<(), NotAllowed> {
        if let Some(reason) = self.paused() {
            return Err(NotAllowed::Paused(reason));
        }
        if self.guard.outlives(deadline) { Ok(()) } else { Err(NotAllowed::NotLeader) }
    }

    /// Whether new actions may be admitted: as [`Authority::may_act`], and the former leader's last call is over.
    ///
    /// # Errors
    /// Why not.
    pub fn may_admit(&self) -> Result<(), NotAllowed> {
        self.may_act(LONGEST_CALL)?;
        if self.guard.in_quarantine() { Err(NotAllowed::Quarantine) } else { Ok(()) }
    }

    /// As [`Authority::act`], for the one thing that is written while nothing else is: that, and why.
    ///
    /// # Errors
    /// It may not begin, or was given up.
    pub async fn tell<T>(&self, effect: impl Future<Output = T>) -> Result<T, NotAllowed> {
        if !self.guard.outlives(CLUSTER_CALL) {
            return Err(NotAllowed::NotLeader);
        }
        tokio::time::timeout(CLUSTER_CALL, effect).await.map_err(|_| NotAllowed::TimedOut(CLUSTER_CALL))
    }

    /// Waits until the former leader's last call is over.
    pub async fn quarantine(&self) {
        tokio::time::sleep_until(self.guard.quarantine_until()).await;
    }

    /// Carries out one side effect, which is given up after `deadline`.
    ///
    /// # Errors
    /// It may not begin, or was given up.
    pub async fn act<T>(&self, deadline: Duration, effect: impl Future<Output = T>) -> Result<T, NotAllowed> {
        self.may_act(deadline)?;
        tokio::time::timeout(deadline, effect).await.map_err(|_| NotAllowed::TimedOut(deadline))
    }
}
