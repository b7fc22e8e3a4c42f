//! State of the election from the view of one candidate, and the permission to act as leader.

use crate::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The highest epoch that is written into a Lease. Later leaders continue from it, and a Lease has room for as many
/// again. A higher one comes from a wrong annotation of a claim; written, it would leave no higher count for the next
/// leaders, even when that claim is gone.
const MAX_RAISED_EPOCH: u64 = 1 << 30;

/// The leader, as far as this process knows.
#[derive(Clone, Debug)]
pub enum LeaseState {
    /// Another process leads, or none is known yet.
    Following {
        /// The holder last seen, if any.
        holder: Option<String>,
        /// Its epoch: the transition count of the Lease.
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

/// The transition count of a Lease that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransitionCount {
    /// The count that the next renewal writes.
    pub(super) wanted: u64,
    /// The count that is known to be written.
    pub(super) written: u64,
}

/// A time by both clocks of the machine. The monotonic clock does not advance while the machine is suspended, and the
/// wall clock may be set back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) monotonic: Instant,
    /// `None` in simulations.
    wall: Option<Timestamp>,
}

impl Moment {
    pub(super) fn now(clock: Clock) -> Self {
        Self { monotonic: Instant::now(), wall: clock.of_machine() }
    }

    /// This much later; `None` if the monotonic clock never shows it.
    pub(super) fn after(self, by: Duration) -> Option<Self> {
        let signed = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        let wall = self.wall.map(|wall| wall.checked_add(signed).unwrap_or(Timestamp::MAX));
        Some(Self { monotonic: self.monotonic.checked_add(by)?, wall })
    }

    /// Whether it is before `other` by each clock.
    fn is_before(self, other: Self) -> bool {
        let is_over = self.wall.zip(other.wall).is_some_and(|(wall, other)| wall >= other);
        !is_over && self.monotonic < other.monotonic
    }
}

/// Permission to act as leader during one epoch. Clones refer to the same lease.
#[derive(Clone, Debug)]
pub struct LeaseGuard {
    pub(super) holder: Arc<str>,
    pub(super) epoch: u64,
    pub(super) first_known: bool,
    pub(super) quarantine_until: Instant,
    pub(super) unknown_leader_until: Instant,
    pub(super) end: Arc<Mutex<Moment>>,
    pub(super) clock: Clock,
    pub(super) count: watch::Sender<TransitionCount>,
    pub(super) lost: CancellationToken,
}

impl LeaseGuard {
    /// Name of the leader, which is this process.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Transition count of the Lease when it was acquired. Grows with every new leader as long as the Lease exists or a
    /// candidate remembers it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Raises the transition count of the Lease to `epoch`, if it is lower, and waits until a renewal has written it.
    /// The next leader then continues from `epoch`. Does not return if the lease is lost before. Returns whether it had
    /// to wait. An epoch above 2^30 is not written.
    pub async fn raise_epoch(&self, epoch: u64) -> bool {
        if self.count.borrow().written >= epoch {
            return false;
        }
        if epoch > MAX_RAISED_EPOCH {
            tracing::warn!(epoch, "epoch is too high for the Lease, and the next leader may have the same one");
            return false;
        }
        self.count.send_modify(|count| count.wanted = count.wanted.max(epoch));
        let mut counts = self.count.subscribe();
        // No error: this guard keeps the sender.
        let _ = counts.wait_for(|count| count.written >= epoch).await;
        true
    }

    /// Whether this leader created the Lease without having seen an earlier one: either there was no leader before, or
    /// the Lease was deleted before this process started.
    #[must_use]
    pub fn is_first_known(&self) -> bool {
        self.first_known
    }

    /// The latest time at which calls of an unknown former leader may still take effect: its lease, which could have
    /// been renewed just before the Lease was deleted, plus the longest call.
    #[must_use]
    pub fn unknown_leader_until(&self) -> Instant {
        self.unknown_leader_until
    }

    /// Whether the lease is still held at the end of a call that begins now and takes at most `deadline`. Check before
    /// each side effect. The lease is counted from *before* the last successful renewal was sent, so that it expires
    /// here first. It also ends while the machine is suspended.
    #[must_use]
    pub fn outlives(&self, deadline: Duration) -> bool {
        let is_in_time = |end: Moment| end.is_before(*self.end.lock());
        !self.lost.is_cancelled() && Moment::now(self.clock).after(deadline).is_some_and(is_in_time)
    }

    /// Resolves once the lease is lost or released.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Until this time, calls of the former leader may still take effect: the old lease plus the longest call.
    #[must_use]
    pub fn quarantine_until(&self) -> Instant {
        self.quarantine_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_while_the_machine_is_suspended() {
        let start = Instant::now();
        let at = |monotonic: u64, wall: Option<i64>| Moment {
            monotonic: start + Duration::from_secs(monotonic),
            wall: wall.map(|seconds| Timestamp::from_second(1_000 + seconds).unwrap()),
        };
        let end = at(0, Some(0)).after(Duration::from_secs(15)).unwrap();
        let outlives = |now: Moment| now.after(Duration::from_secs(5)).unwrap().is_before(end);
        assert!(outlives(at(9, Some(9))) && !outlives(at(10, Some(10))));
        assert!(!outlives(at(1, Some(60))), "the machine was suspended for a minute");
        assert!(outlives(at(1, Some(-60))) && !outlives(at(10, Some(-60))), "its wall clock was set back");
        assert!(outlives(at(9, None)) && !outlives(at(10, None)), "a simulation");
        assert!(at(0, Some(0)).after(Duration::MAX).is_none());
    }

    #[test]
    fn a_guard_asks_both_clocks_of_the_machine() {
        let (now, call) = (Instant::now(), Duration::from_secs(5));
        let outlives = |clock: Clock, monotonic: Instant, wall: Timestamp| {
            let guard = LeaseGuard {
                holder: "a".into(),
                epoch: 1,
                first_known: false,
                quarantine_until: now,
                unknown_leader_until: now,
                end: Arc::new(Mutex::new(Moment { monotonic, wall: Some(wall) })),
                clock,
                count: watch::Sender::new(TransitionCount { wanted: 1, written: 1 }),
                lost: CancellationToken::new(),
            };
            guard.outlives(call)
        };
        let (system, later) = (Clock::system(), now + Duration::from_secs(3600));
        assert!(outlives(system, later, Timestamp::MAX));
        assert!(!outlives(system, later, Timestamp::now()), "the machine was suspended");
        assert!(!outlives(system, now, Timestamp::MAX));
        assert!(outlives(Clock::starting_at(Timestamp::now()), later, Timestamp::now()), "a simulation");
    }
}
