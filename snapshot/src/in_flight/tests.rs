use crate::{Extra, Objects};
use plimsoll_model::execution::{ClaimState, InFlightClaim};
use plimsoll_model::plan::PodRef;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodeState};
use plimsoll_model::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn in_ledger(name: &str, state: ClaimState, pods: &[&str]) -> InFlightClaim {
    InFlightClaim {
        name: name.to_owned(),
        node_pool: "default".into(),
        pods: pods.iter().map(|uid| PodRef { name: (*uid).to_owned(), uid: (*uid).into() }).collect(),
        limit_usage: Resources::from([("cpu", 8000)]),
        labels: [("topology.kubernetes.io/zone".to_owned(), "a".to_owned())].into(),
        allocatable: Resources::from([("cpu", 3800)]),
        state,
        ..InFlightClaim::default()
    }
}

fn claim() -> Value {
    json!({"metadata": {"name": "c1", "labels": {"karpenter.sh/nodepool": "default"}}, "spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [], "resources": {"requests": {"cpu": "2"}}}})
}

fn nodes(claims: &[Value], in_flight: Vec<InFlightClaim>) -> Vec<Node> {
    let objects = Objects {
        node_claims: claims.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        ..Objects::default()
    };
    let in_flight = in_flight.into_iter().map(Arc::new).collect();
    let extra = Extra { in_flight, now: Timestamp(9000), ..Extra::default() };
    let (snapshot, problems) = crate::build(&objects, &extra);
    assert_eq!(problems, []);
    snapshot.nodes
}

#[test]
fn a_claim_only_in_the_ledger_is_an_in_flight_node() {
    let [node] = &nodes(&[], vec![in_ledger("c1", ClaimState::Launching, &[])])[..] else { panic!("one node") };
    assert_eq!((node.state, node.deleting, node.node_claim.as_deref()), (NodeState::InFlight, false, Some("c1")));
    assert_eq!(node.allocatable, Resources::from([("cpu", 3800)]));
    assert_eq!(node.limit_usage, Resources::from([("cpu", 8000), ("nodes", 1)]));
    assert_eq!(node.node_pool.as_ref().map(|pool| pool.as_str()), Some("default"));
    assert_eq!(node.created, Timestamp(9000));
}

#[test]
fn a_claim_in_cluster_and_ledger_is_one_node() {
    let [node] = &nodes(&[claim()], vec![in_ledger("c1", ClaimState::Launching, &[])])[..] else { panic!("one node") };
    assert_eq!(node.allocatable, Resources::from([("cpu", 3800)]), "more than was asked for");
    assert_eq!(node.limit_usage.get("cpu"), 8000, "the most that it may turn out to be (rule 7)");
    let mut launched = claim();
    launched["status"] = json!({"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3900m"}});
    let [node] = &nodes(&[launched], vec![in_ledger("c1", ClaimState::Launched, &[])])[..] else { panic!("one node") };
    assert_eq!((node.allocatable.get("cpu"), node.limit_usage.get("cpu")), (3900, 4000), "what it turned out to be");
}

#[test]
fn a_terminating_claim_counts_against_limits_but_offers_no_capacity() {
    let [node] = &nodes(&[], vec![in_ledger("c1", ClaimState::Terminating, &[])])[..] else { panic!("one node") };
    assert_eq!((node.deleting, node.allocatable.is_empty(), node.limit_usage.get("cpu")), (true, true, 8000));
    let [node] = &nodes(&[claim()], vec![in_ledger("c1", ClaimState::Terminating, &[])])[..] else {
        panic!("one node")
    };
    assert!(node.deleting);
}

#[test]
fn an_initialized_claim_whose_node_is_gone_takes_no_pods() {
    let cordoned = |conditions: &[&str]| {
        let condition = |name: &&str| {
            json!({"type": name, "status": "True", "reason": name, "message": "",
                "lastTransitionTime": "1970-01-01T00:01:00Z"})
        };
        let mut claim = claim();
        claim["status"]["conditions"] = conditions.iter().map(condition).collect();
        nodes(&[claim], Vec::new())[0].cordoned
    };
    assert!(!cordoned(&["Registered"]), "the watch of Nodes may lag");
    assert!(cordoned(&["Registered", "Initialized"]));
    assert!(cordoned(&["Registered", "InitializationTimedOut"]), "its Node may never be");
}

#[test]
fn a_negative_reserved_amount_is_unreadable() {
    let with_reserved = |text: &str| {
        let mut claim = claim();
        claim["metadata"]["annotations"] = json!({"plimsoll.dev/reserved": text});
        let objects = Objects { node_claims: vec![serde_json::from_value(claim).unwrap()], ..Objects::default() };
        let (snapshot, problems) = crate::build(&objects, &Extra::default());
        (snapshot.nodes.len(), problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(with_reserved(r#"{"cpu": "1"}"#), (1, Vec::new()));
    let problem = "NodeClaim c1: metadata.annotations.plimsoll.dev/reserved.cpu: must not be negative";
    assert_eq!(with_reserved(r#"{"cpu": "-1"}"#), (0, vec![problem.to_owned()]));
}
