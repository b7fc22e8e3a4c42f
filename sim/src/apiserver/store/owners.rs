//! Index of owners and dependents, updated with every write, so that garbage collection does not have to search.

use super::{Key, Object};
use crate::apiserver::object;
use crate::apiserver::resources::ResourceId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

type Place = (ResourceId, Key);

/// Owners and dependents by UID.
#[derive(Debug, Default)]
pub(super) struct OwnerIndex {
    alive: BTreeMap<String, Place>,
    dependents: BTreeMap<String, BTreeSet<Place>>,
    /// Objects that garbage collection must check.
    pub(super) suspects: BTreeSet<Place>,
}

pub(super) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    object::items(object, &["metadata", "ownerReferences"]).iter().map(|owner| object::text(owner, &["uid"]))
}

impl OwnerIndex {
    pub(super) fn place_of(&self, uid: &str) -> Option<&Place> {
        self.alive.get(uid)
    }

    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Place> {
        self.dependents.get(uid).into_iter().flatten()
    }

    pub(super) fn put(&mut self, resource: ResourceId, key: &Key, object: &Object) {
        let place = (resource, key.clone());
        let uid = object::uid(object);
        if !self.alive.contains_key(uid) {
            self.alive.insert(uid.to_owned(), place.clone());
        }
        let mut lost = false;
        for owner in owner_uids(object) {
            if !self.dependents.get(owner).is_some_and(|all| all.contains(&place)) {
                self.dependents.entry(owner.to_owned()).or_default().insert(place.clone());
            }
            lost |= !self.alive.contains_key(owner);
        }
        if lost || object::is_deleting(object) {
            self.suspects.insert(place);
        }
    }

    pub(super) fn take(&mut self, resource: ResourceId, key: &Key, object: &Object) {
        let place = (resource, key.clone());
        let uid = object::uid(object);
        self.alive.remove(uid);
        self.suspects.remove(&place);
        for owner in owner_uids(object) {
            if let Some(all) = self.dependents.get_mut(owner) {
                all.remove(&place);
            }
            // An owner that waits for its dependents may be deletable now.
            if let Some(waiting) = self.alive.get(owner) {
                self.suspects.insert(waiting.clone());
            }
        }
        if let Some(orphans) = self.dependents.get(uid) {
            self.suspects.extend(orphans.iter().cloned());
        }
        // A terminating namespace may be empty now.
        if !key.namespace.is_empty() {
            self.suspects.insert((ResourceId::NAMESPACES, Key::new("", key.namespace.clone())));
        }
    }

    /// Removes deleted owners without dependents, so that the index does not grow without limit.
    pub(super) fn prune(&mut self) {
        self.dependents.retain(|_, all| !all.is_empty());
    }
}
