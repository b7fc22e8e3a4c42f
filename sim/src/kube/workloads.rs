//! Workload controllers: create pods for Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs.

mod daemon_set;
mod deployment;
mod job;
mod replica_set;
mod stateful_set;

use super::Controller;
use super::mirror::Mirror;
use super::view::{NodeView, PodView};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{DeleteOptions, Key, Object, Part, Store, Write};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Kinds of workloads, owners before their dependents.
const KINDS: &[ResourceId] = &[
    ResourceId::DEPLOYMENTS,
    ResourceId::REPLICA_SETS,
    ResourceId::STATEFUL_SETS,
    ResourceId::DAEMON_SETS,
    ResourceId::JOBS,
];

/// Maximum number of pods created or deleted per owner in one step, as in the real controllers. The next step
/// continues.
const BURST: usize = 500;

/// All workload controllers in one component, so that they share one cache of the pods.
#[derive(Debug)]
pub struct Workloads {
    pods: Mirror<PodView>,
    nodes: Mirror<NodeView>,
    owners: BTreeMap<ResourceId, Mirror<Object>>,
    /// Pods and ReplicaSets by the UID of their controller.
    children: BTreeMap<String, BTreeSet<(ResourceId, Key)>>,
    /// Key of each owner, by UID.
    places: BTreeMap<String, (ResourceId, Key)>,
    jobs: job::Tally,
}

impl Default for Workloads {
    fn default() -> Self {
        Self {
            pods: Mirror::new(ResourceId::PODS, PodView::read),
            nodes: Mirror::new(ResourceId::NODES, NodeView::read),
            owners: KINDS.iter().map(|kind| (*kind, Mirror::new(*kind, Object::clone))).collect(),
            children: BTreeMap::new(),
            places: BTreeMap::new(),
            jobs: job::Tally::default(),
        }
    }
}

impl Controller for Workloads {
    fn watches(&self) -> &'static [ResourceId] {
        &[
            ResourceId::DEPLOYMENTS,
            ResourceId::REPLICA_SETS,
            ResourceId::STATEFUL_SETS,
            ResourceId::DAEMON_SETS,
            ResourceId::JOBS,
            ResourceId::PODS,
            ResourceId::NODES,
        ]
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        let dirty = self.sync(store);
        for uid in dirty {
            let Some((kind, key)) = self.places.get(&uid).cloned() else { continue };
            let Some(owner) = self.owners.get(&kind).and_then(|mirror| mirror.get(&key)).cloned() else { continue };
            let children = self.children.get(&uid);
            let places = |wanted: ResourceId| {
                children.into_iter().flatten().filter(move |(kind, _)| *kind == wanted).map(|(_, key)| key)
            };
            let pods: Vec<&PodView> = places(ResourceId::PODS).filter_map(|key| self.pods.get(key)).collect();
            let mut work = Work { store, now, kind, owner: &owner };
            match kind {
                ResourceId::DEPLOYMENTS => {
                    let sets = &self.owners[&ResourceId::REPLICA_SETS];
                    deployment::reconcile(
                        &mut work,
                        places(ResourceId::REPLICA_SETS).filter_map(|key| sets.get(key)).collect(),
                    );
                }
                ResourceId::REPLICA_SETS => replica_set::reconcile(&mut work, &pods),
                ResourceId::STATEFUL_SETS => stateful_set::reconcile(&mut work, &pods),
                ResourceId::DAEMON_SETS => daemon_set::reconcile(&mut work, &pods, self.nodes.values()),
                ResourceId::JOBS => job::reconcile(&mut work, &pods, &mut self.jobs),
                _ => {}
            }
        }
        None
    }
}

impl Workloads {
    /// Catches up. Returns the UIDs of the changed owners.
    fn sync(&mut self, store: &Store) -> BTreeSet<String> {
        let mut dirty = BTreeSet::new();
        for kind in KINDS {
            let Some(mirror) = self.owners.get_mut(kind) else { continue };
            let changed = mirror.sync(store);
            for (key, before) in changed {
                let now = self.owners[kind].get(&key).cloned();
                for (object, present) in [(before, false), (now, true)] {
                    let Some(object) = object else { continue };
                    let uid = object::uid(&object).to_owned();
                    if present {
                        self.places.insert(uid.clone(), (*kind, key.clone()));
                    } else {
                        self.places.remove(&uid);
                    }
                    let owner = object::controller(&object).map(|owner| object::text(owner, &["uid"]).to_owned());
                    self.relate(owner.unwrap_or_default(), *kind, &key, present, &mut dirty);
                    dirty.insert(uid);
                }
            }
        }
        self.jobs.retain(|uid| self.places.contains_key(uid));
        for (key, before) in self.pods.sync(store) {
            let now = self.pods.get(&key).map(|pod| pod.owner.clone());
            for (owner, present) in [(before.map(|pod| pod.owner), false), (now, true)] {
                self.relate(owner.unwrap_or_default(), ResourceId::PODS, &key, present, &mut dirty);
            }
        }
        let moved = self.nodes.sync(store);
        let moved = moved.iter().any(|(key, before)| {
            before.as_ref().map(|node| node.signature) != self.nodes.get(key).map(|node| node.signature)
        });
        if moved {
            dirty.extend(self.owners[&ResourceId::DAEMON_SETS].values().map(|set| object::uid(set).to_owned()));
        }
        dirty
    }

    fn relate(&mut self, owner: String, kind: ResourceId, child: &Key, present: bool, dirty: &mut BTreeSet<String>) {
        if owner.is_empty() {
            return;
        }
        dirty.insert(owner.clone());
        if present {
            self.children.entry(owner).or_default().insert((kind, child.clone()));
        } else if let Some(children) = self.children.get_mut(&owner) {
            children.remove(&(kind, child.clone()));
            if children.is_empty() {
                self.children.remove(&owner);
            }
        }
    }
}

/// Reconciliation of one owner.
struct Work<'a> {
    store: &'a mut Store,
    now: Timestamp,
    kind: ResourceId,
    owner: &'a Object,
}

impl Work<'_> {
    fn write(&self) -> Write<'static> {
        Write::new(self.now, "kube-controller-manager")
    }

    fn namespace(&self) -> &str {
        object::namespace(self.owner)
    }

    fn number(&self, field: &str) -> Option<i64> {
        object::integer(self.owner, &["spec", field])
    }

    fn is_deleting(&self) -> bool {
        object::is_deleting(self.owner)
    }

    fn reference(&self) -> Value {
        let row = self.kind.get();
        json!({"apiVersion": row.api_version(), "kind": row.kind, "name": object::name(self.owner), "uid": object::uid(self.owner),
               "controller": true, "blockOwnerDeletion": true})
    }

    /// A pod of the owner's template, without a name.
    fn pod(&self) -> Value {
        let template = object::at(self.owner, &["spec", "template"]).cloned().unwrap_or_default();
        let mut metadata = template.get("metadata").cloned().unwrap_or_else(|| json!({}));
        metadata["ownerReferences"] = json!([self.reference()]);
        json!({"metadata": metadata, "spec": template.get("spec")})
    }

    fn create(&mut self, kind: ResourceId, object: Value) {
        let (namespace, write) = (self.namespace().to_owned(), self.write());
        if let Err(error) = self.store.create(kind, &namespace, object, &write) {
            // The name is taken or the namespace is terminating; the next change triggers another step.
            tracing::debug!(owner = object::name(self.owner), kind = kind.get().kind, %error, "not created");
        }
    }

    fn delete_pod(&mut self, pod: &PodView) {
        let options = DeleteOptions { uid: Some(pod.uid.clone()), ..DeleteOptions::default() };
        let write = self.write();
        // If the pod was deleted in the meantime, nothing is left to do.
        let _ = self.store.delete(ResourceId::PODS, &pod.key.namespace, &pod.key.name, &options, &write);
    }

    /// Sets fields of the owner's status and keeps the other fields.
    fn report(&mut self, fields: Value) {
        let mut new = (**self.owner).clone();
        object::set(&mut new, &["status", "observedGeneration"], json!(object::generation(self.owner)));
        if let Value::Object(fields) = fields {
            for (field, value) in fields {
                object::set(&mut new, &["status", &field], value);
            }
        }
        self.report_object(new);
    }

    fn report_object(&mut self, new: Value) {
        let (key, write) = (Key::of(self.owner), self.write());
        // The owner changed in the meantime; the change triggers another step.
        let _ = self.store.update(self.kind, &key.namespace, &key.name, Part::Status, new, &write);
    }
}

fn count(pods: &[&PodView], test: impl Fn(&PodView) -> bool) -> i64 {
    i64::try_from(pods.iter().filter(|pod| test(pod)).count()).unwrap_or(i64::MAX)
}

fn size(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
