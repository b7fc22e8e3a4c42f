//! Garbage collection: dependents without owners, pods without nodes, expired events.

use super::Controller;
use super::mirror::Mirror;
use super::view::PodView;
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{DeleteOptions, Key, Part, Store, Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Lifetime of events, the default of a real server.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Interval at which expired events are removed.
const SWEEP_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// Time for which a node must be missing before its pods are removed.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// Collects garbage by owner references, empties namespaces, removes expired events.
#[derive(Debug, Clone, Copy, Default)]
pub struct GarbageCollector {
    /// When to remove expired events next.
    sweep: Option<Timestamp>,
}

impl GarbageCollector {
    /// The collector as a component to spawn.
    #[must_use]
    pub fn boxed() -> Box<dyn Controller> {
        Box::new(Self::default())
    }
}

impl Controller for GarbageCollector {
    fn watches(&self) -> &'static [ResourceId] {
        ResourceId::EVERY
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        store.collect_garbage(&Write::new(now, "generic-garbage-collector"));
        if self.sweep.is_none_or(|at| at <= now) {
            forget_events(store, now);
            self.sweep = now.checked_add(SWEEP_INTERVAL).ok();
        }
        // Without events, none can expire.
        self.sweep.filter(|_| store.all(ResourceId::EVENTS).next().is_some())
    }
}

fn forget_events(store: &mut Store, now: Timestamp) {
    let is_old = |event: &serde_json::Value| {
        object::time_at(event, &["metadata", "creationTimestamp"])
            .is_some_and(|made| now.duration_since(made) >= EVENT_LIFE)
    };
    let old: Vec<Key> =
        store.all(ResourceId::EVENTS).filter(|(_, event)| is_old(event)).map(|(key, _)| key.clone()).collect();
    for key in old {
        let _ = store.delete(
            ResourceId::EVENTS,
            &key.namespace,
            &key.name,
            &DeleteOptions::default(),
            &Write::new(now, "apiserver"),
        );
    }
}

/// Removes pods whose node does not exist.
#[derive(Debug)]
pub struct PodCollector {
    pods: Mirror<PodView>,
    nodes: Mirror<()>,
    /// Since when each missing node is known to be missing.
    missing: BTreeMap<String, Timestamp>,
}

impl Default for PodCollector {
    fn default() -> Self {
        Self {
            pods: Mirror::new(ResourceId::PODS, PodView::read),
            nodes: Mirror::new(ResourceId::NODES, |_| ()),
            missing: BTreeMap::new(),
        }
    }
}

impl Controller for PodCollector {
    fn watches(&self) -> &'static [ResourceId] {
        &[ResourceId::PODS, ResourceId::NODES]
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        self.pods.sync(store);
        self.nodes.sync(store);
        let nodes = self.pods.values().map(|pod| &pod.node).filter(|node| !node.is_empty()).collect::<BTreeSet<_>>();
        let missing: BTreeSet<String> =
            nodes.into_iter().filter(|node| self.nodes.get(&Key::new("", *node)).is_none()).cloned().collect();
        self.missing.retain(|node, _| missing.contains(node));
        for node in missing {
            self.missing.entry(node).or_insert(now);
        }
        let due = |since: &Timestamp| since.saturating_add(QUARANTINE).unwrap_or(Timestamp::MAX);
        let write = Write::new(now, "pod-garbage-collector");
        for pod in self.pods.values() {
            if self.missing.get(&pod.node).is_some_and(|since| due(since) <= now) {
                fail(store, pod, &write);
                // If the pod was deleted in the meantime, nothing is left to do.
                let _ = store.delete(
                    ResourceId::PODS,
                    &pod.key.namespace,
                    &pod.key.name,
                    &DeleteOptions::force(&*pod.uid),
                    &write,
                );
            }
        }
        self.missing.values().map(due).filter(|due| *due > now).min()
    }
}

/// Sets a pod to Failed, because its kubelet no longer reports.
fn fail(store: &mut Store, pod: &PodView, write: &Write<'_>) {
    if pod.is_over() {
        return;
    }
    let mut new = (*pod.object).clone();
    new["status"]["phase"] = json!("Failed");
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"});
    object::set_condition(&mut new, target, write.now);
    let _ = store.update(ResourceId::PODS, &pod.key.namespace, &pod.key.name, Part::Status, new, write);
}
