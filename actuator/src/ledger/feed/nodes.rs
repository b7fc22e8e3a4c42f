//! The facts of a node that plans rest on (safety rule 10). Heartbeats are not among them.

use crate::stores::{Cursor, Delta, Stores};
use k8s_openapi::api::core::v1::{Node, Taint};
use plimsoll_api::Pod;
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::taint;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A hash of a node's facts, valid only within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeFacts(u64);

/// The facts of all nodes at the last pass.
#[derive(Debug, Default)]
pub(super) struct NodesSeen {
    facts: BTreeMap<NodeName, NodeFacts>,
    nodes_read: Cursor,
    pods_read: Cursor,
}

impl NodesSeen {
    /// Nodes whose facts changed since the last pass, by name. Only nodes that changed, or whose pods did, are read.
    pub(super) fn changed(&mut self, stores: &Stores) -> Vec<NodeName> {
        let mut names: BTreeSet<String> = match stores.nodes.changes(&mut self.nodes_read) {
            Delta::All(nodes) => {
                let known = self.facts.keys().map(|name| name.0.clone());
                nodes.iter().filter_map(|node| node.metadata.name.clone()).chain(known).collect()
            }
            Delta::Changed(nodes) => nodes.into_iter().map(|(key, _)| key.1.clone()).collect(),
        };
        match stores.pods.changed_nodes(&mut self.pods_read) {
            Some(nodes) => names.extend(nodes),
            None => names.extend(self.facts.keys().map(|name| name.0.clone())),
        }
        let mut changed = Vec::new();
        for name in names {
            let facts = stores.nodes.get(&name).map(|node| facts(&node, &stores.pods.on_node(&name)));
            let name = NodeName(name);
            if self.facts.get(&name) == facts.as_ref() {
                continue;
            }
            match facts {
                Some(facts) => drop(self.facts.insert(name.clone(), facts)),
                None => drop(self.facts.remove(&name)),
            }
            changed.push(name);
        }
        changed
    }
}

/// A hash of the pods, allocatable, labels, taints and deletion of a node. The taint of a postponed removal does not
/// count: no plan depends on it, and its removal is planned next.
fn facts(node: &Node, pods: &[Arc<Pod>]) -> NodeFacts {
    let mut hasher = DefaultHasher::new();
    let uids: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    uids.hash(&mut hasher);
    node.metadata.labels.hash(&mut hasher);
    node.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    for (resource, amount) in allocatable.into_iter().flatten() {
        (resource, &amount.0).hash(&mut hasher);
    }
    let counts = |taint: &&Taint| taint.key != taint::REMOVAL_POSTPONED;
    let mut taints: Vec<&Taint> = crate::nodes::taints(node).iter().filter(counts).collect();
    taints.sort_by_key(|taint| (&taint.key, &taint.effect));
    for taint in taints {
        (&taint.key, &taint.value, &taint.effect).hash(&mut hasher);
    }
    NodeFacts(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object() -> Value {
        let taints = json!([
            {"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "b", "value": "1", "effect": "NoExecute"}]);
        json!({"metadata": {"name": "n", "resourceVersion": "1", "labels": {"team": "x"}}, "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": "2"}, "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-05T00:00:00Z"}]}})
    }

    fn facts_of(node: Value, pods: &[&str]) -> NodeFacts {
        let pod = |uid: &&str| Arc::new(serde_json::from_value(json!({"metadata": {"uid": uid}})).unwrap());
        facts(&serde_json::from_value(node).unwrap(), &pods.iter().map(pod).collect::<Vec<_>>())
    }

    /// The object with another value at `path`.
    fn with(path: &str, value: Value) -> Value {
        let mut changed = object();
        *changed.pointer_mut(path).unwrap() = value;
        changed
    }

    #[test]
    fn each_fact_counts_and_nothing_else_does() {
        let before = facts_of(object(), &["p", "q"]);
        let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
        let (a, b) = (taint("a", "1", "NoSchedule"), taint("b", "1", "NoExecute"));
        let name = json!({"name": "n", "labels": {"team": "x"}, "deletionTimestamp": "2026-01-05T00:00:00Z"});
        for changed in [
            with("/metadata/labels/team", json!("y")),
            with("/metadata", name),
            with("/status/allocatable", json!({"cpu": "3"})),
            with("/status/allocatable", json!({"gpu": "2"})),
            with("/spec/taints", json!([a])),
            with("/spec/taints", json!([a, taint("c", "1", "NoExecute")])),
            with("/spec/taints", json!([a, taint("b", "2", "NoExecute")])),
            with("/spec/taints", json!([a, taint("b", "1", "NoSchedule")])),
        ] {
            assert_ne!(facts_of(changed.clone(), &["p", "q"]), before, "{changed}");
        }
        for pods in [&["p"][..], &["p", "q", "r"], &["p", "r"]] {
            assert_ne!(facts_of(object(), pods), before, "{pods:?}");
        }
        let postponed = taint(taint::REMOVAL_POSTPONED, "", "PreferNoSchedule");
        for same in [
            with("/metadata/resourceVersion", json!("2")),
            with("/status/conditions/0/lastHeartbeatTime", json!("2026-01-05T00:01:00Z")),
            with("/spec/taints", json!([b, a])),
            with("/spec/taints", json!([postponed, a, b])),
        ] {
            assert_eq!(facts_of(same.clone(), &["q", "p"]), before, "{same}");
        }
    }
}
