use crate::in_flight::tests::in_ledger;
use crate::{Extra, Objects};
use plimsoll_model::execution::{ClaimState, InFlightClaim};
use plimsoll_model::snapshot::{PodState, Snapshot};
use plimsoll_model::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// A pod `u1`, bound or marked Unschedulable.
fn pod(node: Option<&str>) -> Value {
    json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u1"},
        "spec": {"containers": [{"name": "app"}], "nodeName": node},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
}

fn node(name: &str, taint: Option<&str>) -> Value {
    let taints: Vec<_> = taint.map(|key| json!({"key": key, "effect": "NoSchedule"})).into_iter().collect();
    json!({"metadata": {"name": name}, "spec": {"taints": taints, "providerID": format!("aws:///a/i-{name}")}})
}

fn snapshot(pod: &Value, nodes: &[Value], claims: &[Value], in_flight: Vec<InFlightClaim>) -> Snapshot {
    let objects = Objects {
        pods: vec![Arc::new(serde_json::from_value(pod.clone()).unwrap())],
        nodes: nodes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        node_claims: claims.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        ..Objects::default()
    };
    let in_flight = in_flight.into_iter().map(Arc::new).collect();
    let (snapshot, problems) = crate::build(&objects, &Extra { in_flight, ..Extra::default() });
    assert_eq!(problems, []);
    snapshot
}

fn claim_of(node: &str, annotation: Option<&str>) -> Value {
    let annotations: serde_json::Map<_, _> = annotation.map(|key| (key.to_owned(), json!("x"))).into_iter().collect();
    json!({"metadata": {"name": "c1", "annotations": annotations}, "spec": {
        "nodeClassRef": {"group": "g", "kind": "EC2NodeClass", "name": "default"}, "requirements": []},
        "status": {"providerID": format!("aws:///a/i-{node}"), "nodeName": node}})
}

#[test]
fn a_pod_of_an_in_flight_claim_is_reserved_on_its_node() {
    let launching = vec![in_ledger("c1", ClaimState::Launching, &["u1"])];
    let result = snapshot(&pod(None), &[], &[], launching.clone());
    assert_eq!(result.pods[0].state, PodState::Reserved("c1".into()));
    // Claim and Node are one record: once the Node exists, the pod waits for it by name.
    let result = snapshot(&pod(None), &[node("n1", None)], &[claim_of("n1", None)], launching);
    assert_eq!(result.pods[0].state, PodState::Reserved("n1".into()));
    assert_eq!(result.nodes.len(), 1);
}

#[test]
fn a_terminating_claim_reserves_nothing() {
    let result = snapshot(&pod(None), &[], &[], vec![in_ledger("c1", ClaimState::Terminating, &["u1"])]);
    assert_eq!(result.pods[0].state, PodState::Pending);
}

#[test]
fn a_bound_pod_ignores_reservations_on_other_nodes() {
    let result =
        snapshot(&pod(Some("n1")), &[node("n1", None)], &[], vec![in_ledger("c1", ClaimState::Launched, &["u1"])]);
    assert_eq!(result.pods[0].state, PodState::Bound("n1".into()));
}

#[test]
fn pods_of_a_deleting_node_move_to_their_reserved_node() {
    let deleting_node = [node("n1", Some("karpenter.sh/disrupted"))];
    let result = snapshot(&pod(Some("n1")), &deleting_node, &[], vec![]);
    assert!(result.nodes[0].deleting, "somebody has begun to remove it");
    assert_eq!(result.pods[0].state, PodState::Bound("n1".into()));
    let result = snapshot(&pod(Some("n1")), &deleting_node, &[], vec![in_ledger("c2", ClaimState::Launching, &["u1"])]);
    assert_eq!(result.pods[0].state, PodState::Reserved("c2".into()), "its next node is on the way");
    let mut terminating_pod = pod(Some("n1"));
    terminating_pod["metadata"]["deletionTimestamp"] = json!("2026-01-05T00:00:00Z");
    let result = snapshot(&terminating_pod, &deleting_node, &[], vec![in_ledger("c2", ClaimState::Launching, &["u1"])]);
    assert_eq!(result.pods[0].state, PodState::Bound("n1".into()), "the pod made in its stead needs the place");
}

#[test]
fn an_interrupted_node_is_deleting() {
    let result =
        snapshot(&pod(Some("n1")), &[node("n1", None)], &[claim_of("n1", Some("plimsoll.dev/interrupted"))], vec![]);
    assert!(result.nodes[0].deleting);
    let result = snapshot(&pod(Some("n1")), &[node("n1", None)], &[claim_of("n1", None)], vec![]);
    assert!(!result.nodes[0].deleting);
}

#[test]
fn a_terminating_pod_leaves_its_reservation_to_its_replacement() {
    let mut terminating_pod = pod(Some("n1"));
    terminating_pod["metadata"]["deletionTimestamp"] = json!("2026-01-05T00:00:00Z");
    let deleting_node = [node("n1", Some("karpenter.sh/disrupted"))];
    let result = snapshot(&terminating_pod, &deleting_node, &[], vec![in_ledger("c2", ClaimState::Launching, &["u1"])]);
    assert_eq!(result.pods[0].state, PodState::Bound("n1".into()));
}

const NOT_SAFE: (&str, &str) = ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
const KEPT: (&str, &str) = ("karpenter.sh/do-not-disrupt", "true");

/// Whether the annotation protects a pod on the node of the claim, at this second.
fn protects((key, value): (&str, &str), claim: &Value, second: i64) -> bool {
    let mut annotated = pod(Some("n1"));
    annotated["metadata"]["annotations"] = json!({key: value});
    let objects = Objects {
        pods: vec![Arc::new(serde_json::from_value(annotated).unwrap())],
        nodes: vec![serde_json::from_value(node("n1", None)).unwrap()],
        node_claims: vec![serde_json::from_value(claim.clone()).unwrap()],
        ..Objects::default()
    };
    let now = Timestamp(second * 1000);
    let (snapshot, problems) = crate::build(&objects, &Extra { now, ..Extra::default() });
    assert_eq!(problems, []);
    snapshot.pods[0].do_not_disrupt_until.is_some_and(|until| until > now)
}

#[test]
fn a_forced_removal_ends_the_protection_of_pods_as_the_drain_does() {
    let both = |claim: &Value, second: i64| (protects(NOT_SAFE, claim, second), protects(KEPT, claim, second));
    let mut claim = claim_of("n1", None);
    claim["metadata"]["creationTimestamp"] = json!("1970-01-01T00:01:00Z");
    claim["spec"]["expireAfter"] = json!("1h");
    assert_eq!(both(&claim, 3659), (true, true));
    assert_eq!(both(&claim, 3660), (false, true), "the node has expired");

    let with = |key: &str, value: &str| {
        let mut other = claim.clone();
        other["metadata"]["annotations"] = json!({key: value});
        other
    };
    let interrupted = with("plimsoll.dev/interrupted", r#"{"v":1,"kind":"scheduled_change","heard":0}"#);
    assert_eq!(both(&interrupted, 120), (false, true), "the end of the instance is not known");
    let notice = r#"{"v":1,"kind":"spot_interrupted","heard":0,"ends":600000}"#;
    let interrupted = with("plimsoll.dev/interrupted", notice);
    assert_eq!(both(&interrupted, 299), (false, true));
    assert_eq!(both(&interrupted, 300), (false, false), "the instance ends in five minutes");

    let mut deleted = with("karpenter.sh/nodeclaim-termination-timestamp", "1970-01-01T00:10:00Z");
    assert_eq!(both(&deleted, 300), (true, true), "the claim is not being deleted");
    deleted["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:02:00Z");
    assert_eq!(both(&deleted, 299), (true, true));
    assert_eq!(both(&deleted, 300), (false, false), "the drain deletes the pods soon");
}

#[test]
fn a_node_that_expires_while_it_is_removed_for_another_reason_keeps_its_protected_pods() {
    let mut claim = claim_of("n1", None);
    claim["metadata"]["creationTimestamp"] = json!("1970-01-01T00:01:00Z");
    claim["spec"]["expireAfter"] = json!("1h");
    claim["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:02:00Z");
    assert!(protects(NOT_SAFE, &claim, 3660), "the drain of a claim that somebody deleted waits for the pod");
    let command = |reason: &str| json!({"plimsoll.dev/removal": format!(r#"{{"v":1,"reason":"{reason}"}}"#)});
    claim["metadata"]["annotations"] = command("Drifted");
    assert!(protects(NOT_SAFE, &claim, 3660));
    claim["metadata"]["annotations"] = command("Expired");
    assert!(!protects(NOT_SAFE, &claim, 3660), "the drain evicts the pod");
    assert!(protects(KEPT, &claim, 3660));
}

#[test]
fn a_claim_that_expires_without_a_plan_loses_the_same_protection() {
    let mut claim = claim_of("n1", None);
    claim["metadata"]["creationTimestamp"] = json!("1970-01-01T00:01:00Z");
    claim["spec"]["expireAfter"] = json!("1h");
    claim["metadata"]["deletionTimestamp"] = json!("1970-01-01T01:01:00Z");
    assert!(protects(NOT_SAFE, &claim, 3660), "the drain of a claim that somebody deleted waits for the pod");
    let marked = json!({"type": "DisruptionReason", "status": "True", "reason": "Expired", "message": "Expired",
        "lastTransitionTime": "1970-01-01T01:01:00Z"});
    claim["status"]["conditions"] = json!([marked]);
    assert!(!protects(NOT_SAFE, &claim, 3660), "the drain evicts the pod");
    assert!(protects(KEPT, &claim, 3660));
}
