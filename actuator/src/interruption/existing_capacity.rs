//! Determines whether the pods of an interrupted node fit on existing nodes, by kube-scheduler's rules. If they do, no
//! replacement is needed, and the watcher may never send a plan for these pods.

use crate::{namespace_selectors, pods};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::Pod;
use plimsoll_kubesched::ClusterState;
use plimsoll_model::identity::PodUid;
use plimsoll_model::snapshot::{NodeState, PodState, Snapshot, SnapshotIndex};
use plimsoll_model::time::Timestamp;
use plimsoll_snapshot::{Extra, Objects};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether all pods in `to_move` fit on nodes other than their own, bound one after another, after the `promised` pods
/// of other interrupted nodes. Pods with volumes or resource claims count as not fitting, since their objects are not
/// watched here. So do pods that must be near pods of namespaces with certain labels. Nominated pods keep their places;
/// other pending pods do not count.
pub(super) fn fits_existing_nodes(
    to_move: &BTreeSet<PodUid>,
    promised: &BTreeSet<PodUid>,
    nodes: Vec<Node>,
    mut pods: Vec<Arc<Pod>>,
    now: Timestamp,
) -> bool {
    pods.retain(|pod| pod.node_name.is_some() || pod.nominated_node().is_some());
    let needs_namespaces = |pod: &Arc<Pod>| pod.spec.as_deref().is_some_and(namespace_selectors::needs_namespaces);
    if pods.iter().any(|pod| needs_namespaces(pod) && to_move.contains(&PodUid(pods::uid(pod)))) {
        return false;
    }
    pods.iter_mut().for_each(namespace_selectors::widen_anti_affinity);
    let objects = Objects { nodes, pods, ..Objects::default() };
    let (mut snapshot, _) = plimsoll_snapshot::build(&objects, &Extra { now, ..Extra::default() });
    evict(&mut snapshot, &(to_move | promised));
    let mut state = ClusterState::new(&snapshot, &SnapshotIndex::new(&snapshot));
    let (moving, others): (Vec<_>, Vec<_>) = state.pods().iter().cloned().partition(|pod| to_move.contains(&pod.uid));
    let has_claims = moving.iter().any(|pod| {
        let shape = snapshot.shapes.get(pod.shape);
        shape.is_none_or(|shape| !shape.volumes.is_empty() || !shape.resource_claims.is_empty())
    });
    if has_claims || moving.len() != to_move.len() {
        return false;
    }
    // A pod of these that has no place any more takes no room.
    for pod in others {
        state.schedule(pod.shape);
    }
    moving.iter().all(|pod| state.schedule(pod.shape).is_some())
}

/// Makes the pods pending, and closes their nodes and all nodes that are not in service.
fn evict(snapshot: &mut Snapshot, to_move: &BTreeSet<PodUid>) {
    let mut left = BTreeSet::new();
    for pod in snapshot.pods.iter_mut().filter(|pod| to_move.contains(&pod.uid)) {
        if let PodState::Bound(node) = &pod.state {
            left.insert(node.clone());
        }
        // Another pod has come in place of a terminating one, and may be bound already.
        if pod.moves() {
            pod.state = PodState::Pending;
        }
    }
    for node in &mut snapshot.nodes {
        node.deleting |= left.contains(&node.name);
        node.cordoned |= node.state != NodeState::Initialized;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NONE: BTreeSet<PodUid> = BTreeSet::new();

    fn node(name: &str, cpu: &str, spec: &Value) -> Node {
        let status =
            json!({"allocatable": {"cpu": cpu, "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]});
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"zone": name}}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    /// A pod of one cpu with the label `app: web`.
    fn pod(name: &str, node: &str, spec: &Value) -> Pod {
        let mut whole =
            json!({"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let metadata = json!({"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": whole})).unwrap()
    }

    fn shared(pods: Vec<Pod>) -> Vec<Arc<Pod>> {
        pods.into_iter().map(Arc::new).collect()
    }

    fn fits(moving: &[Value], other: &Value, bound: usize) -> bool {
        let gone = node("old", "8", &json!({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}));
        let mut pods: Vec<Pod> = (0..bound).map(|index| pod(&format!("b{index}"), "new", &json!({}))).collect();
        let names: Vec<String> = (0..moving.len()).map(|index| format!("m{index}")).collect();
        pods.extend(moving.iter().zip(&names).map(|(spec, name)| pod(name, "old", spec)));
        let to_move = names.iter().map(|name| PodUid::from(name.as_str())).collect();
        fits_existing_nodes(&to_move, &NONE, vec![gone, node("new", "3", other)], shared(pods), Timestamp(1))
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
        let devices = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]});
        assert!(!fits(&[devices], &plain, 0), "whether the devices are there is not known");
        let claim = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
        let ephemeral = json!({"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]});
        for volume in [claim, ephemeral] {
            assert!(!fits(&[volume], &plain, 0), "where the volume can be attached is not known");
        }
    }

    #[test]
    fn only_nodes_in_service_that_stay_take_pods() {
        let fits = |labels: &Value, moving: &[&str]| {
            let mut old = node("old", "8", &json!({}));
            old.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-05T00:00:00Z")).unwrap();
            let mut new = node("new", "3", &json!({}));
            new.metadata.labels = serde_json::from_value(labels.clone()).unwrap();
            let pods = shared(vec![pod("m", "old", &json!({}))]);
            let to_move = moving.iter().map(|uid| PodUid::from(*uid)).collect();
            fits_existing_nodes(&to_move, &NONE, vec![old, new], pods, Timestamp(1))
        };
        let registered = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true"});
        let mut initialized = registered.clone();
        initialized["karpenter.sh/initialized"] = json!("true");
        assert!(fits(&initialized, &["m"]));
        assert!(!fits(&initialized, &["m", "unknown"]), "nothing is known of the other pod");
        assert!(!fits(&registered, &["m"]), "its startup taints may still be there, and the old node ends");
    }

    /// Whether the pods of node `old` fit on nodes `a` and `b`. `resident` runs on `a`.
    fn fits_two_nodes(moving: &[Value], resident: &Value) -> bool {
        let gone = node("old", "8", &json!({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}));
        let nodes = [gone, node("a", "8", &json!({})), node("b", "8", &json!({}))];
        let mut pods = vec![pod("resident", "a", resident)];
        let names: Vec<String> = (0..moving.len()).map(|index| format!("m{index}")).collect();
        pods.extend(moving.iter().zip(&names).map(|(spec, name)| pod(name, "old", spec)));
        let to_move = names.iter().map(|name| PodUid::from(name.as_str())).collect();
        fits_existing_nodes(&to_move, &NONE, nodes.to_vec(), shared(pods), Timestamp(1))
    }

    #[test]
    fn nominated_pods_keep_their_places() {
        let fits = |nominated: Option<&str>| {
            let mut coming = pod("coming", "", &json!({}));
            coming.status.nominated_node_name = nominated.map(str::to_owned);
            let nodes = vec![node("old", "8", &json!({})), node("new", "1", &json!({}))];
            let pods = shared(vec![coming, pod("m", "old", &json!({}))]);
            fits_existing_nodes(&[PodUid::from("m")].into(), &NONE, nodes, pods, Timestamp(1))
        };
        assert!(fits(None) && fits(Some("old")));
        assert!(!fits(Some("new")), "only one pod fits there");
    }

    #[test]
    fn room_that_is_promised_to_other_pods_is_theirs() {
        let fits = |cpu: &str, promised: &str| {
            let gone = json!({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]});
            let nodes = vec![node("old", "8", &gone), node("other", "8", &gone), node("new", cpu, &json!({}))];
            let pods = shared(vec![pod("m", "old", &json!({})), pod("p", "other", &json!({}))]);
            let promised = [PodUid::from(promised)].into();
            fits_existing_nodes(&[PodUid::from("m")].into(), &promised, nodes, pods, Timestamp(1))
        };
        assert!(!fits("1", "p"));
        assert!(fits("2", "p"));
        assert!(fits("1", "gone"), "that pod does not exist any more");
        assert!(fits("1", "m"), "the pod itself");
    }

    #[test]
    fn a_terminating_pod_needs_no_promised_room_if_another_pod_has_come_in_its_place() {
        let fits = |cpu: &str, owner: &str, successor: Option<Pod>| {
            let gone = json!({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]});
            let nodes = vec![node("old", "8", &gone), node("other", "8", &gone), node("new", cpu, &json!({}))];
            let mut ending = pod("p", "other", &json!({}));
            ending.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-05T00:00:00Z")).unwrap();
            let owner = json!([{"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "owner"}]);
            ending.owners = Arc::new(serde_json::from_value(owner).unwrap());
            let pods = [pod("m", "old", &json!({})), ending].into_iter().chain(successor).collect();
            let promised = [PodUid::from("p")].into();
            fits_existing_nodes(&[PodUid::from("m")].into(), &promised, nodes, shared(pods), Timestamp(1))
        };
        let successor = || Some(pod("s", "new", &json!({})));
        assert!(fits("2", "ReplicaSet", successor()));
        assert!(!fits("1", "ReplicaSet", successor()));
        assert!(!fits("1", "StatefulSet", None), "the next pod comes when this one is gone");
    }

    #[test]
    fn pods_of_namespaces_that_may_have_the_labels_are_avoided_and_not_relied_on() {
        let term = |kind: &str, selector: Value, zone: &str| {
            let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}},
                "namespaceSelector": selector});
            let affinity = json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
            json!({"affinity": affinity, "nodeSelector": {"zone": zone}})
        };
        let plain = json!({});
        let blue = || json!({"matchLabels": {"team": "blue"}});
        assert!(!fits_two_nodes(&[term("podAntiAffinity", blue(), "a")], &plain));
        assert!(fits_two_nodes(&[term("podAntiAffinity", blue(), "b")], &plain));
        let on_a = json!({"nodeSelector": {"zone": "a"}});
        assert!(!fits_two_nodes(&[on_a], &term("podAntiAffinity", blue(), "a")));
        let not_red = json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]});
        assert!(!fits_two_nodes(&[term("podAffinity", not_red, "a")], &plain));
        assert!(fits_two_nodes(&[term("podAffinity", json!({}), "a")], &plain), "all namespaces");
    }

    fn apart() -> Value {
        let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}});
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    }

    #[test]
    fn anti_affinity_of_pods_that_stay_closes_their_domain() {
        let plain = json!({});
        let on_a = json!({"nodeSelector": {"zone": "a"}});
        assert!(fits_two_nodes(std::slice::from_ref(&on_a), &plain));
        assert!(!fits_two_nodes(std::slice::from_ref(&on_a), &apart()), "kube-scheduler would leave the pod pending");
        assert!(fits_two_nodes(&[plain], &apart()), "b is free");
    }

    #[test]
    fn pods_with_anti_affinity_and_spread_fit_where_kube_scheduler_takes_them() {
        let plain = json!({});
        assert!(fits_two_nodes(&[apart()], &plain), "b has no such pod");
        assert!(!fits_two_nodes(&[apart(), apart()], &plain));
        let spread = json!({"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}},
            "nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore"}]});
        assert!(fits_two_nodes(&[spread.clone(), spread.clone()], &plain));
        let mut pinned = spread;
        pinned["nodeSelector"] = json!({"zone": "a"});
        assert!(!fits_two_nodes(&[pinned], &plain), "two on a and none on b");
    }
}
