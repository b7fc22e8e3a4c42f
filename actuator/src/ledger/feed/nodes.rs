//! The facts of a node that plans rest on (safety rule 10). Heartbeats are not among them.

use k8s_openapi::api::core::v1::{Node, Pod};
use plimsoll_model::identity::NodeName;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A hash of a node's facts, valid only within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeFacts(u64);

/// Hashes of the pods, allocatable, labels, taints and deletion of each node.
pub(super) fn facts(nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> BTreeMap<NodeName, NodeFacts> {
    let mut on_node: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for pod in pods {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if let (Some(node), Some(uid)) = (node, pod.metadata.uid.as_deref()) {
            on_node.entry(node).or_default().insert(uid);
        }
    }
    nodes
        .iter()
        .map(|node| {
            let name = node.metadata.name.clone().unwrap_or_default();
            let mut hasher = DefaultHasher::new();
            on_node.get(name.as_str()).hash(&mut hasher);
            node.metadata.labels.hash(&mut hasher);
            node.metadata.deletion_timestamp.is_some().hash(&mut hasher);
            let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
            for (resource, amount) in allocatable.into_iter().flatten() {
                (resource, &amount.0).hash(&mut hasher);
            }
            let mut taints: Vec<_> = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).collect();
            taints.sort_by_key(|taint| (&taint.key, &taint.effect));
            for taint in taints {
                (&taint.key, &taint.value, &taint.effect).hash(&mut hasher);
            }
            (NodeName(name), NodeFacts(hasher.finish()))
        })
        .collect()
}
