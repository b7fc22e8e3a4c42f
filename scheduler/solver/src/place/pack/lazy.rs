//! Candidates in the order of their last known worth per price. The number of unplaced pods only decreases, so the
//! worth only decreases. Only the first candidate must be evaluated again.

use super::filling::Filled;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A candidate with an upper bound of its worth per price.
#[derive(Debug)]
pub(super) struct CandidateBound {
    pub(super) rate: f64,
    pub(super) offering: Id<Offering>,
    /// Its filling, if it was computed.
    pub(super) filled: Option<Filled>,
}

impl PartialEq for CandidateBound {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for CandidateBound {}

impl PartialOrd for CandidateBound {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CandidateBound {
    fn cmp(&self, other: &Self) -> Ordering {
        // Among equal candidates, the cheaper one comes first.
        self.rate.total_cmp(&other.rate).then(other.offering.cmp(&self.offering))
    }
}

/// The best candidate first.
pub(super) type CandidateBounds = BinaryHeap<CandidateBound>;
