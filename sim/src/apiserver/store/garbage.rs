//! Garbage collection: dependents of deleted owners, owners that wait for their dependents, empty terminating
//! namespaces.

use super::delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use super::owners::owner_uids;
use super::{Key, Part, Store, Write};
use crate::apiserver::object;
use crate::apiserver::resources::ResourceId;
use serde_json::Value;

/// Maximum number of rounds per pass. Each round can create garbage one level below. Owners are rarely nested deeper
/// than namespace, Deployment, ReplicaSet, Pod. The next pass collects the rest.
const ROUNDS: usize = 8;

impl Store {
    /// Collects new garbage since the last pass. Returns whether anything changed.
    pub fn collect_garbage(&mut self, write: &Write<'_>) -> bool {
        let before = self.revision;
        for _ in 0..ROUNDS {
            let suspects = std::mem::take(&mut self.owner_index.suspects);
            if suspects.is_empty() {
                break;
            }
            let round = self.revision;
            for (resource, key) in suspects {
                self.inspect(resource, &key, write);
            }
            if self.revision == round {
                break;
            }
        }
        self.owner_index.prune();
        self.revision != before
    }

    fn inspect(&mut self, resource: ResourceId, key: &Key, write: &Write<'_>) {
        let Some(object) = self.find(resource, key) else { return };
        if object::is_deleting(&object) {
            if resource == ResourceId::NAMESPACES {
                self.empty_namespace(&key.name, write);
            } else if object::finalizers(&object).any(|finalizer| finalizer == ORPHAN) {
                self.release_dependents(&object, write);
                self.drop_finalizer(resource, key, ORPHAN, write);
            } else if object::finalizers(&object).any(|finalizer| finalizer == FOREGROUND) {
                self.delete_dependents_first(resource, key, &object, write);
            }
        }
        let owners: Vec<_> = owner_uids(&object).collect();
        let gone = owners.iter().filter(|uid| self.owner_index.place_of(uid).is_none()).count();
        if gone == 0 || object::is_deleting(&object) {
            return;
        }
        if gone == owners.len() {
            let uid = Some(object::uid(&object).to_owned());
            // The object was deleted in the meantime, or the deletion was rejected. Nothing is left to do.
            let _ = self.delete(
                resource,
                &key.namespace,
                &key.name,
                &DeleteOptions { uid, ..DeleteOptions::default() },
                write,
            );
        } else {
            self.keep_owners(resource, key, &object, write, |store, uid| store.owner_index.place_of(uid).is_some());
        }
    }

    fn delete_dependents_first(&mut self, resource: ResourceId, key: &Key, owner: &Value, write: &Write<'_>) {
        let places: Vec<_> = self.owner_index.dependents(object::uid(owner)).cloned().collect();
        let mut blocked = false;
        for (dependent, place) in places {
            let Some(object) = self.find(dependent, &place) else { continue };
            blocked |= object::items(&object, &["metadata", "ownerReferences"]).iter().any(|reference| {
                object::text(reference, &["uid"]) == object::uid(owner)
                    && reference.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true)
            });
            if !object::is_deleting(&object) {
                let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
                let _ = self.delete(dependent, &place.namespace, &place.name, &options, write);
            }
        }
        if !blocked {
            self.drop_finalizer(resource, key, FOREGROUND, write);
        }
    }

    fn release_dependents(&mut self, owner: &Value, write: &Write<'_>) {
        let places: Vec<_> = self.owner_index.dependents(object::uid(owner)).cloned().collect();
        for (resource, key) in places {
            if let Some(object) = self.find(resource, &key) {
                self.keep_owners(resource, &key, &object, write, |_, uid| uid != object::uid(owner));
            }
        }
    }

    fn keep_owners(
        &mut self,
        resource: ResourceId,
        key: &Key,
        object: &Value,
        write: &Write<'_>,
        keep: impl Fn(&Self, &str) -> bool,
    ) {
        let references = object::items(object, &["metadata", "ownerReferences"]).iter();
        let kept: Vec<_> =
            references.filter(|reference| keep(self, object::text(reference, &["uid"]))).cloned().collect();
        let mut new = object.clone();
        new["metadata"]["ownerReferences"] = Value::Array(kept);
        let _ = self.update(resource, &key.namespace, &key.name, Part::Main, new, write);
    }

    fn drop_finalizer(&mut self, resource: ResourceId, key: &Key, finalizer: &str, write: &Write<'_>) {
        let Some(object) = self.find(resource, key) else { return };
        let kept: Vec<_> = object::finalizers(&object).filter(|one| *one != finalizer).map(Value::from).collect();
        let mut new = (*object).clone();
        new["metadata"]["finalizers"] = Value::Array(kept);
        let _ = self.update(resource, &key.namespace, &key.name, Part::Main, new, write);
    }

    fn empty_namespace(&mut self, namespace: &str, write: &Write<'_>) {
        let mut empty = true;
        for resource in ResourceId::all().filter(|resource| resource.get().namespaced) {
            let keys: Vec<_> =
                self.all(resource).filter(|(key, _)| key.namespace == namespace).map(|(key, _)| key.clone()).collect();
            for key in keys {
                let _ = self.delete(resource, &key.namespace, &key.name, &DeleteOptions::default(), write);
                empty &= self.find(resource, &key).is_none();
            }
        }
        if empty {
            self.take(ResourceId::NAMESPACES, &Key::new("", namespace));
        }
    }
}
