//! Estimates whether the pods of an interrupted node fit on existing nodes. If they do, no replacement is needed, and
//! the watcher may never send a plan for these pods.

use k8s_openapi::api::core::v1::{Node, Pod};
use plimsoll_model::identity::PodUid;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node as NodeView, NodeState, PodShape, PodState};
use plimsoll_model::taints::{TaintEffect, Toleration, untolerated};
use plimsoll_model::time::Timestamp;
use plimsoll_snapshot::{Extra, Objects};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Whether all pods in `to_move` fit, placed one after another. Pods with affinity or spread constraints count as not
/// fitting, since only the scheduler can evaluate those.
pub(super) fn fits_existing_nodes(
    to_move: &BTreeSet<PodUid>,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    now: Timestamp,
) -> bool {
    let pods = pods.into_iter().map(Arc::new).collect();
    let objects = Objects { nodes, pods, ..Objects::default() };
    let (snapshot, _) = plimsoll_snapshot::build(&objects, &Extra { now, ..Extra::default() });
    let shapes: BTreeMap<_, &PodShape> = snapshot.shapes.iter().map(|shape| (&shape.id, shape)).collect();
    let takes_pods =
        |node: &&NodeView| node.state == NodeState::Initialized && node.ready && !node.cordoned && !node.deleting;
    let mut free: Vec<(&NodeView, Resources)> =
        snapshot.nodes.iter().filter(takes_pods).map(|node| (node, node.allocatable.clone())).collect();
    for pod in &snapshot.pods {
        let (PodState::Bound(name), Some(shape)) = (&pod.state, shapes.get(&pod.shape)) else { continue };
        if let Some((_, available)) = free.iter_mut().find(|(node, _)| node.name == *name) {
            available.subtract(&shape.requests);
        }
    }
    let moving: Vec<_> = snapshot.pods.iter().filter(|pod| to_move.contains(&pod.uid)).collect();
    moving.len() == to_move.len()
        && moving.into_iter().all(|pod| {
            let Some(shape) = shapes.get(&pod.shape) else { return false };
            let target =
                free.iter_mut().find(|(node, available)| allows(node, shape) && shape.requests.fits_in(available));
            target.is_some_and(|(_, available)| {
                available.subtract(&shape.requests);
                true
            })
        })
}

fn allows(node: &NodeView, shape: &PodShape) -> bool {
    let alone = shape.topology_spread.iter().all(|spread| !spread.required)
        && shape.pod_affinity.iter().all(|term| term.weight.is_some())
        && shape.host_ports.is_empty()
        && shape.volumes.is_empty()
        && shape.resource_claims.is_empty();
    let hard: Vec<_> =
        node.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule).cloned().collect();
    let tolerations: &[Toleration] = &shape.tolerations;
    let affinity = &shape.required_node_affinity;
    alone
        && untolerated(&hard, tolerations).is_none()
        && shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && (affinity.is_empty() || affinity.iter().any(|term| term.matches_node(node.name.as_str(), &node.labels)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, cpu: &str, spec: &Value) -> Node {
        let status =
            json!({"allocatable": {"cpu": cpu, "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]});
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"zone": name}}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    fn pod(name: &str, node: &str, spec: &Value) -> Pod {
        let mut whole =
            json!({"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let metadata = json!({"name": name, "namespace": "ns", "uid": name});
        serde_json::from_value(json!({"metadata": metadata, "spec": whole})).unwrap()
    }

    fn fits(moving: &[Value], other: &Value, bound: usize) -> bool {
        let gone = node("old", "8", &json!({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}));
        let mut pods: Vec<Pod> = (0..bound).map(|index| pod(&format!("b{index}"), "new", &json!({}))).collect();
        let names: Vec<String> = (0..moving.len()).map(|index| format!("m{index}")).collect();
        pods.extend(moving.iter().zip(&names).map(|(spec, name)| pod(name, "old", spec)));
        let to_move = names.iter().map(|name| PodUid::from(name.as_str())).collect();
        fits_existing_nodes(&to_move, vec![gone, node("new", "3", other)], pods, Timestamp(1))
    }

    #[test]
    fn pods_must_fit_together_and_the_old_node_does_not_count() {
        let plain = json!({});
        assert!(fits(&[plain.clone(), plain.clone()], &plain, 1));
        assert!(!fits(&[plain.clone(), plain.clone()], &plain, 2));
        assert!(!fits(std::slice::from_ref(&plain), &json!({"unschedulable": true}), 0));
        let tainted = json!({"taints": [{"key": "x", "effect": "NoSchedule"}]});
        assert!(!fits(std::slice::from_ref(&plain), &tainted, 0));
        assert!(fits(
            &[json!({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "new"}})],
            &tainted,
            0
        ));
        assert!(!fits(&[json!({"nodeSelector": {"zone": "elsewhere"}})], &plain, 0));
    }
}
