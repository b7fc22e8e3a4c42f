//! Offerings with capacity for some requests, cached by the distinct capacities that the requests exceed.

use super::{LOOKED_UP, OfferingView};
use crate::input::intern::{Bits, fits};
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::IndexVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Cache of fitting offerings. Requests that exceed the same distinct capacities of each resource fit on the same
/// offerings.
#[derive(Debug, Default)]
pub(super) struct FittingOfferings {
    /// Per resource: the distinct capacities of offerings, ascending.
    steps: Vec<Vec<i64>>,
    known: BTreeMap<Vec<usize>, Arc<Bits<Offering>>>,
}

impl FittingOfferings {
    pub(super) fn new(offerings: &IndexVec<Offering, OfferingView>, width: usize) -> Self {
        let steps = |resource: usize| {
            let capacities: BTreeSet<i64> =
                offerings.iter().filter_map(|one| one.room.get(resource).copied()).collect();
            capacities.into_iter().collect()
        };
        Self { steps: (0..width).map(steps).collect(), known: BTreeMap::new() }
    }

    /// Per resource: the number of capacities that are too small; 0 if the resource is not requested.
    fn key(&self, requests: &[i64]) -> Vec<usize> {
        let small = |(steps, need): (&Vec<i64>, &i64)| {
            if *need <= 0 { 0 } else { steps.partition_point(|capacity| capacity < need) }
        };
        self.steps.iter().zip(requests).map(small).collect()
    }

    pub(super) fn trim(&mut self) {
        if self.known.len() > LOOKED_UP {
            self.known.clear();
        }
    }

    /// Returns the `offerings` with capacity for `requests` beside the DaemonSets.
    pub(super) fn fitting(
        &mut self,
        offerings: &IndexVec<Offering, OfferingView>,
        requests: &[i64],
    ) -> Arc<Bits<Offering>> {
        let key = self.key(requests);
        let fit = |offering| {
            let view = &offerings[offering];
            fits(requests, &view.room) && !view.is_overfull()
        };
        let found = || Arc::new(Bits::of(offerings.len(), fit));
        Arc::clone(self.known.entry(key).or_insert_with(found))
    }
}
