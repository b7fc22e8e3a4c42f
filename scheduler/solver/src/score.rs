//! Compares ways to place the same pods.

use crate::input::context::SolveContext;
use crate::place::{Placed, pod_groups};

/// Penalty for each node in addition to its price, in micro-USD per hour. Two nodes of half the size usually cost the
/// same as one, but each node must be booted, watched and drained. The penalty is about half a percent of the price of
/// the smallest nodes in use.
pub(crate) const PER_NODE: i64 = 500;

/// Lower is better: fewer unplaced pods, then lower cost, then fewer nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    /// Number of pods without a node.
    pub(crate) unplaced: usize,
    /// Price of new nodes in micro-USD per hour, plus [`PER_NODE`] for each node.
    pub(crate) cost: i64,
    /// Number of new nodes.
    pub(crate) nodes: usize,
}

impl Score {
    /// `price` is the price of all new nodes in micro-USD per hour.
    pub(crate) fn new(unplaced: usize, price: i64, nodes: usize) -> Self {
        let overhead = i64::try_from(nodes).unwrap_or(i64::MAX).saturating_mul(PER_NODE);
        Self { unplaced, cost: price.saturating_add(overhead), nodes }
    }

    /// A score for ways to place the same pods, if only the number of placed pods is known.
    pub(crate) fn of_placed(placed: usize, price: i64, nodes: usize) -> Self {
        Self::new(usize::MAX - placed, price, nodes)
    }

    pub(crate) fn of(context: &SolveContext<'_>, placed: &Placed<'_>) -> Self {
        let price = placed.launches.iter().map(|draft| draft.price(context)).sum();
        Self::new(unplaced(placed), price, placed.launches.len())
    }

    /// Price of new nodes in micro-USD per hour, without [`PER_NODE`].
    pub(crate) fn price(&self) -> i64 {
        self.cost.saturating_sub(i64::try_from(self.nodes).unwrap_or(i64::MAX).saturating_mul(PER_NODE))
    }
}

/// Number of pods without a node.
pub(crate) fn unplaced(placed: &Placed<'_>) -> usize {
    pod_groups::count(&placed.left)
}

#[cfg(test)]
mod tests {
    use super::{PER_NODE, Score};

    #[test]
    fn pods_come_before_cost_and_cost_before_nodes() {
        assert!(Score::new(0, 900, 9) < Score::new(1, 0, 0));
        assert!(Score::new(0, 100, 1) < Score::new(0, 101, 1));
        assert!(Score::new(0, PER_NODE, 0) > Score::new(0, 0, 0));
        assert!(Score::new(0, PER_NODE, 0) < Score::new(0, 0, 1));
    }
}
