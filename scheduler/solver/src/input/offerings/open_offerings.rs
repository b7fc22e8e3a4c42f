//! Which offerings have room for some requests, looked up once for all requests between the same two rooms.

use super::OfferingView;
use crate::input::intern::{Bits, fits};
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::IndexVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Requests between the same two rooms, in each resource, fit in the same places: looked up once.
#[derive(Debug)]
pub(super) struct Rooms {
    /// Per resource: the different amounts of room that there are, ascending.
    steps: Vec<Vec<i64>>,
    known: BTreeMap<Vec<usize>, Arc<Bits<Offering>>>,
}

impl Rooms {
    pub(super) fn new(offerings: &IndexVec<Offering, OfferingView>, width: usize) -> Self {
        let steps = |resource: usize| {
            let rooms: BTreeSet<i64> = offerings.iter().filter_map(|one| one.room.get(resource).copied()).collect();
            rooms.into_iter().collect()
        };
        Self { steps: (0..width).map(steps).collect(), known: BTreeMap::new() }
    }

    /// How many of the steps are too small, per resource; none are for what is not requested.
    fn key(&self, requests: &[i64]) -> Vec<usize> {
        let small = |(steps, need): (&Vec<i64>, &i64)| {
            if *need <= 0 { 0 } else { steps.partition_point(|room| room < need) }
        };
        self.steps.iter().zip(requests).map(small).collect()
    }

    /// How many different answers were given.
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// Of `offerings` those that have room for `requests`.
    pub(super) fn fitting(
        &mut self,
        offerings: &IndexVec<Offering, OfferingView>,
        requests: &[i64],
    ) -> Arc<Bits<Offering>> {
        let key = self.key(requests);
        let found = || Arc::new(Bits::of(offerings.len(), |offering| fits(requests, &offerings[offering].room)));
        Arc::clone(self.known.entry(key).or_insert_with(found))
    }
}
