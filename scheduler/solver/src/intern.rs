//! Names of resources as numbers, amounts as short vectors, sets of offerings as bits.

use crate::volumes;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::PodShape;
use std::collections::BTreeSet;

/// Amounts in the order of a [`ResourceTable`].
pub(crate) type Amounts = Vec<i64>;

/// Every resource that anything in the snapshot requests or limits; others cannot matter.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ResourceTable {
    names: Vec<String>,
    /// CSI drivers whose volumes are counted, with the number of the resource that counts them.
    drivers: Vec<(String, usize)>,
    /// Numbers of resources that only NodeOverlays give: nobody else knows of them.
    own: Vec<usize>,
}

impl ResourceTable {
    /// A table of all names in `all`, and of the volumes of `drivers`.
    pub(crate) fn new<'a>(all: impl Iterator<Item = &'a Resources>, drivers: Vec<String>) -> Self {
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
    pub(crate) fn vector(&self, resources: &Resources) -> Amounts {
        self.names.iter().map(|name| resources.get(name)).collect()
    }

    /// The same where nodes have these only because a NodeOverlay says so.
    pub(crate) fn with_own<'a>(mut self, own: impl Iterator<Item = &'a str>) -> Self {
        self.own = own.filter_map(|own| self.names.iter().position(|name| name == own)).collect();
        self
    }

    /// What a pod of `shape` requests, its volumes included.
    pub(crate) fn request(&self, shape: &PodShape) -> Amounts {
        let mut amounts = self.vector(&shape.requests);
        for (driver, place) in &self.drivers {
            let count = shape.volumes.iter().filter(|volume| volume.driver == *driver).count();
            amounts[*place] = i64::try_from(count).unwrap_or(i64::MAX);
        }
        amounts
    }

    /// What a node offers; where it does not say how many volumes of a driver it takes, `usual` does.
    pub(crate) fn room(&self, resources: &Resources, usual: impl Fn(&str) -> i64) -> Amounts {
        let mut amounts = self.vector(resources);
        for (driver, place) in &self.drivers {
            if !resources.contains(&self.names[*place]) {
                amounts[*place] = usual(driver);
            }
        }
        amounts
    }

    /// The number of the resource that counts volumes of `driver`, if they are counted.
    pub(crate) fn attached(&self, driver: &str) -> Option<usize> {
        self.drivers.iter().find(|(name, _)| name == driver).map(|(_, place)| *place)
    }

    /// Back to names; zeros are left out, and so are volumes, which no pod requests in so many words,
    /// and what only an overlay gives.
    pub(crate) fn resources(&self, amounts: &[i64]) -> Resources {
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
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).ok()
    }

    /// How many resources there are.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The name of resource number `index`.
    pub(crate) fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }
}

/// Whether `request` fits in `room`; a zero request always does.
pub(crate) fn fits(request: &[i64], room: &[i64]) -> bool {
    request.iter().zip(room).all(|(need, have)| *need <= 0 || need <= have)
}

/// How many times `request` fits in `room`, at most `most`.
pub(crate) fn how_many(request: &[i64], room: &[i64], most: usize) -> usize {
    let mut count = most;
    for (need, have) in request.iter().zip(room) {
        if *need > 0 {
            count = count.min(usize::try_from(have.max(&0) / need).unwrap_or(usize::MAX));
        }
    }
    count
}

/// Adds `times` times `amounts` to `sum`, saturating.
pub(crate) fn add(sum: &mut [i64], amounts: &[i64], times: i64) {
    for (total, amount) in sum.iter_mut().zip(amounts) {
        *total = total.saturating_add(amount.saturating_mul(times));
    }
}

/// A set of small numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Room for `size` numbers, none in the set.
    pub(crate) fn none(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    /// Of the numbers below `size` those for which `member` holds.
    pub(crate) fn of(size: usize, member: impl Fn(usize) -> bool) -> Self {
        let mut bits = Self::none(size);
        (0..size).filter(|index| member(*index)).for_each(|index| bits.insert(index));
        bits
    }

    /// All numbers below `size`.
    pub(crate) fn all(size: usize) -> Self {
        let mut words = vec![u64::MAX; size.div_ceil(64)];
        if let Some(last) = words.last_mut().filter(|_| !size.is_multiple_of(64)) {
            *last = (1 << (size % 64)) - 1;
        }
        Self(words)
    }

    /// The least member.
    pub(crate) fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    pub(crate) fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    pub(crate) fn keep(&mut self, other: &Self) {
        for (word, theirs) in self.0.iter_mut().zip(&other.0) {
            *word &= theirs;
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (word, theirs) in self.0.iter_mut().zip(&other.0) {
            *word |= theirs;
        }
    }

    /// Keeps the members for which `member` holds.
    pub(crate) fn retain(&mut self, member: impl Fn(usize) -> bool) {
        for (place, word) in self.0.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !member(place * 64 + bit) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| theirs & !mine == 0)
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(place, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(place * 64 + bit)
            })
        })
    }
}
