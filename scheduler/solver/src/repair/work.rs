//! What the repairs of one plan may cost.

use crate::Cancel;
use plimsoll_model::snapshot::Snapshot;
use std::cell::Cell;

/// Checks of a pod against a node that all repairs of one plan may take: about three seconds. One plan in a thousand
/// takes more than a tenth of it.
const CHECKS: usize = 60_000_000;
/// Checks that a plan for another snapshot counts for, per pod and node: it takes about as long.
const CHECKS_PER_OBJECT: usize = 500;

/// Shared by all repairs of a plan. Once it is spent, the best valid plan so far is the result.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    left: Cell<usize>,
    cancel: &'a Cancel,
}

impl<'a> Work<'a> {
    pub(crate) fn new(cancel: &'a Cancel) -> Self {
        Self { left: Cell::new(CHECKS), cancel }
    }

    /// Takes `checks` from what is left; `false` if that is too little, or the caller no longer wants the plan.
    pub(crate) fn spend(&self, checks: usize) -> bool {
        let left = self.left.get().checked_sub(checks).filter(|_| !self.cancel.is_cancelled());
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// The same for a plan for `snapshot`.
    pub(crate) fn spend_plan(&self, snapshot: &Snapshot) -> bool {
        self.spend((snapshot.pods.len() + snapshot.nodes.len()).saturating_mul(CHECKS_PER_OBJECT))
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECKS, Work};
    use crate::Cancel;

    #[test]
    fn work_ends_when_it_is_spent_and_does_not_come_back() {
        let cancel = Cancel::default();
        let work = Work::new(&cancel);
        assert!(work.spend(CHECKS - 1) && work.spend(1));
        assert!(!work.spend(1));
        let work = Work::new(&cancel);
        assert!(!work.spend(CHECKS + 1), "more than there is");
        assert!(!work.spend(1), "and then nothing");
    }

    #[test]
    fn a_cancelled_solve_has_no_work_left() {
        let cancel = Cancel::default();
        let work = Work::new(&cancel);
        assert!(work.spend(1));
        cancel.cancel();
        assert!(!work.spend(1));
    }
}
