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

/// Objects by kind. Changes to irrelevant fields do not count as changes.
#[derive(Debug, Default)]
pub struct Index {
    store: Store,
    /// Position of each object in the list of its kind.
    positions: BTreeMap<ObjectKind, BTreeMap<Key, usize>>,
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
        match positions.get(&key(object.meta())).and_then(|position| list.get_mut(*position)) {
            Some(existing) if (*existing).borrow() == object => false,
            Some(existing) => {
                K::count(&mut self.owner_pods, Some((*existing).borrow()), Some(object));
                *existing = stored;
                true
            }
            None => {
                K::count(&mut self.owner_pods, None, Some(object));
                positions.insert(key(object.meta()), list.len());
                list.push(stored);
                true
            }
        }
    }

    /// Removes the object with the name and namespace in `metadata`. Returns whether it existed.
    pub fn delete<K: Indexed>(&mut self, metadata: &ObjectMeta) -> bool {
        let positions = self.positions.entry(K::KIND).or_default();
        let list = K::stored_mut(&mut self.store);
        let Some(position) = positions.remove(&key(metadata)).filter(|position| *position < list.len()) else {
            return false;
        };
        let removed = list.swap_remove(position);
        K::count(&mut self.owner_pods, Some(removed.borrow()), None);
        if let Some(moved) = list.get(position) {
            positions.insert(key(moved.borrow().meta()), position);
        }
        true
    }

    /// Adds an object, which must be simplified, to a list that is being received.
    pub fn receive<K: Indexed>(&self, object: K, list: &mut PartialList<K>) {
        let key = key(object.meta());
        let existing = self.positions.get(&K::KIND).and_then(|positions| positions.get(&key));
        let existing = existing.and_then(|position| K::stored(&self.store).get(*position));
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
        self.positions.get(&kind).map_or(0, BTreeMap::len)
    }

    /// Pending pods whose owner wants more pods than have been observed.
    #[must_use]
    pub fn incomplete(&self) -> BTreeSet<PodUid> {
        self.owner_pods.incomplete(&self.store.workloads.wanted(&self.store.objects))
    }
}

fn key(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Clears fields that change often but are irrelevant here. This saves memory and avoids needless snapshots.
pub(crate) fn simplified<K: Indexed>(mut object: K) -> K {
    let metadata = object.meta_mut();
    metadata.managed_fields = None;
    metadata.resource_version = None;
    object.simplify();
    object
}
