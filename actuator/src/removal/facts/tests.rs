use super::{Obstacle, RemovalObjects, RemovalView};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::{NillableDuration, Pod};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn node(name: &str, spec: &Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true"}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "2", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

fn pod(name: &str, node: &str, annotations: &Value, owner: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"}, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o"}]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
        "status": {"phase": "Running"},
    }))
    .unwrap()
}

fn plain(name: &str, node: &str) -> Pod {
    pod(name, node, &json!({}), "ReplicaSet")
}

/// A terminating pod on node `a`.
fn leaving(name: &str, owner: &str) -> Pod {
    let mut pod = pod(name, "a", &json!({}), owner);
    pod.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    pod
}

fn removal_objects(pods: Vec<Pod>) -> RemovalObjects {
    let budget = json!({"metadata": {"name": "web", "namespace": "ns", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 3, "currentHealthy": 4, "desiredHealthy": 1, "expectedPods": 4}});
    RemovalObjects {
        node: "a".into(),
        nodes: vec![node("a", &json!({})), node("b", &json!({}))],
        pods: pods.into_iter().map(Arc::new).collect(),
        budgets: vec![Arc::new(serde_json::from_value(budget).unwrap())],
        now: Timestamp(1_000_000),
        ..RemovalObjects::default()
    }
}

/// Adds the claim of node `a`, with a grace period.
fn bound_drain(objects: &mut RemovalObjects, grace_period: Option<&str>) {
    objects.nodes[0] = node("a", &json!({"providerID": "aws:///z/i-1"}));
    let claim = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "claim"},
        "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
            "terminationGracePeriod": grace_period},
        "status": {"providerID": "aws:///z/i-1"}});
    objects.claims = vec![serde_json::from_value(claim).unwrap()];
}

fn uids(names: &[&str]) -> BTreeSet<PodUid> {
    names.iter().map(|name| PodUid::from(*name)).collect()
}

#[test]
fn an_unreadable_budget_blocks_only_pods_of_its_namespace() {
    let check = |namespace: &str| {
        let mut objects = removal_objects(vec![plain("x", "a")]);
        let expression = json!({"key": "app", "operator": "Near", "values": ["web"]});
        let budget = json!({"metadata": {"name": "broken", "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchExpressions": [expression]}}});
        objects.budgets.push(Arc::new(serde_json::from_value(budget).unwrap()));
        RemovalView::of(objects).check(&uids(&["x"]), DisruptionReason::Underutilized)
    };
    assert!(matches!(check("ns"), Err(Obstacle::Unreadable(problem)) if problem.contains("broken")));
    assert_eq!(check("other"), Ok(()));
}

#[test]
fn facts_contain_moves_and_free_resources_by_node() {
    let daemon = pod("d", "a", &json!({}), "DaemonSet");
    let pods = vec![plain("x", "a"), plain("y", "a"), daemon, plain("z", "b"), leaving("l", "ReplicaSet")];
    let view = RemovalView::of(removal_objects(pods));
    let moves = view.moves(&[(NodeName::from("b"), uids(&["x", "y"]))].into());
    assert_eq!(moves[&NodeName::from("b")], Resources::from([("cpu", 1000), ("pods", 2)]));
    let facts = view.facts("claim", moves);
    assert_eq!(
        facts.evictions,
        [("ns/web".to_owned(), 3)].into(),
        "draining evicts the daemon, too, but no terminating pod"
    );
    assert_eq!(facts.disruptions_allowed, [("ns/web".to_owned(), 3)].into());
    assert_eq!(facts.free[&NodeName::from("b")], Resources::from([("cpu", 1500), ("pods", 9)]));
}

#[test]
fn a_view_with_live_pods_has_each_pod_once() {
    let protected = pod("x", "a", &json!({"karpenter.sh/do-not-disrupt": "true"}), "ReplicaSet");
    let cached = removal_objects(vec![plain("x", "a"), plain("y", "a"), plain("z", "b")]);
    let view = RemovalView::of(cached.with_live_pods(vec![protected, plain("new", "a")]));
    assert_eq!(view.facts("claim", BTreeMap::new()).evictions, [("ns/web".to_owned(), 3)].into(), "x, y and new");
    assert_eq!(
        view.moves(&[(NodeName::from("b"), uids(&["x"]))].into())[&NodeName::from("b")],
        Resources::from([("cpu", 500), ("pods", 1)])
    );
    let changed = Obstacle::ProtectedPod("x".into(), "ns/x".to_owned());
    assert_eq!(view.check(&uids(&["x", "y", "new"]), DisruptionReason::Underutilized), Err(changed));
}

#[test]
fn unschedulable_node_has_no_free_resources() {
    let disrupted = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    let not_ready = json!([{"type": "Ready", "status": "False"}]);
    for (pointer, value) in [
        ("/spec/unschedulable", json!(true)),
        ("/spec/taints", disrupted),
        ("/status/conditions", not_ready),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        let mut other = serde_json::to_value(node("b", &json!({}))).unwrap();
        let (object, field) = pointer.rsplit_once('/').unwrap();
        other.pointer_mut(object).unwrap()[field] = value;
        let mut objects = removal_objects(vec![plain("x", "a")]);
        objects.nodes[1] = serde_json::from_value(other).unwrap();
        let view = RemovalView::of(objects);
        let moves = view.moves(&[(NodeName::from("b"), uids(&["x"]))].into());
        assert!(view.facts("claim", moves).free.is_empty(), "{pointer}");
    }
}

#[test]
fn forced_removal_has_no_obstacles() {
    let held = pod("held", "a", &json!({"karpenter.sh/do-not-disrupt": "true"}), "ReplicaSet");
    let mut objects = removal_objects(vec![held, plain("new", "a")]);
    let node = &mut objects.nodes[0].metadata;
    node.labels.as_mut().unwrap().remove("karpenter.sh/initialized");
    node.annotations = Some([("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned())].into());
    let view = RemovalView::of(objects);
    assert_eq!(view.check(&uids(&[]), DisruptionReason::Expired), Ok(()));
    assert_ne!(view.check(&uids(&["held", "new"]), DisruptionReason::Drifted), Ok(()));
}

#[test]
fn node_in_a_shifted_zone_is_not_removed_voluntarily() {
    let check = |zone: &str, reason| {
        let mut objects = removal_objects(vec![]);
        objects.nodes[0].metadata.labels.as_mut().unwrap().insert("topology.kubernetes.io/zone".into(), zone.into());
        objects.shifted_zones = ["us-west-2a".to_owned()].into();
        RemovalView::of(objects).check(&uids(&[]), reason)
    };
    assert_eq!(check("us-west-2a", DisruptionReason::Empty), Err(Obstacle::ProtectedNode));
    assert_eq!(check("us-west-2a", DisruptionReason::Drifted), Err(Obstacle::ProtectedNode));
    assert_eq!(check("us-west-2a", DisruptionReason::Expired), Ok(()));
    assert_eq!(check("us-west-2b", DisruptionReason::Empty), Ok(()));
}

#[test]
fn each_obstacle_is_named() {
    let check =
        |pods: Vec<Pod>, planned: &[&str], reason| RemovalView::of(removal_objects(pods)).check(&uids(planned), reason);
    let empty = DisruptionReason::Empty;
    assert_eq!(check(vec![plain("x", "a")], &["x"], DisruptionReason::Underutilized), Ok(()));
    assert_eq!(check(vec![], &["x"], empty), Ok(()), "a pod that is gone is no obstacle");
    let new = Obstacle::NewPod("x".into(), "ns/x".to_owned());
    assert_eq!(check(vec![plain("x", "a")], &[], empty), Err(new));
    assert_eq!(check(vec![pod("d", "a", &json!({}), "DaemonSet")], &[], empty), Ok(()));
    assert_eq!(check(vec![leaving("x", "ReplicaSet")], &[], empty), Ok(()));
    let returns = Obstacle::NewPod("x".into(), "ns/x".to_owned());
    assert_eq!(check(vec![leaving("x", "StatefulSet")], &[], empty), Err(returns), "its successor is to find the node");
    let protected = |owner| pod("d", "a", &json!({"karpenter.sh/do-not-disrupt": "true"}), owner);
    let expected = Err(Obstacle::ProtectedPod("d".into(), "ns/d".to_owned()));
    assert_eq!(check(vec![protected("DaemonSet")], &["d"], empty), expected);
    assert_eq!(check(vec![protected("ReplicaSet")], &["d"], DisruptionReason::Drifted), expected, "no grace period");
    let mut objects = removal_objects(vec![]);
    objects.nodes[0].metadata.annotations =
        Some([("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned())].into());
    assert_eq!(RemovalView::of(objects).check(&uids(&[]), empty), Err(Obstacle::ProtectedNode));
}

#[test]
fn a_node_that_is_not_in_service_is_removed_only_as_empty() {
    let view = |pods: Vec<Pod>| {
        let mut objects = removal_objects(pods);
        objects.nodes[0].metadata.labels.as_mut().unwrap().remove("karpenter.sh/initialized");
        RemovalView::of(objects)
    };
    let (empty, not_in_service) = (DisruptionReason::Empty, Err(Obstacle::NotInService("a".into())));
    assert_eq!(view(vec![pod("d", "a", &json!({}), "DaemonSet")]).check(&uids(&[]), empty), Ok(()));
    assert_eq!(view(vec![]).check(&uids(&[]), DisruptionReason::Drifted), not_in_service);
    assert_eq!(view(vec![plain("x", "a")]).check(&uids(&["x"]), empty), not_in_service);
    let new = Obstacle::NewPod("x".into(), "ns/x".to_owned());
    assert_eq!(view(vec![plain("x", "a")]).check(&uids(&[]), empty), Err(new));
    assert!(view(vec![]).facts("claim", BTreeMap::new()).starting);
    assert!(!RemovalView::of(removal_objects(vec![])).facts("claim", BTreeMap::new()).starting);
}

#[test]
fn a_pod_that_is_not_safe_to_evict_is_an_obstacle_although_the_node_has_expired() {
    let not_safe = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"});
    let mut objects = removal_objects(vec![pod("x", "a", &not_safe, "ReplicaSet")]);
    bound_drain(&mut objects, None);
    // 999 s before the time of the objects.
    let created = serde_json::from_value(json!("1970-01-01T00:00:01Z")).unwrap();
    objects.claims[0].metadata.creation_timestamp = Some(created);
    objects.claims[0].spec.expire_after = Some(NillableDuration::from_seconds(600));
    let view = RemovalView::of(objects);
    let obstacle = Obstacle::ProtectedPod("x".into(), "ns/x".to_owned());
    assert_eq!(view.check(&uids(&["x"]), DisruptionReason::Underutilized), Err(obstacle));
    assert_eq!(view.check(&uids(&["x"]), DisruptionReason::Expired), Ok(()));
}

#[test]
fn a_protected_pod_is_an_obstacle_until_its_protection_ends() {
    let check = |value: &str, change: fn(&mut Pod)| {
        let mut protected = pod("x", "a", &json!({"karpenter.sh/do-not-disrupt": value}), "ReplicaSet");
        // 400 s before the time of the objects.
        protected.status.start_time = Some("1970-01-01T00:10:00Z".parse().unwrap());
        change(&mut protected);
        RemovalView::of(removal_objects(vec![protected])).check(&uids(&["x"]), DisruptionReason::Underutilized)
    };
    let protected = Err(Obstacle::ProtectedPod("x".into(), "ns/x".to_owned()));
    for (value, expected) in [("true", &protected), ("24h", &protected), ("401s", &protected), ("400s", &Ok(()))] {
        assert_eq!(check(value, |_| ()), *expected, "{value}");
    }
    let terminate =
        |pod: &mut Pod| pod.metadata.deletion_timestamp = leaving("x", "ReplicaSet").metadata.deletion_timestamp;
    assert_eq!(check("true", terminate), Ok(()), "it has been disrupted already");
}

#[test]
fn annotations_of_cluster_autoscaler_protect_pods_and_nodes() {
    let check = |owner: &str, reason| {
        let annotation = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"});
        RemovalView::of(removal_objects(vec![pod("x", "a", &annotation, owner)])).check(&uids(&["x"]), reason)
    };
    let protected = Err(Obstacle::ProtectedPod("x".into(), "ns/x".to_owned()));
    assert_eq!(check("ReplicaSet", DisruptionReason::Underutilized), protected);
    assert_eq!(check("ReplicaSet", DisruptionReason::Expired), Ok(()));
    assert_eq!(check("DaemonSet", DisruptionReason::Underutilized), Ok(()), "as in Cluster Autoscaler");
    let mut objects = removal_objects(vec![]);
    objects.nodes[0].metadata.annotations =
        Some([("cluster-autoscaler.kubernetes.io/scale-down-disabled".to_owned(), "true".to_owned())].into());
    assert_eq!(RemovalView::of(objects).check(&uids(&[]), DisruptionReason::Empty), Err(Obstacle::ProtectedNode));
}

#[test]
fn drift_does_not_wait_for_protected_pods_if_a_grace_period_bounds_the_drain() {
    let view = |grace_period: Option<&str>| {
        let mut objects =
            removal_objects(vec![pod("x", "a", &json!({"karpenter.sh/do-not-disrupt": "true"}), "ReplicaSet")]);
        bound_drain(&mut objects, grace_period);
        RemovalView::of(objects)
    };
    let protected = Err(Obstacle::ProtectedPod("x".into(), "ns/x".to_owned()));
    for (grace_period, reason, expected) in [
        (Some("1h"), DisruptionReason::Drifted, &Ok(())),
        (Some("1h"), DisruptionReason::Underutilized, &protected),
        (None, DisruptionReason::Drifted, &protected),
    ] {
        let view = view(grace_period);
        assert_eq!(view.check(&uids(&["x"]), reason), *expected, "{grace_period:?} {reason:?}");
        assert_eq!(view.facts("claim", BTreeMap::new()).bounded, grace_period.is_some());
    }
}

/// Each budget allows three disruptions.
#[test]
fn a_pod_with_several_budgets_is_an_obstacle_unless_a_grace_period_bounds_the_drain() {
    let check = |pod: Pod, namespace: &str, grace_period: Option<&str>, reason| {
        let mut objects = removal_objects(vec![pod]);
        let mut second = (*objects.budgets[0]).clone();
        second.metadata.name = Some("all".to_owned());
        second.metadata.namespace = Some(namespace.to_owned());
        objects.budgets.push(Arc::new(second));
        bound_drain(&mut objects, grace_period);
        RemovalView::of(objects).check(&uids(&["x"]), reason)
    };
    let (pod, drifted) = (|| plain("x", "a"), DisruptionReason::Drifted);
    let several = Err(Obstacle::SeveralBudgets("x".into(), "ns/x".to_owned()));
    assert_eq!(check(pod(), "ns", None, DisruptionReason::Underutilized), several);
    assert_eq!(check(pod(), "ns", Some("1h"), DisruptionReason::Underutilized), several);
    assert_eq!(check(pod(), "ns", None, drifted), several);
    assert_eq!(check(pod(), "ns", Some("1h"), drifted), Ok(()));
    assert_eq!(check(pod(), "other", None, drifted), Ok(()));
    assert_eq!(check(leaving("x", "ReplicaSet"), "ns", None, drifted), Ok(()), "it is not evicted");
}

#[test]
fn pods_that_a_destination_is_reserved_for_use_its_resources() {
    let to: BTreeMap<NodeName, BTreeSet<PodUid>> = [(NodeName::from("b"), uids(&["x"]))].into();
    let free = |expected: BTreeMap<NodeName, Resources>| {
        let objects = removal_objects(vec![plain("x", "a"), plain("y", "b")]);
        let view = RemovalView::of(RemovalObjects { expected, ..objects });
        view.facts("claim", view.moves(&to)).free[&NodeName::from("b")].get("cpu")
    };
    assert_eq!(free(BTreeMap::new()), 1500);
    assert_eq!(free([(NodeName::from("b"), Resources::from([("cpu", 400)]))].into()), 1100);
}

/// Such an annotation protects nothing.
#[test]
fn a_field_that_is_ignored_is_no_obstacle() {
    let odd = pod("x", "a", &json!({"karpenter.sh/do-not-disrupt": "sometimes"}), "ReplicaSet");
    let check = |known: &[&str]| {
        RemovalView::of(removal_objects(vec![odd.clone()])).check(&uids(known), DisruptionReason::Underutilized)
    };
    assert_eq!(check(&["x"]), Ok(()));
    assert_eq!(check(&[]), Err(Obstacle::NewPod("x".into(), "ns/x".to_owned())));
}
