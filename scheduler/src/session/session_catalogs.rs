//! The catalogs of one session.

use crate::catalogs::CatalogCache;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum catalogs of a session: distinct node classes of one cluster.
pub(super) const MAX_CATALOGS: usize = 32;

/// Catalogs are kept for the whole session. If there are too many, the oldest catalog that the snapshot does not refer
/// to is dropped. Each price change creates a new catalog.
#[derive(Debug, Default)]
pub(super) struct SessionCatalogs {
    catalogs: BTreeMap<CatalogId, Catalog>,
    /// In order of arrival.
    order: Vec<CatalogId>,
}

impl SessionCatalogs {
    pub(super) fn catalogs(&self) -> &BTreeMap<CatalogId, Catalog> {
        &self.catalogs
    }

    /// Adds a catalog. Returns false if there is no capacity because all others are `needed`.
    pub(super) fn put(&mut self, id: CatalogId, catalog: &Catalog, needed: &BTreeSet<CatalogId>) -> bool {
        if self.catalogs.contains_key(&id) {
            return true;
        }
        if self.catalogs.len() >= MAX_CATALOGS {
            let Some(oldest) = self.order.iter().position(|id| !needed.contains(id)) else { return false };
            let removed = self.order.remove(oldest);
            self.catalogs.remove(&removed);
        }
        self.order.push(id.clone());
        self.catalogs.insert(id, catalog.clone());
        true
    }

    /// Returns the ids of `needed` that neither the session nor the shared cache has. Catalogs found in the shared
    /// cache are added to the session.
    pub(super) fn missing(&mut self, needed: &BTreeSet<CatalogId>, shared: &CatalogCache) -> Vec<CatalogId> {
        let unknown: Vec<CatalogId> = needed.iter().filter(|id| !self.catalogs.contains_key(id)).cloned().collect();
        let absent = |id: &CatalogId| shared.get(id).is_none_or(|catalog| !self.put(id.clone(), &catalog, needed));
        unknown.into_iter().filter(absent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(number: usize) -> Catalog {
        Catalog { region: number.to_string(), instance_types: Vec::new() }
    }

    #[test]
    fn needed_catalogs_are_kept_and_the_oldest_other_is_dropped() {
        let mut catalogs = SessionCatalogs::default();
        let ids: Vec<CatalogId> = (0..=MAX_CATALOGS).map(|number| catalog(number).id()).collect();
        let needed = BTreeSet::from([ids[0].clone()]);
        for (number, id) in ids.iter().enumerate() {
            assert!(catalogs.put(id.clone(), &catalog(number), &needed));
        }
        assert_eq!(catalogs.catalogs().len(), MAX_CATALOGS);
        assert!(catalogs.catalogs().contains_key(&ids[0]) && !catalogs.catalogs().contains_key(&ids[1]));
        let all_ids: BTreeSet<CatalogId> = catalogs.catalogs().keys().cloned().collect();
        assert!(!catalogs.put(ids[1].clone(), &catalog(1), &all_ids));
    }

    #[test]
    fn catalogs_of_the_shared_cache_are_not_missing() {
        let (mut catalogs, shared) = (SessionCatalogs::default(), CatalogCache::new());
        let (known, _) = shared.put(catalog(1));
        let unknown = catalog(2).id();
        let needed = BTreeSet::from([known.clone(), unknown.clone()]);
        assert_eq!(catalogs.missing(&needed, &shared), [unknown]);
        assert!(catalogs.catalogs().contains_key(&known));
    }
}
