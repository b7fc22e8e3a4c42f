//! The cluster as the watcher knows it: plain lists of objects, changed by plain calls.

mod kinds;
mod owners;
#[cfg(test)]
mod tests;

pub use kinds::{Indexed, Kind};
pub use owners::Workloads;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_model::identity::PodUid;
use plimsoll_snapshot::Objects;
use std::collections::{BTreeMap, BTreeSet};

/// What is held of all kinds.
#[derive(Debug, Default)]
pub struct Held {
    /// What snapshots are made of.
    pub objects: Objects,
    /// Further owners of pods: how many each wants.
    pub workloads: Workloads,
}

/// Namespace (empty where there is none) and name.
type Key = (String, String);

/// The cluster's objects by kind. An object that is the same in all that matters changes nothing.
#[derive(Debug, Default)]
pub struct Index {
    held: Held,
    /// Where each object is in its kind's list.
    places: BTreeMap<Kind, BTreeMap<Key, usize>>,
    listed: BTreeSet<Kind>,
}

impl Index {
    /// Without objects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts an object in, in place of one of the same name. Returns whether anything that matters changed.
    pub fn apply<K: Indexed>(&mut self, mut object: K) -> bool {
        strip(&mut object);
        let places = self.places.entry(K::KIND).or_default();
        let list = K::list(&mut self.held);
        match places.get(&key(object.meta())).and_then(|place| list.get_mut(*place)) {
            Some(known) if *known == object => false,
            Some(known) => {
                *known = object;
                true
            }
            None => {
                places.insert(key(object.meta()), list.len());
                list.push(object);
                true
            }
        }
    }

    /// Takes out the object of that name. Returns whether there was one.
    pub fn delete<K: Indexed>(&mut self, metadata: &ObjectMeta) -> bool {
        let places = self.places.entry(K::KIND).or_default();
        let list = K::list(&mut self.held);
        let Some(place) = places.remove(&key(metadata)).filter(|place| *place < list.len()) else { return false };
        list.swap_remove(place);
        if let Some(moved) = list.get(place) {
            places.insert(key(moved.meta()), place);
        }
        true
    }

    /// Puts a whole list in place of what was known, in one step (rule 21). Returns whether anything that matters changed.
    pub fn reset<K: Indexed>(&mut self, objects: Vec<K>) -> bool {
        let kept: BTreeSet<Key> = objects.iter().map(|object| key(object.meta())).collect();
        let gone: Vec<ObjectMeta> = K::list(&mut self.held)
            .iter()
            .map(|object| ObjectMeta {
                name: object.meta().name.clone(),
                namespace: object.meta().namespace.clone(),
                ..ObjectMeta::default()
            })
            .filter(|metadata| !kept.contains(&key(metadata)))
            .collect();
        let mut changed = self.listed.insert(K::KIND);
        for metadata in gone {
            changed |= self.delete::<K>(&metadata);
        }
        for object in objects {
            changed |= self.apply(object);
        }
        changed
    }

    /// Whether every kind has been listed once (rule 21).
    #[must_use]
    pub fn is_whole(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.listed.contains(kind))
    }

    /// What snapshots are made of.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.held.objects
    }

    /// How many objects of the kind there are.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.places.get(&kind).map_or(0, BTreeMap::len)
    }

    /// Pods that are to be placed while others of their owner are still to come (rule 6).
    #[must_use]
    pub fn incomplete(&self) -> BTreeSet<PodUid> {
        owners::incomplete(&self.held.objects, &self.held.workloads)
    }
}

fn key(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Takes out what changes without meaning anything here, so that it neither costs memory nor causes a new snapshot.
fn strip<K: Indexed>(object: &mut K) {
    let metadata = object.meta_mut();
    metadata.managed_fields = None;
    metadata.resource_version = None;
    object.simplify();
}
