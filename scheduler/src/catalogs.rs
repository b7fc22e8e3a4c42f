//! Catalogs that sessions have brought, by content: a replica that has one does not need it again.

use parking_lot::Mutex;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use std::sync::Arc;

/// Catalogs kept at most: some clusters' node classes, before and after a change of prices. Each has some megabytes.
pub const MAX_CATALOGS: usize = 64;

/// What all sessions of a replica share. It changes no plan, only what need not be sent.
#[derive(Debug, Default)]
pub struct CatalogCache {
    /// The one used last comes last.
    catalogs: Mutex<Vec<(CatalogId, Arc<Catalog>)>>,
}

impl CatalogCache {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a catalog, and lets go of the one that was not used for the longest time if there are too many.
    pub fn put(&self, catalog: Catalog) -> (CatalogId, Arc<Catalog>) {
        let id = catalog.id();
        if let Some(known) = self.get(&id) {
            return (id, known);
        }
        let catalog = Arc::new(catalog);
        let mut catalogs = self.catalogs.lock();
        if catalogs.len() >= MAX_CATALOGS {
            catalogs.remove(0);
        }
        catalogs.push((id.clone(), Arc::clone(&catalog)));
        (id, catalog)
    }

    /// The catalog of that content, which counts as used now.
    #[must_use]
    pub fn get(&self, id: &CatalogId) -> Option<Arc<Catalog>> {
        let mut catalogs = self.catalogs.lock();
        let found = catalogs.iter().position(|(known, _)| known == id)?;
        let entry = catalogs.remove(found);
        let catalog = Arc::clone(&entry.1);
        catalogs.push(entry);
        Some(catalog)
    }

    /// What is there, sorted.
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
    fn the_one_unused_for_longest_goes_first() {
        let cache = CatalogCache::new();
        let ids: Vec<CatalogId> = (0..MAX_CATALOGS).map(|number| cache.put(catalog(number)).0).collect();
        assert!(cache.get(&ids[0]).is_some());
        let (newest, _) = cache.put(catalog(MAX_CATALOGS));
        assert_eq!(cache.ids().len(), MAX_CATALOGS);
        assert!(cache.get(&ids[1]).is_none() && cache.get(&ids[0]).is_some() && cache.get(&newest).is_some());
    }

    #[test]
    fn equal_content_is_kept_once() {
        let cache = CatalogCache::new();
        let (first, second) = (cache.put(catalog(1)), cache.put(catalog(1)));
        assert!(first.0 == second.0 && Arc::ptr_eq(&first.1, &second.1));
        assert_eq!(cache.ids(), [first.0]);
    }
}
