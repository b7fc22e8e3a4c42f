//! In-memory index of the cluster's objects: one list per kind.

mod kinds;
mod owners;
#[cfg(test)]
mod tests;

pub use kinds::{Indexed, ObjectKind};
pub use owners::{OwnerPods, Workloads};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_model::identity::PodUid;
use plimsoll_snapshot::Objects;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Lists of objects of all kinds.
#[derive(Debug, Default)]
pub struct Store {
    /// Objects that snapshots are built from.
    pub objects: Objects,
    /// Owners of pods that are only needed for the number of pods they want.
    pub workloads: Workloads,
}

/// The objects of a kind while they are being listed. Objects that the index already has are kept by name only: a list
/// of a large cluster would otherwise double the memory of the index.
#[derive(Debug)]
pub struct PartialList<K: Indexed> {
    keys: BTreeSet<Key>,
    changed: Vec<K::Stored>,
}

impl<K: Indexed> Default for PartialList<K> {
    fn default() -> Self {
        Self { keys: BTreeSet::new(), changed: Vec::new() }
    }
}

/// Namespace (empty for cluster-scoped objects) and name.
type Key = (String, String);

/// Positions of the objects of a kind in its list, by the hash of their keys. The keys are in the objects: a copy takes
/// 190 bytes per pod, and this 30.
#[derive(Debug, Default)]
struct Positions(BTreeSet<(u64, usize)>);

impl Positions {
    /// Position in `list` of the object with the namespace and name in `metadata`.
    fn find<K: Indexed>(&self, list: &[K::Stored], metadata: &ObjectMeta) -> Option<usize> {
        let (hash, wanted) = (hash(metadata), borrowed_key(metadata));
        let is_wanted = |position: usize| {
            list.get(position).is_some_and(|stored| {
                let object: &K = stored.borrow();
                borrowed_key(object.meta()) == wanted
            })
        };
        let same_hash = self.0.range((hash, 0)..=(hash, usize::MAX));
        same_hash.map(|(_, position)| *position).find(|position| is_wanted(*position))
    }

    fn insert(&mut self, metadata: &ObjectMeta, position: usize) {
        self.0.insert((hash(metadata), position));
    }

    fn remove(&mut self, metadata: &ObjectMeta, position: usize) {
        self.0.remove(&(hash(metadata), position));
    }
}

/// Objects by kind. Changes to irrelevant fields do not count as changes.
#[derive(Debug, Default)]
pub struct Index {
    store: Store,
    positions: BTreeMap<ObjectKind, Positions>,
    listed: BTreeSet<ObjectKind>,
    owner_pods: OwnerPods,
}

impl Index {
    /// Inserts or replaces an object, which must be simplified. Returns whether anything changed.
    pub fn apply<K: Indexed>(&mut self, object: K) -> bool {
        self.insert::<K>(object.into())
    }

    fn insert<K: Indexed>(&mut self, stored: K::Stored) -> bool {
        let positions = self.positions.entry(K::KIND).or_default();
        let list = K::stored_mut(&mut self.store);
        let object: &K = stored.borrow();
        match positions.find::<K>(list, object.meta()).and_then(|position| list.get_mut(position)) {
            Some(existing) if (*existing).borrow() == object => false,
            Some(existing) => {
                K::count(&mut self.owner_pods, Some((*existing).borrow()), Some(object));
                *existing = stored;
                true
            }
            None => {
                K::count(&mut self.owner_pods, None, Some(object));
                positions.insert(object.meta(), list.len());
                list.push(stored);
                true
            }
        }
    }

    /// Removes the object with the name and namespace in `metadata`. Returns whether it existed.
    pub fn delete<K: Indexed>(&mut self, metadata: &ObjectMeta) -> bool {
        let positions = self.positions.entry(K::KIND).or_default();
        let list = K::stored_mut(&mut self.store);
        let Some(position) = positions.find::<K>(list, metadata) else { return false };
        positions.remove(metadata, position);
        let removed = list.swap_remove(position);
        K::count(&mut self.owner_pods, Some(removed.borrow()), None);
        if let Some(moved) = list.get(position) {
            // It was the last one.
            let moved: &K = moved.borrow();
            positions.remove(moved.meta(), list.len());
            positions.insert(moved.meta(), position);
        }
        true
    }

    /// Adds an object, which must be simplified, to a list that is being received.
    pub fn receive<K: Indexed>(&self, object: K, list: &mut PartialList<K>) {
        let (key, stored) = (key(object.meta()), K::stored(&self.store));
        let position = self.positions.get(&K::KIND).and_then(|positions| positions.find::<K>(stored, object.meta()));
        let existing = position.and_then(|position| stored.get(position));
        if existing.is_none_or(|existing| existing.borrow() != &object) {
            list.changed.push(object.into());
        }
        list.keys.insert(key);
    }

    /// Replaces all objects of a kind in one step, so that no reader sees half of a list. The index must not have
    /// changed the kind since the first object of the list was received. Returns whether anything changed.
    pub fn reset<K: Indexed>(&mut self, list: PartialList<K>) -> bool {
        let PartialList { keys: listed, changed: objects } = list;
        let removed: Vec<ObjectMeta> = K::stored_mut(&mut self.store)
            .iter()
            .map(Borrow::<K>::borrow)
            .map(|object| ObjectMeta {
                name: object.meta().name.clone(),
                namespace: object.meta().namespace.clone(),
                ..ObjectMeta::default()
            })
            .filter(|metadata| !listed.contains(&key(metadata)))
            .collect();
        let mut changed = self.listed.insert(K::KIND);
        for metadata in removed {
            changed |= self.delete::<K>(&metadata);
        }
        for object in objects {
            changed |= self.insert::<K>(object);
        }
        changed
    }

    /// Whether every kind has been listed once. Before that, the index must not be used for plans.
    #[must_use]
    pub fn all_listed(&self) -> bool {
        ObjectKind::ALL.iter().all(|kind| self.listed.contains(kind))
    }

    /// Objects that snapshots are built from.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.store.objects
    }

    /// Number of objects of a kind.
    #[must_use]
    pub fn count(&self, kind: ObjectKind) -> usize {
        self.positions.get(&kind).map_or(0, |positions| positions.0.len())
    }

    /// Pending pods whose owner wants more pods than have been observed.
    #[must_use]
    pub fn incomplete(&self) -> BTreeSet<PodUid> {
        self.owner_pods.incomplete(&self.store.workloads.wanted(&self.store.objects))
    }
}

fn key(metadata: &ObjectMeta) -> Key {
    let (namespace, name) = borrowed_key(metadata);
    (namespace.to_owned(), name.to_owned())
}

fn borrowed_key(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn hash(metadata: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    borrowed_key(metadata).hash(&mut hasher);
    hasher.finish()
}

/// Clears fields that change often but are irrelevant here. This saves memory and avoids needless snapshots.
pub(crate) fn simplified<K: Indexed>(mut object: K) -> K {
    let metadata = object.meta_mut();
    metadata.managed_fields = None;
    metadata.resource_version = None;
    object.simplify();
    object
}
