//! Cache of the catalogs that sessions have sent, by content. A catalog in the cache need not be sent again.

use parking_lot::Mutex;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use std::sync::Arc;

/// Maximum cached catalogs: those of several clusters' node classes before and after a price change. Each takes some
/// megabytes.
pub const MAX_CATALOGS: usize = 64;

/// Catalogs shared by all sessions of a replica. The cache saves transfers and does not affect plans.
#[derive(Debug, Default)]
pub struct CatalogCache {
    /// In order of last use, most recent last.
    catalogs: Mutex<Vec<(CatalogId, Arc<Catalog>)>>,
}

impl CatalogCache {
    /// Adds a catalog. Evicts the least recently used catalog if the cache is full.
    pub fn put(&self, catalog: Catalog) -> (CatalogId, Arc<Catalog>) {
        let id = catalog.id();
        if let Some(cached) = self.get(&id) {
            return (id, cached);
        }
        let catalog = Arc::new(catalog);
        let mut catalogs = self.catalogs.lock();
        if catalogs.len() >= MAX_CATALOGS {
            catalogs.remove(0);
        }
        catalogs.push((id.clone(), Arc::clone(&catalog)));
        (id, catalog)
    }

    /// Returns a catalog and marks it as used.
    #[must_use]
    pub fn get(&self, id: &CatalogId) -> Option<Arc<Catalog>> {
        let mut catalogs = self.catalogs.lock();
        let position = catalogs.iter().position(|(cached, _)| cached == id)?;
        let entry = catalogs.remove(position);
        let catalog = Arc::clone(&entry.1);
        catalogs.push(entry);
        Some(catalog)
    }

    /// Ids of all cached catalogs, sorted.
    #[must_use]
    pub fn ids(&self) -> Vec<CatalogId> {
        let mut ids: Vec<CatalogId> = self.catalogs.lock().iter().map(|(id, _)| id.clone()).collect();
        ids.sort();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(number: usize) -> Catalog {
        Catalog { region: format!("region-{number}"), instance_types: Vec::new() }
    }

    #[test]
    fn the_least_recently_used_catalog_is_evicted() {
        let cache = CatalogCache::default();
        let ids: Vec<CatalogId> = (0..MAX_CATALOGS).map(|number| cache.put(catalog(number)).0).collect();
        assert!(cache.get(&ids[0]).is_some());
        let (newest, _) = cache.put(catalog(MAX_CATALOGS));
        assert_eq!(cache.ids().len(), MAX_CATALOGS);
        assert!(cache.get(&ids[1]).is_none() && cache.get(&ids[0]).is_some() && cache.get(&newest).is_some());
    }

    #[test]
    fn equal_content_is_stored_once() {
        let cache = CatalogCache::default();
        let (first, second) = (cache.put(catalog(1)), cache.put(catalog(1)));
        assert!(first.0 == second.0 && Arc::ptr_eq(&first.1, &second.1));
        assert_eq!(cache.ids(), [first.0]);
    }
}
