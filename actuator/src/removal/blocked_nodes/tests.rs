use super::{MAX_NODES, Verdict, next_ones, verdicts};
use crate::events::reason::{DISRUPTION_BLOCKED, UNCONSOLIDATABLE};
use plimsoll_model::time::Timestamp;
use plimsoll_snapshot::{Extra, Objects};
use serde_json::{Value, json};
use std::sync::Arc;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// A condition that is true.
fn condition(kind: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": time})
}

/// Node `a` of NodePool `p` with pod `shop/web`, which a PodDisruptionBudget with room covers.
struct Cluster {
    node: Value,
    claim: Value,
    pod: Value,
    budget: Value,
    pool: Value,
}

impl Cluster {
    fn new() -> Self {
        Self {
            node: json!({
                "metadata": {"name": "a", "labels": {"karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true",
                    "karpenter.sh/initialized": "true"}, "annotations": {}},
                "spec": {"providerID": "aws:///us-east-1a/i-1"},
                "status": {"allocatable": {"cpu": "2", "pods": "10"},
                    "conditions": [{"type": "Ready", "status": "True"}]},
            }),
            claim: json!({
                "metadata": {"name": "p-1", "uid": "claim", "labels": {"karpenter.sh/nodepool": "p"},
                    "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"},
                    "requirements": [], "expireAfter": "Never"},
                "status": {"providerID": "aws:///us-east-1a/i-1", "nodeName": "a",
                    "conditions": [condition("Launched"), condition("Registered"), condition("Initialized")]},
            }),
            pod: json!({
                "metadata": {"name": "web", "namespace": "shop", "uid": "web", "labels": {"app": "web"},
                    "annotations": {},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o"}]},
                "spec": {"nodeName": "a", "containers": [{"name": "c"}]},
                "status": {"phase": "Running"},
            }),
            budget: json!({
                "metadata": {"name": "web", "namespace": "shop", "generation": 1},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
                "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
                    "desiredHealthy": 1, "expectedPods": 2},
            }),
            pool: json!({
                "metadata": {"name": "p"},
                "spec": {"disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized"},
                    "template": {"spec": {"requirements": [], "nodeClassRef": {
                        "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}},
            }),
        }
    }

    fn verdict(self) -> Option<Verdict> {
        self.verdict_with(&Extra { now: NOW, ..Extra::default() })
    }

    fn verdict_with(self, extra: &Extra) -> Option<Verdict> {
        let objects = Objects {
            nodes: vec![serde_json::from_value(self.node).unwrap()],
            node_claims: vec![serde_json::from_value(self.claim).unwrap()],
            pods: vec![Arc::new(serde_json::from_value(self.pod).unwrap())],
            pod_disruption_budgets: vec![serde_json::from_value(self.budget).unwrap()],
            node_pools: vec![serde_json::from_value(self.pool).unwrap()],
            ..Objects::default()
        };
        verdicts(&objects, extra).remove(&"a".into())
    }
}

/// The reason and the message of the verdict after a change.
fn after(change: impl FnOnce(&mut Cluster)) -> Option<(&'static str, String)> {
    let mut cluster = Cluster::new();
    change(&mut cluster);
    cluster.verdict().map(|verdict| (verdict.reason, verdict.message))
}

fn blocked(text: &str) -> Option<(&'static str, String)> {
    Some((DISRUPTION_BLOCKED, format!("The node cannot be disrupted: {text}")))
}

fn unconsolidatable(text: &str) -> Option<(&'static str, String)> {
    Some((UNCONSOLIDATABLE, format!("The node is not consolidated: {text}")))
}

#[test]
fn a_node_that_may_be_disrupted_has_no_verdict() {
    assert_eq!(after(|_| {}), None);
    let recently = |c: &mut Cluster| c.pool["spec"]["disruption"]["consolidateAfter"] = json!("876000h");
    assert_eq!(after(recently), None, "the node only has to wait");
}

#[test]
fn pods_budgets_and_annotations_block_a_disruption() {
    let annotation = json!({"karpenter.sh/do-not-disrupt": "true"});
    let pod = after(|c| c.pod["metadata"]["annotations"] = annotation.clone());
    assert_eq!(pod, blocked("pod shop/web has the annotation karpenter.sh/do-not-disrupt"));
    let node = after(|c| c.node["metadata"]["annotations"] = annotation.clone());
    assert_eq!(node, blocked("it has the annotation karpenter.sh/do-not-disrupt"));
    let budget = after(|c| c.budget["status"]["disruptionsAllowed"] = json!(0));
    assert_eq!(budget, blocked("PodDisruptionBudget shop/web allows no eviction of pod shop/web now"));
    let unreadable = after(|c| c.pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "-1"}}));
    assert_eq!(unreadable, blocked("a pod on it cannot be read"));
}

/// Users of Cluster Autoscaler look for the annotation that they have set.
#[test]
fn the_annotation_that_protects_is_named() {
    let (safe, scale) =
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "cluster-autoscaler.kubernetes.io/scale-down-disabled");
    let pod = |annotations: Value| after(|c| c.pod["metadata"]["annotations"] = annotations);
    assert_eq!(pod(json!({safe: "false"})), blocked(&format!("pod shop/web has the annotation {safe}")));
    assert_eq!(pod(json!({safe: "true"})), None);
    let both = pod(json!({safe: "false", "karpenter.sh/do-not-disrupt": "true"}));
    assert_eq!(both, blocked("pod shop/web has the annotation karpenter.sh/do-not-disrupt"));
    let node = |annotations: Value| after(|c| c.node["metadata"]["annotations"] = annotations);
    assert_eq!(node(json!({scale: "true"})), blocked(&format!("it has the annotation {scale}")));
    assert_eq!(node(json!({scale: "false"})), None);
}

#[test]
fn a_shift_away_from_the_zone_is_named() {
    let extra = Extra { now: NOW, shifted_zones: ["us-east-1a".to_owned()].into(), ..Extra::default() };
    let of_zone = |zone: &str, annotations: Value| {
        let mut cluster = Cluster::new();
        cluster.node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone);
        cluster.node["metadata"]["annotations"] = annotations;
        cluster.verdict_with(&extra).map(|verdict| (verdict.reason, verdict.message))
    };
    let shifted = blocked("the cluster is shifted away from its zone us-east-1a");
    assert_eq!(of_zone("us-east-1a", json!({})), shifted);
    assert_eq!(of_zone("us-east-1b", json!({})), None);
    let annotation = json!({"karpenter.sh/do-not-disrupt": "true"});
    assert_eq!(of_zone("us-east-1a", annotation), blocked("it has the annotation karpenter.sh/do-not-disrupt"));
}

#[test]
fn a_node_pool_that_does_not_consolidate_is_named() {
    let never = after(|c| c.pool["spec"]["disruption"]["consolidateAfter"] = json!("Never"));
    assert_eq!(never, unconsolidatable("NodePool p never consolidates (consolidateAfter: Never)"));
    let empty = after(|c| c.pool["spec"]["disruption"]["consolidationPolicy"] = json!("WhenEmpty"));
    assert_eq!(empty, unconsolidatable("NodePool p consolidates only empty nodes"));
    let fixed = after(|c| c.pool["spec"]["replicas"] = json!(1));
    assert_eq!(fixed, unconsolidatable("NodePool p is static"));
}

#[test]
fn a_drifted_node_with_a_grace_period_does_not_wait_for_pods() {
    let change = |c: &mut Cluster| {
        c.claim["status"]["conditions"].as_array_mut().unwrap().push(condition("Drifted"));
        c.budget["status"]["disruptionsAllowed"] = json!(0);
    };
    assert!(after(change).is_some(), "without a grace period");
    let bounded = after(|c| {
        change(c);
        c.claim["spec"]["terminationGracePeriod"] = json!("1h");
    });
    assert_eq!(bounded, None);
}

#[test]
fn a_drifted_node_is_replaced_although_its_pool_does_not_consolidate() {
    let drifted = after(|c| {
        c.claim["status"]["conditions"].as_array_mut().unwrap().push(condition("Drifted"));
        c.pool["spec"]["disruption"]["consolidateAfter"] = json!("Never");
    });
    assert_eq!(drifted, None);
}

#[test]
fn a_node_that_is_not_in_service_or_is_being_removed_has_no_verdict() {
    let starting = |c: &mut Cluster| {
        c.node["metadata"]["labels"].as_object_mut().unwrap().remove("karpenter.sh/initialized");
        c.pod["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
    };
    assert_eq!(after(starting), None);
    let leaving = |c: &mut Cluster| {
        c.claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        c.pod["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
    };
    assert_eq!(after(leaving), None);
}

#[test]
fn each_pass_takes_the_next_nodes_and_the_first_ones_follow_the_last() {
    let pass = |nodes: usize, last: &str| {
        let names = (0..nodes).rev().map(|number| (format!("n-{number:03}"), ()));
        let (chosen, end) = next_ones(names, last);
        (chosen.into_keys().next().unwrap_or_default(), end)
    };
    let (first, last) = ("n-000".to_owned(), format!("n-{:03}", MAX_NODES - 1));
    for fewer in [1, MAX_NODES] {
        assert_eq!(pass(fewer, ""), (first.clone(), String::new()), "{fewer} nodes are all judged at each pass");
    }
    assert_eq!(pass(MAX_NODES + 1, ""), (first, last.clone()));
    assert_eq!(pass(MAX_NODES + 1, &last), (format!("n-{MAX_NODES:03}"), String::new()));
}
