//! The core of the API server: objects, their history, and the rules of every operation. The store consists of plain
//! function calls and needs neither a runtime nor a clock.

mod delete;
mod garbage;
mod owners;
mod subresource;
#[cfg(test)]
mod tests;
mod write;

pub use delete::{DeleteOptions, Deleted, Propagation};
pub use subresource::Eviction;

use super::admission::Admission;
use super::apply::Owners;
use super::error::ApiError;
use super::object;
use super::resources::ResourceId;
use super::selector::{FieldSelector, LabelSelector};
use crate::seed::Rng;
use bytes::Bytes;
use jiff::Timestamp;
use owners::OwnerIndex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

/// Default number of changes kept per kind. A real server keeps a few minutes of history; a watcher that falls further
/// behind has to list again.
pub const DEFAULT_HISTORY: usize = 10_000;

/// A stored object: shared and immutable.
pub type Object = Arc<Value>;

/// Key of an object within its kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl Key {
    /// Creates a key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Key of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::new(object::namespace(object), object::name(object))
    }
}

/// Type of a change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The object is new, or new to the watcher.
    Added,
    /// The object changed.
    Modified,
    /// The object is deleted, or no longer visible to the watcher.
    Deleted,
}

impl ChangeKind {
    /// Type name in watch events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A change in the history of a kind.
#[derive(Debug)]
pub struct Event {
    /// Revision of the store after the change.
    pub revision: u64,
    /// Type of the change.
    pub kind: ChangeKind,
    /// Object after the change. For a deletion, its last state.
    pub object: Object,
    /// Object before the change.
    pub previous: Option<Object>,
    json: OnceLock<Bytes>,
}

impl Event {
    /// The object as JSON. Serialized once for all watchers.
    pub fn json(&self) -> Bytes {
        self.json.get_or_init(|| Bytes::from(self.object.to_string())).clone()
    }
}

/// Context of a write request.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Current time.
    pub now: Timestamp,
    /// Field manager.
    pub manager: &'a str,
    /// Validate and respond, but do not store.
    pub dry_run: bool,
}

impl<'a> Write<'a> {
    /// A write that is not a dry run.
    #[must_use]
    pub fn new(now: Timestamp, manager: &'a str) -> Self {
        Self { now, manager, dry_run: false }
    }
}

/// Part of an object that a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything except the status, if the kind has a status subresource.
    Main,
    /// The status only.
    Status,
}

/// Selects objects of a kind.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// One namespace, or all if `None`.
    pub namespace: Option<String>,
    /// Label selector.
    pub labels: LabelSelector,
    /// Field selector.
    pub fields: FieldSelector,
}

impl Filter {
    /// Selects all objects of one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Whether the filter selects an object.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| object::namespace(object) == namespace)
            && self.labels.matches(object)
            && self.fields.matches(object)
    }
}

/// One page of a list.
#[derive(Debug)]
pub struct Listing {
    /// Revision of the list, the same for all its pages.
    pub revision: u64,
    /// Objects in order of namespace and name.
    pub items: Vec<Object>,
    /// Last key of this page, if more objects follow.
    pub next: Option<Key>,
    /// Number of objects after this page.
    pub remaining: usize,
}

/// Range of a page.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Revision to list; the current one if `None`.
    pub revision: Option<u64>,
    /// The page starts after this key.
    pub after: Option<Key>,
    /// Maximum number of objects; 0 for no limit.
    pub limit: usize,
}

#[derive(Debug, Clone)]
struct Stored {
    object: Object,
    owners: Arc<Owners>,
}

#[derive(Debug, Default)]
struct ObjectHistory {
    objects: BTreeMap<Key, Stored>,
    history: VecDeque<Arc<Event>>,
    /// Newest revision that has been dropped from the history.
    forgotten: u64,
}

/// All objects of a cluster.
pub struct Store {
    by_resource: Vec<ObjectHistory>,
    revision: u64,
    history_limit: usize,
    rng: Rng,
    admission: Admission,
    owner_index: OwnerIndex,
    dirty: BTreeSet<ResourceId>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Store {
    /// Creates a store with the objects that every cluster has: the default namespaces and priority classes.
    #[must_use]
    pub fn new(seed: u64, now: Timestamp) -> Self {
        let mut store = Self {
            by_resource: ResourceId::all().map(|_| ObjectHistory::default()).collect(),
            revision: 0,
            history_limit: DEFAULT_HISTORY,
            rng: Rng::new(seed),
            admission: Admission::default(),
            owner_index: OwnerIndex::default(),
            dirty: BTreeSet::new(),
        };
        for (resource, object) in super::admission::bootstrap() {
            let created = store.create(resource, "", object, &Write::new(now, "apiserver"));
            debug_assert!(created.is_ok(), "the objects of an empty cluster are valid");
        }
        store
    }

    /// Sets the maximum number of changes kept per kind and trims the existing history.
    pub fn set_history_limit(&mut self, limit: usize) {
        self.history_limit = limit;
        for of_resource in &mut self.by_resource {
            of_resource.trim(limit);
        }
    }

    /// Admission hooks, which run on each object before it is stored.
    pub fn admission_mut(&mut self) -> &mut Admission {
        &mut self.admission
    }

    /// Current revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the kinds written to since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<ResourceId> {
        std::mem::take(&mut self.dirty)
    }

    /// Returns one object.
    ///
    /// # Errors
    /// 404 if it does not exist.
    pub fn get(&self, resource: ResourceId, namespace: &str, name: &str) -> Result<Object, ApiError> {
        self.find(resource, &Key::new(namespace, name)).ok_or_else(|| ApiError::not_found(resource.get(), name))
    }

    /// Returns one object, or `None` if it does not exist.
    #[must_use]
    pub fn find(&self, resource: ResourceId, key: &Key) -> Option<Object> {
        self.of_resource(resource).objects.get(key).map(|stored| stored.object.clone())
    }

    /// All objects of a kind, in order of namespace and name.
    pub fn all(&self, resource: ResourceId) -> impl Iterator<Item = (&Key, &Object)> {
        self.of_resource(resource).objects.iter().map(|(key, stored)| (key, &stored.object))
    }

    /// Lists one page of the objects that a filter selects. All pages of a list show the same revision.
    ///
    /// # Errors
    /// 410 if the revision is no longer in the history, 504 if it lies in the future.
    pub fn list(&self, resource: ResourceId, filter: &Filter, page: &Page) -> Result<Listing, ApiError> {
        let revision = page.revision.unwrap_or(self.revision);
        let past;
        let objects: &mut dyn Iterator<Item = (&Key, &Object)> = if revision == self.revision {
            &mut self.all(resource)
        } else {
            past = self.at_revision(resource, revision)?;
            &mut past.iter()
        };
        let mut selected = objects
            .filter(|(key, object)| page.after.as_ref().is_none_or(|after| *key > after) && filter.matches(object));
        let limit = if page.limit == 0 { usize::MAX } else { page.limit };
        let items: Vec<Object> = selected.by_ref().take(limit).map(|(_, object)| object.clone()).collect();
        let remaining = selected.count();
        let next = items.last().filter(|_| remaining > 0).map(|object| Key::of(object));
        Ok(Listing { revision, items, next, remaining })
    }

    /// Objects of a kind at an earlier revision, reconstructed by undoing later changes.
    fn at_revision(&self, resource: ResourceId, revision: u64) -> Result<BTreeMap<Key, Object>, ApiError> {
        let mut objects: BTreeMap<Key, Object> =
            self.all(resource).map(|(key, object)| (key.clone(), object.clone())).collect();
        for event in self.events_after(resource, revision)?.rev() {
            let key = Key::of(&event.object);
            match &event.previous {
                Some(previous) => objects.insert(key, previous.clone()),
                None => objects.remove(&key),
            };
        }
        Ok(objects)
    }

    /// Changes of a kind after a revision, oldest first.
    ///
    /// # Errors
    /// 410 if some of them have been dropped from the history, 504 if the revision lies in the future.
    pub fn events_after(
        &self,
        resource: ResourceId,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Event>>, ApiError> {
        let of_resource = self.of_resource(resource);
        if revision < of_resource.forgotten {
            return Err(ApiError::expired(revision, of_resource.forgotten));
        }
        if revision > self.revision {
            return Err(ApiError::too_large_version(revision, self.revision));
        }
        let start = of_resource.history.partition_point(|event| event.revision <= revision);
        Ok(of_resource.history.range(start..))
    }

    /// Type of change that a watcher with this filter observes. An object that starts to match counts as added, one
    /// that stops matching as deleted.
    #[must_use]
    pub fn seen(event: &Event, filter: &Filter) -> Option<ChangeKind> {
        let now = event.kind != ChangeKind::Deleted && filter.matches(&event.object);
        let before = event.previous.as_ref().is_some_and(|previous| filter.matches(previous));
        match (before, now) {
            (false, true) => Some(ChangeKind::Added),
            (true, true) => Some(ChangeKind::Modified),
            (true, false) => Some(ChangeKind::Deleted),
            (false, false) => None,
        }
    }

    fn of_resource(&self, resource: ResourceId) -> &ObjectHistory {
        &self.by_resource[resource.index()]
    }

    fn stored(&self, resource: ResourceId, key: &Key) -> Result<Stored, ApiError> {
        let found = self.of_resource(resource).objects.get(key).cloned();
        found.ok_or_else(|| ApiError::not_found(resource.get(), &key.name))
    }

    /// Stores an object at a new revision. The caller has applied all rules.
    fn put(&mut self, resource: ResourceId, key: Key, mut object: Value, owners: Owners) -> Object {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = Value::from(self.revision.to_string());
        match owners.shown(resource.get()) {
            Some(rows) => object["metadata"]["managedFields"] = rows,
            None => drop(object::remove(&mut object, &["metadata", "managedFields"])),
        }
        let object = Arc::new(object);
        self.owner_index.put(resource, &key, &object);
        let stored = Stored { object: object.clone(), owners: Arc::new(owners) };
        let previous = self.by_resource[resource.index()].objects.insert(key, stored).map(|stored| stored.object);
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.note(resource, kind, object.clone(), previous);
        object
    }

    /// Removes an object immediately. The caller has applied all rules.
    fn take(&mut self, resource: ResourceId, key: &Key) -> Option<Object> {
        let old = self.by_resource[resource.index()].objects.remove(key)?.object;
        self.revision += 1;
        let mut last = (*old).clone();
        last["metadata"]["resourceVersion"] = Value::from(self.revision.to_string());
        let last = Arc::new(last);
        self.owner_index.take(resource, key, &last);
        self.note(resource, ChangeKind::Deleted, last.clone(), Some(old));
        Some(last)
    }

    fn note(&mut self, resource: ResourceId, kind: ChangeKind, object: Object, previous: Option<Object>) {
        let event = Event { revision: self.revision, kind, object, previous, json: OnceLock::new() };
        let limit = self.history_limit;
        let of_resource = &mut self.by_resource[resource.index()];
        of_resource.history.push_back(Arc::new(event));
        of_resource.trim(limit);
        self.dirty.insert(resource);
    }
}

impl ObjectHistory {
    fn trim(&mut self, limit: usize) {
        while self.history.len() > limit {
            if let Some(event) = self.history.pop_front() {
                self.forgotten = event.revision;
            }
        }
    }
}
