//! What each node class can buy, as the actuator tells.

use crate::ledger::Unavailable;
use plimsoll_model::execution::CatalogUpdate;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as wire;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node class.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Class {
    generation: i64,
    catalog: Result<CatalogId, String>,
}

type Classes = BTreeMap<String, Class>;

/// Catalogs by node class. Nothing is known before every class has come.
#[derive(Debug, Clone, Default)]
pub struct Catalogs {
    classes: Classes,
    complete: bool,
    /// What a new stream has sent so far; what was known holds until it is complete.
    staged: Option<Classes>,
    contents: BTreeMap<CatalogId, Arc<wire::Catalog>>,
    unavailable: Option<Unavailable>,
}

impl Catalogs {
    /// Of which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new stream begins: it sends every class first. Returns the catalogs that need not come again.
    pub fn restart(&mut self) -> Vec<CatalogId> {
        self.staged = Some(Classes::new());
        self.contents.keys().cloned().collect()
    }

    /// Takes an update that came at `now`. Returns whether what is known changed; the error names a catalog that was
    /// referred to but is not known, and which class.
    ///
    /// # Errors
    /// If the content of a catalog is missing: the stream must begin anew.
    pub fn apply(&mut self, update: CatalogUpdate, now: Timestamp) -> Result<bool, String> {
        if let Some(catalog) = &update.catalog {
            let id = catalog.id();
            self.contents.entry(id).or_insert_with(|| Arc::new(catalog.into()));
        }
        if let Some(offerings) = update.unavailable_offerings {
            self.unavailable = Some(Unavailable::told(offerings, now));
        }
        let classes = self.staged.as_mut().unwrap_or(&mut self.classes);
        if update.removed {
            classes.remove(&update.node_class);
        } else if !update.node_class.is_empty() {
            let catalog = match (update.catalog_id, update.problem) {
                (Some(id), _) if !self.contents.contains_key(&id) => {
                    return Err(format!(
                        "the content of catalog {id} of node class {:?} did not come",
                        update.node_class
                    ));
                }
                (Some(id), _) => Ok(id),
                (None, problem) => Err(problem.unwrap_or_else(|| "no reason given".to_owned())),
            };
            classes.insert(update.node_class, Class { generation: update.generation, catalog });
        }
        if let Some(classes) = self.staged.take_if(|_| update.complete) {
            self.classes = classes;
            self.complete = true;
        }
        if self.staged.is_some() {
            return Ok(false);
        }
        let used: Vec<_> = self.classes.values().filter_map(|class| class.catalog.as_ref().ok()).collect();
        self.contents.retain(|id, _| used.contains(&id));
        Ok(true)
    }

    /// Whether every class has come once.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The catalog of a class that is of `generation` now. One that was worked out from an older class is not its own (rule 26).
    ///
    /// # Errors
    /// Why there is none.
    pub fn of_class(&self, class: &str, generation: i64) -> Result<CatalogId, String> {
        let Some(known) = self.classes.get(class) else { return Err("the actuator has not told of it yet".to_owned()) };
        if known.generation < generation {
            return Err(format!("only those of generation {} are known, it is {generation}", known.generation));
        }
        known.catalog.clone()
    }

    /// The content of a catalog.
    #[must_use]
    pub fn content(&self, id: &CatalogId) -> Option<Arc<wire::Catalog>> {
        self.contents.get(id).cloned()
    }

    /// Offerings without capacity; `None` if it does not say.
    #[must_use]
    pub fn unavailable(&self) -> Option<&Unavailable> {
        self.unavailable.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::Catalog;

    fn catalog(region: &str) -> Catalog {
        Catalog { region: region.to_owned(), ..Catalog::default() }
    }

    fn update(class: &str, generation: i64, catalog: &Catalog, sent: bool) -> CatalogUpdate {
        CatalogUpdate {
            node_class: class.to_owned(),
            generation,
            catalog_id: Some(catalog.id()),
            catalog: sent.then(|| catalog.clone()),
            ..CatalogUpdate::default()
        }
    }

    fn complete() -> CatalogUpdate {
        CatalogUpdate { complete: true, ..CatalogUpdate::default() }
    }

    #[test]
    fn classes_are_known_once_all_have_come_and_a_newer_class_has_no_catalog() {
        let (a, now) = (catalog("a"), Timestamp(0));
        let mut catalogs = Catalogs::new();
        assert_eq!(catalogs.restart(), []);
        assert_eq!(catalogs.apply(update("default", 2, &a, true), now), Ok(false));
        assert!(!catalogs.is_complete() && catalogs.of_class("default", 2).is_err());
        assert_eq!(catalogs.apply(complete(), now), Ok(true));
        assert!(catalogs.is_complete());
        assert_eq!(catalogs.of_class("default", 2), Ok(a.id()));
        let error = catalogs.of_class("default", 3).unwrap_err();
        assert_eq!(error, "only those of generation 2 are known, it is 3");
        assert!(catalogs.of_class("other", 1).is_err());
    }

    #[test]
    fn content_is_sent_once_and_kept_while_it_is_used() {
        let (a, b, now) = (catalog("a"), catalog("b"), Timestamp(0));
        let mut catalogs = Catalogs::new();
        catalogs.restart();
        catalogs.apply(update("default", 1, &a, true), now).unwrap();
        catalogs.apply(complete(), now).unwrap();
        assert_eq!(catalogs.restart(), [a.id()]);
        catalogs.apply(update("default", 1, &a, false), now).unwrap();
        catalogs.apply(complete(), now).unwrap();
        assert!(catalogs.content(&a.id()).is_some());
        let error = catalogs.apply(update("default", 2, &b, false), now).unwrap_err();
        assert!(error.contains(b.id().as_str()) && error.contains("default"), "{error}");
        catalogs.apply(update("default", 2, &b, true), now).unwrap();
        assert!(catalogs.content(&a.id()).is_none(), "no class uses it any more");
    }

    #[test]
    fn a_class_that_cannot_be_used_says_why() {
        let mut catalogs = Catalogs::new();
        catalogs.restart();
        let problem =
            CatalogUpdate { node_class: "x".into(), problem: Some("no subnet".into()), ..CatalogUpdate::default() };
        catalogs.apply(problem, Timestamp(0)).unwrap();
        catalogs.apply(complete(), Timestamp(0)).unwrap();
        assert_eq!(catalogs.of_class("x", 0), Err("no subnet".to_owned()));
        let gone = CatalogUpdate { node_class: "x".into(), removed: true, ..CatalogUpdate::default() };
        catalogs.apply(gone, Timestamp(0)).unwrap();
        assert_ne!(catalogs.of_class("x", 0), Err("no subnet".to_owned()));
    }
}
