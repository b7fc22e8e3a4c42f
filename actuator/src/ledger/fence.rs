//! What a leader may still do (safety rule 16). A lease alone does not prevent late effects, so each side effect must
//! end before the lease does.

use plimsoll_model::time::Millis;

/// A point on this process's monotonic clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Monotonic(pub u64);

/// Until when a leader may act, and from when it may admit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    lease_until: Monotonic,
    admits_from: Monotonic,
}

impl Fence {
    /// Creates the fence of a leader elected at `elected`, whose lease was last renewed by a request *sent* at
    /// `renewed`. Nothing is admitted until the former leader's lease of duration `lease`, and a side effect of at most
    /// `longest_call` started under it, are over.
    #[must_use]
    pub fn new(elected: Monotonic, renewed: Monotonic, lease: Millis, longest_call: Millis) -> Self {
        let admits_from = Monotonic(elected.0.saturating_add(lease.0).saturating_add(longest_call.0));
        Self { lease_until: Monotonic(renewed.0.saturating_add(lease.0)), admits_from }
    }

    /// Records a renewal whose request was sent at `sent`. A renewal that arrives out of order has no effect.
    pub fn renewed(&mut self, sent: Monotonic, lease: Millis) {
        self.lease_until = self.lease_until.max(Monotonic(sent.0.saturating_add(lease.0)));
    }

    /// Whether a side effect with timeout `deadline`, retries included, may start now.
    #[must_use]
    pub fn may_begin(&self, now: Monotonic, deadline: Millis) -> bool {
        now.0.saturating_add(deadline.0) < self.lease_until.0
    }

    /// Whether new actions may be admitted now. Drains of interrupted nodes need not check, since repeating them is
    /// harmless.
    #[must_use]
    pub fn may_admit(&self, now: Monotonic) -> bool {
        now >= self.admits_from && now < self.lease_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Millis = Millis(15_000);
    const CALL: Millis = Millis(10_000);

    #[test]
    fn call_must_end_before_the_lease_expires() {
        let mut fence = Fence::new(Monotonic(0), Monotonic(0), LEASE, CALL);
        assert!(fence.may_begin(Monotonic(4_999), CALL));
        assert!(!fence.may_begin(Monotonic(5_000), CALL));
        fence.renewed(Monotonic(5_000), LEASE);
        assert!(fence.may_begin(Monotonic(9_999), CALL));
        fence.renewed(Monotonic(1_000), LEASE);
        assert!(fence.may_begin(Monotonic(9_999), CALL), "a late answer does not shorten the lease");
    }

    #[test]
    fn new_leader_waits_for_the_former_leaders_last_call() {
        let mut fence = Fence::new(Monotonic(1_000), Monotonic(1_000), LEASE, CALL);
        fence.renewed(Monotonic(20_000), LEASE);
        assert!(!fence.may_admit(Monotonic(25_999)));
        assert!(fence.may_admit(Monotonic(26_000)));
        assert!(!fence.may_admit(Monotonic(35_000)), "not without a lease");
    }
}
