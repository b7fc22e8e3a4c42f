//! The node controller: taints Nodes by condition, and marks Nodes of silent kubelets as Unknown.

use super::Controller;
use super::kubelet::{Kubelets, Pulse};
use super::mirror::Mirror;
use super::view::{NodeView, PodView};
use crate::apiserver::ResourceId;
use crate::apiserver::admission::NOT_READY;
use crate::apiserver::object;
use crate::apiserver::store::{Key, Part, Store, Write};
use jiff::{SignedDuration, Timestamp};
use plimsoll_runtime::signal;
use serde_json::{Value, json};

/// Time without a report after which a Node becomes Unknown, the default of the real controller.
const SILENCE_MAX: SignedDuration = SignedDuration::from_secs(50);

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The node controller.
#[derive(Debug)]
pub struct NodeLifecycle {
    kubelets: Kubelets,
    nodes: Mirror<NodeView>,
    pods: Mirror<PodView>,
}

impl NodeLifecycle {
    /// Creates the controller for these kubelets.
    #[must_use]
    pub fn new(kubelets: Kubelets) -> Self {
        let (nodes, pods) =
            (Mirror::new(ResourceId::NODES, NodeView::read), Mirror::new(ResourceId::PODS, PodView::read));
        Self { kubelets, nodes, pods }
    }

    /// When the kubelet has been silent for too long; `None` while it reports.
    fn deadline(&self, node: &NodeView, now: Timestamp) -> Option<Timestamp> {
        let reported = || {
            object::condition(&node.object, "Ready").and_then(|ready| object::time_at(ready, &["lastHeartbeatTime"]))
        };
        let created = || object::time_at(&node.object, &["metadata", "creationTimestamp"]);
        let last = match self.kubelets.pulse(&node.name) {
            Pulse::Beating => return None,
            Pulse::Stopped(at) => at,
            Pulse::Unknown => reported().or_else(created).unwrap_or(now),
        };
        Some(last.saturating_add(SILENCE_MAX).unwrap_or(Timestamp::MAX))
    }
}

impl Controller for NodeLifecycle {
    fn watches(&self) -> &'static [ResourceId] {
        &[ResourceId::NODES]
    }

    fn wake(&self) -> Option<signal::Receiver> {
        Some(self.kubelets.subscribe())
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        self.nodes.sync(store);
        let write = Write::new(now, "node-controller");
        let mut next: Option<Timestamp> = None;
        let mut lost = Vec::new();
        for node in self.nodes.values() {
            let deadline = self.deadline(node, now);
            let silent = deadline.is_some_and(|deadline| deadline <= now);
            if let Some(deadline) = deadline.filter(|deadline| *deadline > now) {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
            let becomes_unknown = silent && node.ready != "Unknown";
            let ready = if silent { "Unknown" } else { &node.ready };
            if becomes_unknown {
                mark_unknown(store, node, &write);
                lost.push(node.name.clone());
            }
            taint(store, node, ready, &write);
        }
        if !lost.is_empty() {
            self.pods.sync(store);
            for pod in self.pods.values().filter(|pod| pod.ready && lost.contains(&pod.node)) {
                let mut new = (*pod.object).clone();
                object::set_condition(
                    &mut new,
                    json!({"type": "Ready", "status": "False", "reason": "NodeNotReady"}),
                    now,
                );
                let _ = store.update(ResourceId::PODS, &pod.key.namespace, &pod.key.name, Part::Status, new, &write);
            }
        }
        next
    }
}

fn mark_unknown(store: &mut Store, node: &NodeView, write: &Write<'_>) {
    let mut new = (*node.object).clone();
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
        let mut condition = object::condition(&new, kind).cloned().unwrap_or_else(|| json!({"type": kind}));
        condition["status"] = json!("Unknown");
        condition["reason"] = json!("NodeStatusUnknown");
        condition["message"] = json!("Kubelet stopped posting node status.");
        object::set_condition(&mut new, condition, write.now);
    }
    let _ = store.update(ResourceId::NODES, "", &node.name, Part::Status, new, write);
}

/// Updates the taints for conditions.
fn taint(store: &mut Store, node: &NodeView, ready: &str, write: &Write<'_>) {
    let wanted: Vec<(&str, &str)> = [
        (NOT_READY, ready != "True" && ready != "Unknown", &["NoSchedule", "NoExecute"][..]),
        (UNREACHABLE, ready == "Unknown", &["NoSchedule", "NoExecute"][..]),
        (UNSCHEDULABLE, node.unschedulable, &["NoSchedule"][..]),
    ]
    .into_iter()
    .filter(|(_, holds, _)| *holds)
    .flat_map(|(key, _, effects)| effects.iter().map(move |effect| (key, *effect)))
    .collect();
    let ours = |taint: &Value| [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&object::text(taint, &["key"]));
    let old = object::items(&node.object, &["spec", "taints"]);
    let is = |taint: &Value, (key, effect): (&str, &str)| {
        object::text(taint, &["key"]) == key && object::text(taint, &["effect"]) == effect
    };
    let mut new: Vec<Value> =
        old.iter().filter(|taint| !ours(taint) || wanted.iter().any(|one| is(taint, *one))).cloned().collect();
    for (key, effect) in &wanted {
        if !new.iter().any(|taint| is(taint, (key, effect))) {
            new.push(json!({"key": key, "effect": effect, "timeAdded": object::time(write.now)}));
        }
    }
    if new == old {
        return;
    }
    if let Some(current) = store.find(ResourceId::NODES, &Key::new("", node.name.clone())) {
        let mut changed = (*current).clone();
        // Other clients write taints too; the next step sees their changes.
        if object::items(&current, &["spec", "taints"]) == old {
            object::set(&mut changed, &["spec", "taints"], Value::Array(new));
            let _ = store.update(ResourceId::NODES, "", &node.name, Part::Main, changed, write);
        }
    }
}
