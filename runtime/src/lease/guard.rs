//! What a contender knows about who leads, and the right to act as leader.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Who leads, as far as this process knows.
#[derive(Clone, Debug)]
pub enum LeaseState {
    /// Somebody else, or nobody yet.
    Following {
        /// The holder last seen, if any.
        holder: Option<String>,
        /// Its epoch: the Lease's count of transitions.
        epoch: u64,
    },
    /// This process.
    Leading(LeaseGuard),
}

impl LeaseState {
    /// The guard, if this process leads.
    #[must_use]
    pub fn guard(&self) -> Option<&LeaseGuard> {
        match self {
            Self::Leading(guard) => Some(guard),
            Self::Following { .. } => None,
        }
    }
}

/// The right to act as leader during one epoch. Clones follow the same lease.
#[derive(Clone, Debug)]
pub struct LeaseGuard {
    pub(super) holder: Arc<str>,
    pub(super) epoch: u64,
    pub(super) first_known: bool,
    pub(super) quarantine_until: Instant,
    pub(super) unknown_leader_until: Instant,
    pub(super) valid_until: Arc<Mutex<Instant>>,
    pub(super) lost: CancellationToken,
}

impl LeaseGuard {
    /// Who leads: this process.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The Lease's count of transitions. Grows with every new leader for as long as the Lease exists or some contender
    /// remembers it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether this leader created the Lease without having seen an earlier one: either nobody led before, or the Lease was
    /// deleted before this process started.
    #[must_use]
    pub fn is_first_known(&self) -> bool {
        self.first_known
    }

    /// The latest moment at which calls of a leader unknown to this process may still take effect: its lease, which could have
    /// been renewed just before the Lease was deleted, plus the longest call.
    #[must_use]
    pub fn unknown_leader_until(&self) -> Instant {
        self.unknown_leader_until
    }

    /// Whether the lease is still ours when a call that begins now and takes `deadline` in all ends. Ask before each
    /// side effect. Counted from *before* the last successful renewal was sent, so that it ends here first.
    #[must_use]
    pub fn outlives(&self, deadline: Duration) -> bool {
        !self.lost.is_cancelled()
            && Instant::now().checked_add(deadline).is_some_and(|end| end < *self.valid_until.lock())
    }

    /// Resolves once the lease is lost or released.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Before this moment the former leader's calls may still take effect: the old lease plus the longest call.
    #[must_use]
    pub fn quarantine_until(&self) -> Instant {
        self.quarantine_until
    }

    /// Whether that moment has not come yet.
    #[must_use]
    pub fn in_quarantine(&self) -> bool {
        Instant::now() < self.quarantine_until
    }
}
