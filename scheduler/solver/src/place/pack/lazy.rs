//! Candidates by what they promised last. Pods only become fewer, so a promise only becomes worse: the best one is asked again, the
//! others can wait until it is their turn.

use super::filling::Filled;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A candidate.
#[derive(Debug)]
pub(super) struct Promise {
    pub(super) rate: f64,
    pub(super) offering: Id<Offering>,
    /// What it would take, if that was looked at.
    pub(super) filled: Option<Filled>,
}

impl PartialEq for Promise {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Promise {}

impl PartialOrd for Promise {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Promise {
    fn cmp(&self, other: &Self) -> Ordering {
        // At the same rate the cheaper one comes first.
        self.rate.total_cmp(&other.rate).then(other.offering.cmp(&self.offering))
    }
}

/// The best promise first.
pub(super) type Promises = BinaryHeap<Promise>;
