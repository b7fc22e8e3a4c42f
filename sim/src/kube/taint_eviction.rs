//! Evicts pods from nodes with `NoExecute` taints that they do not tolerate, or tolerate only for a limited time.

use super::Controller;
use super::mirror::Mirror;
use super::view::{NodeView, PodView};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{DeleteOptions, Key, Part, Store, Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The taint eviction controller.
#[derive(Debug)]
pub struct TaintEviction {
    pods: Mirror<PodView>,
    nodes: Mirror<NodeView>,
    /// Since when each node has had each taint without `timeAdded`.
    seen: BTreeMap<(String, String), Timestamp>,
}

impl Default for TaintEviction {
    fn default() -> Self {
        let (pods, nodes) =
            (Mirror::new(ResourceId::PODS, PodView::read), Mirror::new(ResourceId::NODES, NodeView::read));
        Self { pods, nodes, seen: BTreeMap::new() }
    }
}

impl Controller for TaintEviction {
    fn watches(&self) -> &'static [ResourceId] {
        &[ResourceId::PODS, ResourceId::NODES]
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        self.pods.sync(store);
        self.nodes.sync(store);
        self.note_taints(now);
        if self.seen.is_empty() {
            return None;
        }
        let write = Write::new(now, "taint-eviction-controller");
        let mut next: Option<Timestamp> = None;
        for pod in self.pods.values().filter(|pod| pod.is_active() && !pod.node.is_empty()) {
            match self.nodes.get(&Key::new("", &*pod.node)).and_then(|node| self.leaves_at(pod, node)) {
                Some(at) if at <= now => evict(store, pod, &write),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        next
    }
}

impl TaintEviction {
    fn note_taints(&mut self, now: Timestamp) {
        let mut present = BTreeMap::new();
        for node in self.nodes.values() {
            for taint in node.taints.iter().filter(|taint| taint.effect == "NoExecute") {
                let key = (node.name.clone(), taint.key.clone());
                let since = taint.since.or_else(|| self.seen.get(&key).copied()).unwrap_or(now);
                present.insert(key, since);
            }
        }
        self.seen = present;
    }

    /// When a pod must leave its node, if ever.
    fn leaves_at(&self, pod: &PodView, node: &NodeView) -> Option<Timestamp> {
        node.taints
            .iter()
            .filter(|taint| taint.effect == "NoExecute")
            .filter_map(|taint| {
                let since = *self.seen.get(&(node.name.clone(), taint.key.clone()))?;
                let mut covering =
                    pod.tolerations().iter().filter(|toleration| taint.is_tolerated(toleration)).peekable();
                if covering.peek().is_none() {
                    return Some(since);
                }
                let seconds = |toleration: &Value| object::integer(toleration, &["tolerationSeconds"]);
                let shortest = covering.filter_map(seconds).min()?;
                since.checked_add(SignedDuration::from_secs(shortest.max(0))).ok()
            })
            .min()
    }
}

fn evict(store: &mut Store, pod: &PodView, write: &Write<'_>) {
    let mut new = (*pod.object).clone();
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                        "message": "Taint manager: deleting due to NoExecute taint"});
    object::set_condition(&mut new, target, write.now);
    let _ = store.update(ResourceId::PODS, &pod.key.namespace, &pod.key.name, Part::Status, new, write);
    let options = DeleteOptions { uid: Some(pod.uid.clone()), ..DeleteOptions::default() };
    // If the pod was deleted in the meantime, nothing is left to do.
    let _ = store.delete(ResourceId::PODS, &pod.key.namespace, &pod.key.name, &options, write);
}
