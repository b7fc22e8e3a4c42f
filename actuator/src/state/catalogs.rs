//! The catalog of each node class: what the class can launch now. Catalogs are sent to the scheduler.
//!
//! A catalog is immutable and identified by the hash of its content. A change of EC2 facts, prices or the node class
//! creates a new one.

use parking_lot::Mutex;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// Instance types by the zone that EC2 offers them in, whether or not their prices are known.
pub type OfferedTypes = Arc<BTreeMap<String, BTreeSet<String>>>;

/// The catalog of one node class.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogEntry {
    /// `metadata.generation` of the node class that the catalog was built from.
    pub generation: i64,
    /// The catalog with its id; `None` if there is none, see `problem`.
    pub catalog: Option<(CatalogId, Arc<Catalog>)>,
    /// The catalog is built in, since EC2 has not answered yet. It serves launches; a missing type means nothing.
    pub is_provisional: bool,
    /// The types that EC2 offers in the region. The catalog lacks those without a price.
    pub offered: OfferedTypes,
    /// The catalog of a new class, of which nothing is looked up yet. It serves the class's validation and is not
    /// sent: what is available in it may be in zones without a subnet, and `catalog` follows within a second.
    pub unsent: Option<Arc<Catalog>>,
    /// Why the node class cannot launch anything now; `None` if it can.
    pub problem: Option<String>,
}

/// All entries by node class.
pub type Entries = Arc<BTreeMap<String, Arc<CatalogEntry>>>;

/// The catalogs of all node classes. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct Catalogs {
    entries: watch::Sender<Entries>,
    /// Live catalogs by id, so that node classes with equal content share one.
    interned: Arc<Mutex<BTreeMap<CatalogId, std::sync::Weak<Catalog>>>>,
}

impl CatalogEntry {
    /// The types and zones of the class, known or not to the scheduler.
    #[must_use]
    pub fn any_catalog(&self) -> Option<&Arc<Catalog>> {
        self.catalog.as_ref().map(|(_, catalog)| catalog).or(self.unsent.as_ref())
    }
}

impl Catalogs {
    /// The entry of a node class.
    #[must_use]
    pub fn get(&self, node_class: &str) -> Option<Arc<CatalogEntry>> {
        self.entries.borrow().get(node_class).cloned()
    }

    /// All entries.
    #[must_use]
    pub fn all(&self) -> Entries {
        Arc::clone(&self.entries.borrow())
    }

    /// Subscribes to the entries. The receiver holds the current value and sees each change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Entries> {
        self.entries.subscribe()
    }

    /// Replaces all entries. Notifies subscribers only if something differs.
    pub fn replace(&self, entries: BTreeMap<String, CatalogEntry>) {
        let entries: BTreeMap<_, _> =
            entries.into_iter().map(|(name, entry)| (name, Arc::new(self.share(entry)))).collect();
        self.entries.send_if_modified(|current| {
            let differs = **current != entries;
            if differs {
                *current = Arc::new(entries);
            }
            differs
        });
    }

    /// Replaces the entry's catalog by the live one with the same content, if there is one.
    #[must_use]
    pub fn share(&self, mut entry: CatalogEntry) -> CatalogEntry {
        if let Some((id, catalog)) = &mut entry.catalog {
            let mut interned = self.interned.lock();
            interned.retain(|_, catalog| catalog.strong_count() > 0);
            match interned.get(id).and_then(std::sync::Weak::upgrade) {
                Some(interned) => *catalog = interned,
                None => drop(interned.insert(id.clone(), Arc::downgrade(catalog))),
            }
        }
        entry
    }
}

/// Catalogs for tests.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;
    use plimsoll_model::catalog::InstanceType;
    use plimsoll_model::resources::Resources;

    /// An instance type without capacity, labels and offerings.
    pub(crate) fn instance_type(name: &str) -> InstanceType {
        InstanceType {
            name: name.to_owned(),
            architecture: "amd64".to_owned(),
            operating_systems: vec!["linux".to_owned()],
            capacity: Resources::new(),
            overhead: Resources::new(),
            labels: BTreeMap::new(),
            offerings: Vec::new(),
        }
    }

    /// The entries of a cluster with the node class `default`, which has one instance type.
    pub(crate) fn entries(instance_type: InstanceType) -> Entries {
        let entry = entry(1, Catalog { region: "us-west-2".to_owned(), instance_types: vec![instance_type] });
        Arc::new([("default".to_owned(), Arc::new(entry))].into())
    }

    /// The entry of the node class `default`.
    pub(super) fn entry(generation: i64, catalog: Catalog) -> CatalogEntry {
        CatalogEntry {
            generation,
            catalog: Some((catalog.id(), Arc::new(catalog))),
            is_provisional: false,
            offered: Arc::default(),
            unsent: None,
            problem: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(generation: i64, region: &str) -> CatalogEntry {
        fixtures::entry(generation, Catalog { region: region.to_owned(), instance_types: Vec::new() })
    }

    #[test]
    fn subscribers_are_notified_only_of_differences() {
        let catalogs = Catalogs::default();
        let mut heard = catalogs.subscribe();
        catalogs.replace([("default".to_owned(), entry(1, "a"))].into());
        assert!(heard.has_changed().unwrap());
        heard.mark_unchanged();
        catalogs.replace([("default".to_owned(), entry(1, "a"))].into());
        assert!(!heard.has_changed().unwrap(), "the same again");
        catalogs.replace([("default".to_owned(), entry(2, "a"))].into());
        assert!(heard.has_changed().unwrap(), "another generation");
        catalogs.replace(BTreeMap::new());
        assert_eq!(catalogs.get("default"), None);
    }

    #[test]
    fn equal_catalogs_are_shared() {
        let catalogs = Catalogs::default();
        let two = [("one", "a"), ("two", "a"), ("three", "b")];
        catalogs.replace(two.into_iter().map(|(name, region)| (name.to_owned(), entry(1, region))).collect());
        let of = |name: &str| catalogs.get(name).unwrap().catalog.clone().unwrap().1;
        assert!(Arc::ptr_eq(&of("one"), &of("two")));
        assert!(!Arc::ptr_eq(&of("one"), &of("three")));
    }

    #[test]
    fn catalogs_that_no_class_has_any_more_are_forgotten() {
        let catalogs = Catalogs::default();
        for (generation, region) in [(1, "a"), (2, "b"), (3, "c")] {
            catalogs.replace([("default".to_owned(), entry(generation, region))].into());
        }
        // The second one was in use until the third one replaced it.
        assert_eq!(catalogs.interned.lock().len(), 2);
    }
}
