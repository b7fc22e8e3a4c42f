//! Work budget of the repairs of one plan.

use crate::Cancel;
use plimsoll_model::snapshot::Snapshot;
use std::cell::Cell;

/// Maximum number of checks of a pod against a node in all repairs of one plan: about three seconds. One plan in a
/// thousand uses more than a tenth of it.
const CHECKS: usize = 60_000_000;
/// Number of checks that a further plan counts as, per pod and node. It takes about as long.
const CHECKS_PER_OBJECT: usize = 500;

/// Work budget shared by all repairs of a plan. Once it is spent, the best valid plan so far is the result.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    left: Cell<usize>,
    cancel: &'a Cancel,
}

impl<'a> Work<'a> {
    pub(crate) fn new(cancel: &'a Cancel) -> Self {
        Self { left: Cell::new(CHECKS), cancel }
    }

    /// Spends `checks`. Returns `false` if the budget is too small, or if the solve is cancelled.
    pub(crate) fn spend(&self, checks: usize) -> bool {
        let left = self.left.get().checked_sub(checks).filter(|_| !self.cancel.is_cancelled());
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Adds the work of packing of a further plan, which is usually covered by [`Self::spend_plan`]. With many
    /// preferences, or `minValues`, few pods can be packed thousands of times.
    pub(crate) fn add_packing(&self, steps: u64) {
        // A step takes about as long as a check.
        let steps = usize::try_from(steps).unwrap_or(usize::MAX);
        self.left.set(self.left.get().saturating_sub(steps));
    }

    /// Sets half of the work that is left aside, but leaves enough for a plan for `snapshot`. Returns the amount. What
    /// is done next cannot use this amount up. The packing of the last plan of a move may exceed its part.
    pub(crate) fn set_half_aside(&self, snapshot: &Snapshot) -> usize {
        self.set_half_aside_except(checks_of_plan(snapshot))
    }

    fn set_half_aside_except(&self, least: usize) -> usize {
        let left = self.left.get();
        let aside = (left / 2).min(left.saturating_sub(least));
        self.left.set(left.saturating_sub(aside));
        aside
    }

    pub(crate) fn give_back(&self, aside: usize) {
        self.left.update(|left| left.saturating_add(aside));
    }

    /// Like [`Self::spend`], for a plan for `snapshot`.
    pub(crate) fn spend_plan(&self, snapshot: &Snapshot) -> bool {
        self.spend(checks_of_plan(snapshot))
    }
}

/// Number of checks that a plan for `snapshot` counts as.
fn checks_of_plan(snapshot: &Snapshot) -> usize {
    (snapshot.pods.len() + snapshot.nodes.len()).saturating_mul(CHECKS_PER_OBJECT)
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
        assert!(!work.spend(CHECKS + 1), "more than the budget");
        assert!(!work.spend(1), "nothing is left after that");
    }

    #[test]
    fn half_of_the_work_can_be_set_aside() {
        let cancel = Cancel::default();
        let work = Work::new(&cancel);
        let aside = work.set_half_aside_except(CHECKS / 3);
        assert!(!work.spend(CHECKS / 2 + 1) && !work.spend(1));
        work.give_back(aside);
        assert!(work.spend(CHECKS / 2) && !work.spend(1));
    }

    #[test]
    fn what_a_plan_needs_is_not_set_aside() {
        let cancel = Cancel::default();
        for (plan, aside) in [(CHECKS - 7, 7), (CHECKS + 7, 0)] {
            let work = Work::new(&cancel);
            assert_eq!(work.set_half_aside_except(plan), aside);
            assert!(work.spend(CHECKS - aside));
        }
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
