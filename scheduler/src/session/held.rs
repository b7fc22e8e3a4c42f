//! The catalogs of one session.

use crate::catalogs::CatalogCache;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use std::collections::{BTreeMap, BTreeSet};

/// Catalogs that a session holds at most: node classes of one cluster that can buy different things.
pub(super) const MAX_HELD: usize = 32;

/// Kept for as long as the session lasts or, if there are too many, as long as the snapshot refers to them: a change of
/// prices makes a new catalog.
#[derive(Debug, Default)]
pub(super) struct Held {
    catalogs: BTreeMap<CatalogId, Catalog>,
    /// In the order in which they came.
    order: Vec<CatalogId>,
}

impl Held {
    pub(super) fn catalogs(&self) -> &BTreeMap<CatalogId, Catalog> {
        &self.catalogs
    }

    /// Adds one; false if there is no room because all the others are `needed`.
    pub(super) fn put(&mut self, id: CatalogId, catalog: &Catalog, needed: &BTreeSet<CatalogId>) -> bool {
        if self.catalogs.contains_key(&id) {
            return true;
        }
        if self.catalogs.len() >= MAX_HELD {
            let Some(oldest) = self.order.iter().position(|one| !needed.contains(one)) else { return false };
            let gone = self.order.remove(oldest);
            self.catalogs.remove(&gone);
        }
        self.order.push(id.clone());
        self.catalogs.insert(id, catalog.clone());
        true
    }

    /// Which of `needed` are neither held nor in the shared cache; those of the cache are held from now on.
    pub(super) fn missing(&mut self, needed: &BTreeSet<CatalogId>, shared: &CatalogCache) -> Vec<CatalogId> {
        let lacking: Vec<CatalogId> = needed.iter().filter(|id| !self.catalogs.contains_key(id)).cloned().collect();
        let absent = |id: &CatalogId| shared.get(id).is_none_or(|catalog| !self.put(id.clone(), &catalog, needed));
        lacking.into_iter().filter(absent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(number: usize) -> Catalog {
        Catalog { region: number.to_string(), instance_types: Vec::new() }
    }

    #[test]
    fn what_is_needed_stays_and_the_oldest_other_goes() {
        let mut held = Held::default();
        let ids: Vec<CatalogId> = (0..=MAX_HELD).map(|number| catalog(number).id()).collect();
        let needed = BTreeSet::from([ids[0].clone()]);
        for (number, id) in ids.iter().enumerate() {
            assert!(held.put(id.clone(), &catalog(number), &needed));
        }
        assert_eq!(held.catalogs().len(), MAX_HELD);
        assert!(held.catalogs().contains_key(&ids[0]) && !held.catalogs().contains_key(&ids[1]));
        let all: BTreeSet<CatalogId> = held.catalogs().keys().cloned().collect();
        assert!(!held.put(ids[1].clone(), &catalog(1), &all));
    }

    #[test]
    fn the_shared_cache_is_asked_first() {
        let (mut held, shared) = (Held::default(), CatalogCache::new());
        let (known, _) = shared.put(catalog(1));
        let unknown = catalog(2).id();
        let needed = BTreeSet::from([known.clone(), unknown.clone()]);
        assert_eq!(held.missing(&needed, &shared), [unknown]);
        assert!(held.catalogs().contains_key(&known));
    }
}
