//! A controller's cache of one kind, updated from the history of the store.

use crate::apiserver::ResourceId;
use crate::apiserver::store::{ChangeKind, Key, Object, Store};
use std::collections::{BTreeMap, BTreeSet};

/// Objects of one kind in the form that their controller uses.
#[derive(Debug)]
pub(super) struct Mirror<T> {
    resource: ResourceId,
    read: fn(&Object) -> T,
    /// All changes up to this revision are included.
    revision: Option<u64>,
    items: BTreeMap<Key, T>,
}

impl<T> Mirror<T> {
    pub(super) fn new(resource: ResourceId, read: fn(&Object) -> T) -> Self {
        Self { resource, read, revision: None, items: BTreeMap::new() }
    }

    /// Catches up with the store. Returns the changed keys, each with its previous value.
    pub(super) fn sync(&mut self, store: &Store) -> BTreeMap<Key, Option<T>> {
        let mut changed = BTreeMap::new();
        match self.revision.map(|revision| store.events_after(self.resource, revision)) {
            Some(Ok(events)) => {
                for event in events {
                    let key = Key::of(&event.object);
                    let before = match event.kind {
                        ChangeKind::Deleted => self.items.remove(&key),
                        ChangeKind::Added | ChangeKind::Modified => {
                            self.items.insert(key.clone(), (self.read)(&event.object))
                        }
                    };
                    changed.entry(key).or_insert(before);
                }
            }
            // On the first call, or if the history is too short, reads all objects.
            Some(Err(_)) | None => {
                let mut old = std::mem::take(&mut self.items);
                self.items = store.all(self.resource).map(|(key, object)| (key.clone(), (self.read)(object))).collect();
                let keys: BTreeSet<Key> = old.keys().chain(self.items.keys()).cloned().collect();
                changed.extend(keys.into_iter().map(|key| {
                    let before = old.remove(&key);
                    (key, before)
                }));
            }
        }
        self.revision = Some(store.revision());
        changed
    }

    pub(super) fn get(&self, key: &Key) -> Option<&T> {
        self.items.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &T)> {
        self.items.iter()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.items.values()
    }
}
