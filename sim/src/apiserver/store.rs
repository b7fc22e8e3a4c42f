//! The core of the API server: objects, their history, and the rules of every operation. Plain calls, no runtime, no clock.

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

/// Changes kept of each kind, unless told otherwise. A real server keeps some minutes; a watcher that was away for longer lists again.
pub const DEFAULT_HISTORY: usize = 10_000;

/// An object as it is stored and handed out: shared, never changed.
pub type Object = Arc<Value>;

/// Where an object is kept within its kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl Key {
    /// A key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::new(object::namespace(object), object::name(object))
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new (to the watcher).
    Added,
    /// It changed.
    Modified,
    /// It is gone (for the watcher).
    Deleted,
}

impl ChangeKind {
    /// As watch events spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One entry of a kind's history.
#[derive(Debug)]
pub struct Event {
    /// The store's revision after it.
    pub revision: u64,
    /// What happened.
    pub kind: ChangeKind,
    /// The object after it; for a deletion its last state.
    pub object: Object,
    /// The object before it.
    pub previous: Option<Object>,
    json: OnceLock<Bytes>,
}

impl Event {
    /// The object as JSON, made once for all watchers.
    pub fn json(&self) -> Bytes {
        self.json.get_or_init(|| Bytes::from(self.object.to_string())).clone()
    }
}

/// Who writes, when.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The time.
    pub now: Timestamp,
    /// Field manager.
    pub manager: &'a str,
    /// Check and answer, but change nothing.
    pub dry_run: bool,
}

impl<'a> Write<'a> {
    /// A write that is meant.
    #[must_use]
    pub fn new(now: Timestamp, manager: &'a str) -> Self {
        Self { now, manager, dry_run: false }
    }
}

/// Which part of an object a write may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All but the status, where the kind has a status subresource.
    Main,
    /// Only the status.
    Status,
}

/// Which objects of a kind are meant.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// By labels.
    pub labels: LabelSelector,
    /// By fields.
    pub fields: FieldSelector,
}

impl Filter {
    /// All objects of one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Whether an object is meant.
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
    /// The revision that all pages show.
    pub revision: u64,
    /// In order of namespace and name.
    pub items: Vec<Object>,
    /// The last key of this page, if there are more.
    pub next: Option<Key>,
    /// How many more.
    pub remaining: usize,
}

/// Where a page begins.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The revision to show; the present one if not given.
    pub revision: Option<u64>,
    /// Start behind this key.
    pub after: Option<Key>,
    /// At most so many; 0 for all.
    pub limit: usize,
}

#[derive(Debug, Clone)]
struct Stored {
    object: Object,
    owners: Arc<Owners>,
}

#[derive(Debug, Default)]
struct Shelf {
    objects: BTreeMap<Key, Stored>,
    history: VecDeque<Arc<Event>>,
    /// The newest revision that has fallen out of the history.
    forgotten: u64,
}

/// All objects of a cluster.
pub struct Store {
    shelves: Vec<Shelf>,
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
    /// A store with the objects that every cluster has: its namespaces and priority classes.
    #[must_use]
    pub fn new(seed: u64, now: Timestamp) -> Self {
        let mut store = Self {
            shelves: ResourceId::all().map(|_| Shelf::default()).collect(),
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

    /// Keeps at most `limit` changes of each kind, as of now.
    pub fn set_history_limit(&mut self, limit: usize) {
        self.history_limit = limit;
        for shelf in &mut self.shelves {
            shelf.trim(limit);
        }
    }

    /// What runs on each object before it is stored.
    pub fn admission_mut(&mut self) -> &mut Admission {
        &mut self.admission
    }

    /// The newest revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The kinds written to since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<ResourceId> {
        std::mem::take(&mut self.dirty)
    }

    /// One object.
    ///
    /// # Errors
    /// 404.
    pub fn get(&self, resource: ResourceId, namespace: &str, name: &str) -> Result<Object, ApiError> {
        self.find(resource, &Key::new(namespace, name)).ok_or_else(|| ApiError::not_found(resource.get(), name))
    }

    /// One object, if it is there.
    #[must_use]
    pub fn find(&self, resource: ResourceId, key: &Key) -> Option<Object> {
        self.shelf(resource).objects.get(key).map(|stored| stored.object.clone())
    }

    /// All objects of a kind, in order of namespace and name.
    pub fn all(&self, resource: ResourceId) -> impl Iterator<Item = (&Key, &Object)> {
        self.shelf(resource).objects.iter().map(|(key, stored)| (key, &stored.object))
    }

    /// One page of the objects that a filter selects, all pages at one revision.
    ///
    /// # Errors
    /// 410 where that revision is no longer known, 504 where it lies ahead.
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

    /// The objects of a kind as they were, by undoing its history.
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

    /// A kind's changes after a revision, oldest first.
    ///
    /// # Errors
    /// 410 where some of them are forgotten, 504 where the revision lies ahead.
    pub fn events_after(
        &self,
        resource: ResourceId,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Event>>, ApiError> {
        let shelf = self.shelf(resource);
        if revision < shelf.forgotten {
            return Err(ApiError::expired(revision, shelf.forgotten));
        }
        if revision > self.revision {
            return Err(ApiError::too_large_version(revision, self.revision));
        }
        let start = shelf.history.partition_point(|event| event.revision <= revision);
        Ok(shelf.history.range(start..))
    }

    /// What a watcher with this filter sees of an event: an object that begins to match is added, one that ceases to is deleted.
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

    fn shelf(&self, resource: ResourceId) -> &Shelf {
        &self.shelves[resource.index()]
    }

    fn stored(&self, resource: ResourceId, key: &Key) -> Result<Stored, ApiError> {
        let found = self.shelf(resource).objects.get(key).cloned();
        found.ok_or_else(|| ApiError::not_found(resource.get(), &key.name))
    }

    /// Writes an object as it is, at a new revision. All rules have been applied before.
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
        let previous = self.shelves[resource.index()].objects.insert(key, stored).map(|stored| stored.object);
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.note(resource, kind, object.clone(), previous);
        object
    }

    /// Removes an object now. All rules have been applied before.
    fn take(&mut self, resource: ResourceId, key: &Key) -> Option<Object> {
        let old = self.shelves[resource.index()].objects.remove(key)?.object;
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
        let shelf = &mut self.shelves[resource.index()];
        shelf.history.push_back(Arc::new(event));
        shelf.trim(limit);
        self.dirty.insert(resource);
    }
}

impl Shelf {
    fn trim(&mut self, limit: usize) {
        while self.history.len() > limit {
            if let Some(event) = self.history.pop_front() {
                self.forgotten = event.revision;
            }
        }
    }
}
