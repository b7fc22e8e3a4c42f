//! Names of resources as numbers, amounts as short vectors.

use crate::volumes;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::PodShape;
use std::collections::BTreeSet;

/// Amounts in the order of a [`ResourceTable`].
pub type Amounts = Vec<i64>;

/// Every resource that anything in the snapshot requests or limits; others cannot matter.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResourceTable {
    names: Vec<String>,
    /// CSI drivers whose volumes are counted, with the number of the resource that counts them.
    drivers: Vec<(String, usize)>,
    /// Numbers of resources that only NodeOverlays give: nobody else knows of them.
    own: Vec<usize>,
}

impl ResourceTable {
    /// A table of all names in `all`, and of the volumes of `drivers`.
    #[must_use]
    pub fn new<'a>(all: impl Iterator<Item = &'a Resources>, drivers: Vec<String>) -> Self {
        let attached: Vec<String> = drivers.iter().map(|driver| volumes::resource(driver)).collect();
        // One after another: nearly all are there already, so that sorting them all would take longer.
        let mut names: BTreeSet<&str> = BTreeSet::new();
        names.extend(all.flat_map(|resources| resources.iter().map(|(name, _)| name)));
        names.extend(attached.iter().map(String::as_str));
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let place = |name: &String| names.binary_search(name).unwrap_or(usize::MAX);
        let drivers = drivers.into_iter().zip(attached.iter().map(place)).collect();
        Self { names, drivers, own: Vec::new() }
    }

    /// Amounts by number; what is not in the table is left out.
    #[must_use]
    pub fn vector(&self, resources: &Resources) -> Amounts {
        self.names.iter().map(|name| resources.get(name)).collect()
    }

    /// The same where nodes have these only because a NodeOverlay says so.
    #[must_use]
    pub fn with_own<'a>(mut self, own: impl Iterator<Item = &'a str>) -> Self {
        self.own = own.filter_map(|own| self.names.iter().position(|name| name == own)).collect();
        self
    }

    /// What a pod of `shape` requests, its volumes included.
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

    /// What a node offers; where it does not say how many volumes of a driver it takes, `usual` does.
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

    /// The number of the resource that counts volumes of `driver`, if they are counted.
    #[must_use]
    pub fn attached(&self, driver: &str) -> Option<usize> {
        self.drivers.iter().find(|(name, _)| name == driver).map(|(_, place)| *place)
    }

    /// Back to names; zeros are left out, and so are volumes, which no pod requests in so many words,
    /// and what only an overlay gives.
    #[must_use]
    pub fn resources(&self, amounts: &[i64]) -> Resources {
        self.names
            .iter()
            .zip(amounts)
            .enumerate()
            .filter(|(index, (_, amount))| {
                **amount != 0 && !self.drivers.iter().any(|(_, place)| place == index) && !self.own.contains(index)
            })
            .map(|(_, (name, n))| (name.as_str(), *n))
            .collect()
    }

    /// The number of a resource, if anything asks for it.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).ok()
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name of resource number `index`.
    #[must_use]
    pub fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }
}

/// Whether `request` fits in `room`; a zero request always does.
#[must_use]
pub fn fits(request: &[i64], room: &[i64]) -> bool {
    request.iter().zip(room).all(|(need, have)| *need <= 0 || need <= have)
}

/// How many times `request` fits in `room`, at most `most`.
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

/// Adds `times` times `amounts` to `sum`, saturating.
pub fn add(sum: &mut [i64], amounts: &[i64], times: i64) {
    for (total, amount) in sum.iter_mut().zip(amounts) {
        *total = total.saturating_add(amount.saturating_mul(times));
    }
}
