//! The catalogs of one session.

use crate::catalogs::CatalogCache;
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::identity::CatalogId;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum catalogs that the snapshot does not refer to. Earlier watchers send new ones before the snapshot that refers
/// to them. One that is dropped and needed after all comes from the shared cache, or is requested again.
pub(super) const MAX_OTHERS: usize = 32;

/// Maximum estimated memory of a session's catalogs: a quarter of the memory that the chart allows a replica. A catalog
/// of all instance types of the largest region takes 5 MiB, so a snapshot may refer to some hundred of them.
pub(super) const MAX_BYTES: usize = 512 << 20;

/// Memory of two short strings, or of a string and a number, in a map.
const ENTRY_BYTES: usize = 64;

/// Catalogs are kept for the whole session. If there are too many, the oldest catalog that the snapshot does not refer
/// to is dropped. Each price change creates a new catalog.
#[derive(Debug)]
pub(super) struct SessionCatalogs {
    catalogs: BTreeMap<CatalogId, Catalog>,
    /// Ids with the memory of each, in order of arrival.
    order: Vec<(CatalogId, usize)>,
    max_bytes: usize,
}

impl Default for SessionCatalogs {
    fn default() -> Self {
        Self { catalogs: BTreeMap::new(), order: Vec::new(), max_bytes: MAX_BYTES }
    }
}

impl SessionCatalogs {
    pub(super) fn catalogs(&self) -> &BTreeMap<CatalogId, Catalog> {
        &self.catalogs
    }

    /// Adds a catalog. Returns false if it is `needed` and there is no memory for it beside the others that are.
    pub(super) fn put(&mut self, id: CatalogId, catalog: &Catalog, needed: &BTreeSet<CatalogId>) -> bool {
        if self.catalogs.contains_key(&id) {
            return true;
        }
        let (bytes, is_needed) = (estimated_bytes(catalog), needed.contains(&id));
        // Each pass drops a catalog.
        while !self.has_room(bytes, is_needed, needed) {
            let Some(oldest) = self.order.iter().position(|(id, _)| !needed.contains(id)) else { return !is_needed };
            let (removed, _) = self.order.remove(oldest);
            self.catalogs.remove(&removed);
        }
        self.order.push((id.clone(), bytes));
        self.catalogs.insert(id, catalog.clone());
        true
    }

    fn has_room(&self, bytes: usize, is_needed: bool, needed: &BTreeSet<CatalogId>) -> bool {
        let others = self.order.iter().filter(|(id, _)| !needed.contains(id)).count() + usize::from(!is_needed);
        let total = self.order.iter().map(|(_, bytes)| bytes).sum::<usize>().saturating_add(bytes);
        others <= MAX_OTHERS && total <= self.max_bytes
    }

    /// Returns the ids of `needed` that neither the session nor the shared cache has. Catalogs found in the shared
    /// cache are added to the session.
    pub(super) fn missing(&mut self, needed: &BTreeSet<CatalogId>, shared: &CatalogCache) -> Vec<CatalogId> {
        let unknown: Vec<CatalogId> = needed.iter().filter(|id| !self.catalogs.contains_key(id)).cloned().collect();
        let absent = |id: &CatalogId| shared.get(id).is_none_or(|catalog| !self.put(id.clone(), &catalog, needed));
        unknown.into_iter().filter(absent).collect()
    }
}

/// Memory that a catalog takes, at least.
fn estimated_bytes(catalog: &Catalog) -> usize {
    let of_offering = |it: &Offering| size_of::<Offering>() + it.zone.len() + it.zone_id.len();
    let of_type = |it: &InstanceType| {
        let labels: usize = it.labels.iter().map(|(key, value)| ENTRY_BYTES + key.len() + value.len()).sum();
        let amounts = ENTRY_BYTES * (it.capacity.iter().count() + it.overhead.iter().count());
        size_of::<InstanceType>() + labels + amounts + it.offerings.iter().map(of_offering).sum::<usize>()
    };
    catalog.region.len() + catalog.instance_types.iter().map(of_type).sum::<usize>()
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
        let ids: Vec<CatalogId> = (0..MAX_OTHERS + 2).map(|number| catalog(number).id()).collect();
        let needed = BTreeSet::from([ids[0].clone()]);
        for (number, id) in ids.iter().enumerate() {
            assert!(catalogs.put(id.clone(), &catalog(number), &needed));
        }
        assert_eq!(catalogs.catalogs().len(), MAX_OTHERS + 1);
        assert!(catalogs.catalogs().contains_key(&ids[0]) && !catalogs.catalogs().contains_key(&ids[1]));
        let all: BTreeSet<CatalogId> = ids.iter().cloned().collect();
        assert!(catalogs.put(ids[1].clone(), &catalog(1), &all), "their number has no limit");
        assert_eq!(catalogs.catalogs().len(), MAX_OTHERS + 2);
    }

    #[test]
    fn needed_catalogs_are_refused_above_a_size_and_others_are_dropped() {
        let mut catalogs = SessionCatalogs { max_bytes: 25, ..SessionCatalogs::default() };
        let of_ten = Catalog { region: "10 letters".to_owned(), instance_types: Vec::new() };
        let mut put = |id: &str, needed: &[&str]| {
            let needed = needed.iter().map(|id| CatalogId((*id).to_owned())).collect();
            let fits = catalogs.put(CatalogId(id.to_owned()), &of_ten, &needed);
            (fits, catalogs.catalogs().keys().map(|id| id.0.clone()).collect::<Vec<_>>().concat())
        };
        assert_eq!(put("a", &[]), (true, "a".to_owned()));
        assert_eq!(put("b", &["b"]), (true, "ab".to_owned()));
        assert_eq!(put("c", &["b", "c"]), (true, "bc".to_owned()));
        assert_eq!(put("d", &["b", "c"]), (true, "bc".to_owned()), "it may never be needed");
        assert_eq!(put("d", &["b", "c", "d"]), (false, "bc".to_owned()));
        assert_eq!(put("d", &["c", "d"]), (true, "cd".to_owned()));
    }

    #[test]
    fn catalogs_of_the_shared_cache_are_not_missing() {
        let (mut catalogs, shared) = (SessionCatalogs::default(), CatalogCache::default());
        let (known, _) = shared.put(catalog(1));
        let unknown = catalog(2).id();
        let needed = BTreeSet::from([known.clone(), unknown.clone()]);
        assert_eq!(catalogs.missing(&needed, &shared), [unknown]);
        assert!(catalogs.catalogs().contains_key(&known));
    }
}
