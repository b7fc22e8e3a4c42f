//! Catalogs of the node classes, as received from the actuator.

use crate::ledger::UnavailableOfferings;
use plimsoll_model::execution::CatalogUpdate;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as wire;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Catalog of a node class at a generation of the class, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClassCatalog {
    generation: i64,
    /// The actuator's id of the catalog.
    received: Option<CatalogId>,
    catalog: Result<CatalogId, String>,
}

type Classes = BTreeMap<String, ClassCatalog>;

/// Catalogs by node class. Unknown until the first full list is complete.
#[derive(Debug, Clone, Default)]
pub struct Catalogs {
    classes: Classes,
    complete: bool,
    /// Content of a new stream so far. The previous content stays valid until the stream is complete.
    staged: Option<Classes>,
    contents: BTreeMap<CatalogId, Arc<wire::Catalog>>,
    /// The actuator's id of each content. It differs from our own if the actuator has another version, whose ids cover
    /// other fields; a scheduler of our version checks our own.
    received: BTreeMap<CatalogId, CatalogId>,
    unavailable: Option<UnavailableOfferings>,
    shifted_zones: BTreeSet<String>,
}

impl Catalogs {
    /// Marks the start of a new stream, which begins with all classes. Returns the ids of catalogs whose content the
    /// actuator need not send again.
    pub fn restart(&mut self) -> Vec<CatalogId> {
        self.staged = Some(Classes::new());
        self.received.keys().cloned().collect()
    }

    /// Applies an update received at `now`. Returns whether the visible catalogs changed.
    ///
    /// # Errors
    /// If the update refers to a catalog whose content is missing. The stream must be reopened.
    pub fn apply(&mut self, update: CatalogUpdate, now: Timestamp) -> Result<bool, String> {
        if let (Some(received), Some(catalog)) = (&update.catalog_id, &update.catalog) {
            let id = catalog.id();
            self.received.insert(received.clone(), id.clone());
            self.contents.entry(id).or_insert_with(|| Arc::new(catalog.into()));
        }
        if let Some(offerings) = update.unavailable_offerings {
            self.unavailable = Some(UnavailableOfferings::received(offerings, now));
        }
        if let Some(zones) = update.shifted_zones {
            self.shifted_zones = zones;
        }
        let classes = self.staged.as_mut().unwrap_or(&mut self.classes);
        if update.removed {
            classes.remove(&update.node_class);
        } else if !update.node_class.is_empty() {
            let catalog = match (&update.catalog_id, update.problem) {
                (Some(received), _) => Ok(self.received.get(received).cloned().ok_or_else(|| {
                    format!("the content of catalog {received} of node class {:?} did not come", update.node_class)
                })?),
                (None, problem) => Err(problem.unwrap_or_else(|| "no reason given".to_owned())),
            };
            let class = ClassCatalog { generation: update.generation, received: update.catalog_id, catalog };
            classes.insert(update.node_class, class);
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
        let named: Vec<_> = self.classes.values().filter_map(|class| class.received.as_ref()).collect();
        self.received.retain(|name, _| named.contains(&name));
        Ok(true)
    }

    /// Whether the first full list is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the catalog of a class at `generation`. A catalog of an older generation is not returned, because the
    /// class has changed since.
    ///
    /// # Errors
    /// The reason why the class has no catalog.
    pub fn of_class(&self, class: &str, generation: i64) -> Result<CatalogId, String> {
        let Some(entry) = self.classes.get(class) else {
            return Err("the actuator has not sent the catalog yet".to_owned());
        };
        if entry.generation < generation {
            return Err(format!("only those of generation {} are known, it is {generation}", entry.generation));
        }
        entry.catalog.clone()
    }

    /// Returns the content of a catalog.
    #[must_use]
    pub fn content(&self, id: &CatalogId) -> Option<Arc<wire::Catalog>> {
        self.contents.get(id).cloned()
    }

    /// Offerings without capacity; `None` if the actuator has not reported them.
    #[must_use]
    pub fn unavailable(&self) -> Option<&UnavailableOfferings> {
        self.unavailable.as_ref()
    }

    /// Zones that the cluster is shifted away from.
    #[must_use]
    pub fn shifted_zones(&self) -> &BTreeSet<String> {
        &self.shifted_zones
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
    fn catalogs_are_complete_after_the_full_list_and_a_newer_class_generation_has_no_catalog() {
        let (a, now) = (catalog("a"), Timestamp(0));
        let mut catalogs = Catalogs::default();
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
    fn content_is_kept_while_a_class_uses_it() {
        let (a, b, now) = (catalog("a"), catalog("b"), Timestamp(0));
        let mut catalogs = Catalogs::default();
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

    /// The id of an actuator of another version is a name for the content, and no more.
    #[test]
    fn the_actuators_id_may_differ_from_our_own() {
        let (a, now) = (catalog("a"), Timestamp(0));
        let with_id = |sent| CatalogUpdate { catalog_id: Some("later".into()), ..update("default", 1, &a, sent) };
        let mut catalogs = Catalogs::default();
        catalogs.restart();
        catalogs.apply(with_id(true), now).unwrap();
        catalogs.apply(complete(), now).unwrap();
        assert_eq!(catalogs.of_class("default", 1), Ok(a.id()));
        assert_eq!(catalogs.content(&a.id()).map(|content| content.id.clone()), Some(a.id().0));
        assert_eq!(catalogs.restart(), [CatalogId::from("later")], "the id by which the actuator knows it");
        catalogs.apply(with_id(false), now).unwrap();
        catalogs.apply(complete(), now).unwrap();
        assert_eq!(catalogs.of_class("default", 1), Ok(a.id()));
        let renamed = CatalogUpdate { catalog_id: Some("even-later".into()), ..update("default", 1, &a, true) };
        catalogs.apply(renamed, now).unwrap();
        assert_eq!(catalogs.of_class("default", 1), Ok(a.id()));
        assert_eq!(catalogs.received.len(), 1, "no class has the former name any more");
        let removed = CatalogUpdate { node_class: "default".into(), removed: true, ..CatalogUpdate::default() };
        catalogs.apply(removed, now).unwrap();
        assert_eq!(catalogs.restart(), [], "neither is kept");
    }

    #[test]
    fn shifted_zones_are_those_of_the_last_update_that_has_any_list() {
        let shifted = |zones: &[&str]| CatalogUpdate {
            shifted_zones: Some(zones.iter().map(|zone| (*zone).to_owned()).collect()),
            ..complete()
        };
        let mut catalogs = Catalogs::default();
        catalogs.restart();
        catalogs.apply(shifted(&["a", "b"]), Timestamp(0)).unwrap();
        catalogs.apply(complete(), Timestamp(0)).unwrap();
        assert_eq!(catalogs.shifted_zones().iter().collect::<Vec<_>>(), ["a", "b"]);
        catalogs.apply(shifted(&[]), Timestamp(0)).unwrap();
        assert!(catalogs.shifted_zones().is_empty());
    }

    #[test]
    fn a_class_without_a_catalog_reports_the_problem() {
        let mut catalogs = Catalogs::default();
        catalogs.restart();
        let problem =
            CatalogUpdate { node_class: "x".into(), problem: Some("no subnet".into()), ..CatalogUpdate::default() };
        catalogs.apply(problem, Timestamp(0)).unwrap();
        catalogs.apply(complete(), Timestamp(0)).unwrap();
        assert_eq!(catalogs.of_class("x", 0), Err("no subnet".to_owned()));
        let removed = CatalogUpdate { node_class: "x".into(), removed: true, ..CatalogUpdate::default() };
        catalogs.apply(removed, Timestamp(0)).unwrap();
        assert_ne!(catalogs.of_class("x", 0), Err("no subnet".to_owned()));
    }
}
