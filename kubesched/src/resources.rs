//! Maps resource names to indices, so that amounts are short vectors.

use crate::volumes;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::PodShape;
use std::collections::BTreeSet;

/// Amounts in the order of a [`ResourceTable`].
pub type Amounts = Vec<i64>;

/// All resources that pods of the snapshot request or that have a limit. Other resources cannot affect a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResourceTable {
    names: Vec<String>,
    /// CSI drivers whose volumes are counted, each with the index of the resource that counts them.
    drivers: Vec<(String, usize)>,
}

impl ResourceTable {
    /// Creates a table of all names in `all`, and of the volumes of `drivers`.
    #[must_use]
    pub fn new<'a>(all: impl Iterator<Item = &'a Resources>, drivers: Vec<String>) -> Self {
        let attached: Vec<String> = drivers.iter().map(|driver| volumes::resource(driver)).collect();
        // Inserted one by one: most names are duplicates, and sorting all of them would take longer.
        let mut names: BTreeSet<&str> = BTreeSet::new();
        names.extend(all.flat_map(|resources| resources.iter().map(|(name, _)| name)));
        names.extend(attached.iter().map(String::as_str));
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let place = |name: &String| names.binary_search(name).unwrap_or(usize::MAX);
        let drivers = drivers.into_iter().zip(attached.iter().map(place)).collect();
        Self { names, drivers }
    }

    /// Amounts by index. Resources that are not in the table are omitted.
    #[must_use]
    pub fn vector(&self, resources: &Resources) -> Amounts {
        self.names.iter().map(|name| resources.get(name)).collect()
    }

    /// Requests of a pod of `shape`, including its volumes.
    #[must_use]
    pub fn request(&self, shape: &PodShape) -> Amounts {
        let mut amounts = self.vector(&shape.requests);
        for (driver, place) in &self.drivers {
            let count = shape.volumes.iter().filter(|volume| volume.driver == *driver).count();
            if let Some(amount) = amounts.get_mut(*place) {
                *amount = i64::try_from(count).unwrap_or(i64::MAX);
            }
        }
        amounts
    }

    /// Capacity of a node. For drivers without a limit in `resources`, `usual` returns the limit.
    #[must_use]
    pub fn room(&self, resources: &Resources, usual: impl Fn(&str) -> i64) -> Amounts {
        let mut amounts = self.vector(resources);
        for (driver, place) in &self.drivers {
            if let (Some(amount), false) = (amounts.get_mut(*place), resources.contains(self.name(*place))) {
                *amount = usual(driver);
            }
        }
        amounts
    }

    /// Index of the resource that counts volumes of `driver`, if they are counted.
    #[must_use]
    pub fn attached(&self, driver: &str) -> Option<usize> {
        self.drivers.iter().find(|(name, _)| name == driver).map(|(_, place)| *place)
    }

    /// Converts amounts back to named resources. Zeros are omitted, and so are volumes, which pods do not request by
    /// name.
    #[must_use]
    pub fn resources(&self, amounts: &[i64]) -> Resources {
        self.names
            .iter()
            .zip(amounts)
            .enumerate()
            .filter(|(index, (_, amount))| **amount != 0 && !self.drivers.iter().any(|(_, place)| place == index))
            .map(|(_, (name, n))| (name.as_str(), *n))
            .collect()
    }

    /// Index of a resource, if it is in the table.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).ok()
    }

    /// Number of resources.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the table has no resources.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Name of the resource at `index`.
    #[must_use]
    pub fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }
}

/// Whether `request` fits in `room`. A zero request always fits.
#[must_use]
pub fn fits(request: &[i64], room: &[i64]) -> bool {
    request.iter().zip(room).all(|(need, have)| *need <= 0 || need <= have)
}

/// How often `request` fits in `room`, at most `most` times.
#[must_use]
pub fn how_many(request: &[i64], room: &[i64], most: usize) -> usize {
    let mut count = most;
    for (need, have) in request.iter().zip(room) {
        if *need > 0 {
            count = count.min(usize::try_from(have.max(&0) / need).unwrap_or(usize::MAX));
        }
    }
    count
}

/// Adds `amounts` multiplied by `times` to `sum`, saturating.
pub fn add(sum: &mut [i64], amounts: &[i64], times: i64) {
    for (total, amount) in sum.iter_mut().zip(amounts) {
        *total = total.saturating_add(amount.saturating_mul(times));
    }
}
