#![expect(clippy::needless_pass_by_value, reason = "json! makes values, and helpers read better with them")]

use super::*;
use plimsoll_model::time::Millis;
use serde_json::{Value, json};

fn nodes(source: Source, nodes: &[Value], claims: &[Value]) -> Vec<Node> {
    let objects = Objects {
        nodes: nodes.iter().map(|node| serde_json::from_value(node.clone()).unwrap()).collect(),
        node_claims: claims.iter().map(|claim| serde_json::from_value(claim.clone()).unwrap()).collect(),
        ..Objects::default()
    };
    let (snapshot, problems) = crate::build(&objects, &Extra { source, ..Extra::default() });
    assert_eq!(problems, []);
    snapshot.nodes
}

fn claim() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "c1", "labels": {"karpenter.sh/nodepool": "default"}, "creationTimestamp": "1970-01-01T00:00:10Z"},
        "spec": {
            "requirements": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["x", "y"]},
            ],
            "taints": [{"key": "team", "value": "blue", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "boot", "effect": "NoSchedule"}],
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "expireAfter": "1h",
        },
    })
}

fn node(labels: Value, taints: Value) -> Value {
    json!({
        "metadata": {"name": "n1", "labels": labels},
        "spec": {"providerID": "aws:///a/i-1", "taints": taints},
        "status": {"allocatable": {"cpu": "4", "memory": "0"}, "capacity": {"cpu": "4"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn launched() -> Value {
    let mut claim = claim();
    claim["status"] = json!({"providerID": "aws:///a/i-1", "capacity": {"cpu": "4", "memory": "8Gi"},
        "allocatable": {"cpu": "3", "memory": "7Gi"}});
    claim
}

#[test]
fn a_claim_without_node_is_in_flight_with_its_requests() {
    let [node] = &nodes(Source::Cluster, &[], &[claim()])[..] else { panic!("one record") };
    assert_eq!((node.state, node.name.as_str()), (NodeState::InFlight, "c1"));
    assert_eq!(node.allocatable, Resources::from([("cpu", 2000), ("memory", 1 << 30)]));
    assert_eq!(node.limit_usage, Resources::from([("cpu", 2000), ("memory", 1 << 30), ("nodes", 1)]));
    assert_eq!(node.labels.get(label::ZONE).map(String::as_str), Some("a"));
    assert_eq!(node.labels.get(label::INSTANCE_TYPE), None);
    assert_eq!(node.taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["team"]);
    assert_eq!(node.expires, Some(Timestamp(10_000).plus(Millis::from_seconds(3600))));
}

#[test]
fn the_reserved_annotation_counts_against_limits_until_launch() {
    let mut claim = claim();
    claim["metadata"]["annotations"] = json!({"plimsoll.dev/reserved": "{\"cpu\":\"16\"}"});
    let nodes = nodes(Source::Cluster, &[], &[claim]);
    assert_eq!(nodes[0].limit_usage, Resources::from([("cpu", 16_000), ("nodes", 1)]));
}

#[test]
fn the_recorded_price_counts_from_the_launch_on() {
    let mut claim = launched();
    claim["metadata"]["annotations"] = json!({
        "plimsoll.dev/reserved": r#"{"cpu":"16","plimsoll.dev/usd-per-hour":"0.8"}"#, "plimsoll.dev/usd-per-hour": "0.192",
    });
    let price = |nodes: &[Node]| nodes[0].limit_usage.get("plimsoll.dev/usd-per-hour");
    assert_eq!(price(&nodes(Source::Cluster, &[], &[claim.clone()])), 192_000);
    let registered = node(json!({"karpenter.sh/nodepool": "default"}), json!([]));
    assert_eq!(price(&nodes(Source::Cluster, &[registered], &[claim.clone()])), 192_000);
    claim["status"] = json!({});
    assert_eq!(price(&nodes(Source::Cluster, &[], &[claim])), 800_000, "not launched yet");
}

#[test]
fn a_node_and_its_claim_are_one_node() {
    let taints = json!([
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "boot", "effect": "NoSchedule"},
        {"key": "other", "effect": "NoSchedule"},
        // The result of an earlier plan, which must not influence the next one.
        {"key": "plimsoll.dev/removal-postponed", "effect": "PreferNoSchedule"},
    ]);
    let [node] = &nodes(Source::Cluster, &[node(json!({}), taints)], &[launched()])[..] else { panic!("one record") };
    assert_eq!((node.state, node.name.as_str(), node.node_claim.as_deref()), (NodeState::Registered, "n1", Some("c1")));
    assert_eq!(node.taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["team"]);
    // The Node's own values, or the claim's values where the Node has none yet.
    assert_eq!(node.allocatable, Resources::from([("cpu", 4000), ("memory", 7 << 30)]));
}

/// Plans remove only nodes of pools.
#[test]
fn a_registered_node_belongs_to_the_pool_of_its_label() {
    let pool = |labels: Value, claims: &[Value]| {
        nodes(Source::Cluster, &[node(labels, json!([]))], claims)[0].node_pool.clone()
    };
    let of = |name: &str| json!({"karpenter.sh/nodepool": name, "karpenter.sh/registered": "true"});
    let removed = json!({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
    for claims in [&[launched()][..], &[]] {
        assert_eq!(pool(removed.clone(), claims), None);
        assert_eq!(pool(of(""), claims), None);
        assert_eq!(pool(of("other"), claims), Some("other".into()));
    }
    assert_eq!(pool(json!({}), &[launched()]), Some("default".into()), "its claim is about to register it");
}

/// Otherwise another node is bought for the pods of a node whose network agent has not started yet.
#[test]
fn undeclared_taints_do_not_count_until_the_node_is_initialized() {
    let kept = |initialized: &str, claims: &[Value]| {
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let taints = json!([
            taint("node.cilium.io/agent-not-ready", "NoExecute"),
            taint("mine", "NoSchedule"),
            taint("rather-not", "PreferNoSchedule"),
            taint("team", "NoSchedule"),
            taint("node.kubernetes.io/unschedulable", "NoSchedule"),
            taint("karpenter.sh/disrupted", "NoSchedule"),
        ]);
        let labels = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": initialized});
        let [node] = &nodes(Source::Cluster, &[node(labels, taints)], claims)[..] else { panic!("one record") };
        node.taints.iter().map(|taint| taint.key.clone()).collect::<Vec<_>>()
    };
    let others = ["karpenter.sh/disrupted", "node.kubernetes.io/unschedulable", "rather-not", "team"];
    assert_eq!(kept("false", &[launched()]), others);
    assert_eq!(kept("true", &[launched()]).len(), 6, "as the Node says");
    assert_eq!(kept("false", &[]).len(), 6, "there is no claim that could declare them");
}

#[test]
fn an_initialized_node_ignores_values_of_its_claim() {
    let labels = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
    let taints = json!([{"key": "boot", "effect": "NoSchedule"}]);
    let [node] = &nodes(Source::Cluster, &[node(labels, taints)], &[launched()])[..] else { panic!("one record") };
    assert_eq!(node.state, NodeState::Initialized);
    assert_eq!(node.taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["boot"]);
    assert_eq!(node.allocatable.get("memory"), 0);
}

/// `kubectl label node n1 karpenter.sh/nodepool=` is legal.
#[test]
fn an_empty_label_names_no_pool() {
    let empty = json!({"karpenter.sh/nodepool": ""});
    let (mut labelled, mut required) = (claim(), claim());
    labelled["metadata"]["labels"] = empty.clone();
    required["metadata"]["labels"] = json!({});
    required["spec"]["requirements"] = json!([{"key": "karpenter.sh/nodepool", "operator": "In", "values": [""]}]);
    for claim in [labelled, required] {
        let nodes = nodes(Source::Cluster, &[], &[claim]);
        assert_eq!((nodes[0].state, &nodes[0].node_pool), (NodeState::InFlight, &None));
    }
    let nodes = nodes(Source::Cluster, &[node(empty, json!([]))], &[]);
    assert_eq!((nodes[0].state, &nodes[0].node_pool), (NodeState::Initialized, &None));
    assert_eq!((nodes[0].cordoned, nodes[0].allocatable.get("cpu")), (false, 4000));
}

#[test]
fn a_node_without_pool_is_initialized() {
    let nodes = nodes(Source::Cluster, &[node(json!({}), json!([]))], &[]);
    assert_eq!((nodes[0].state, &nodes[0].node_pool, nodes[0].cordoned), (NodeState::Initialized, &None, false));
    assert_eq!(nodes[0].allocatable.get("cpu"), 4000);
}

/// Otherwise another node is bought for the pods that fit on it once it has started.
#[test]
fn a_node_of_a_claim_without_pool_starts_like_any_other() {
    let read = |labels: Value, claim: Value| {
        let taints = json!([{"key": "boot", "effect": "NoSchedule"}]);
        let [node] = &nodes(Source::Cluster, &[node(labels, taints)], &[claim])[..] else { panic!("one record") };
        assert_eq!(node.node_pool, None);
        let taints: Vec<String> = node.taints.iter().map(|taint| taint.key.clone()).collect();
        (node.state, taints, node.allocatable.get("memory"), node.cordoned)
    };
    let mut claim = launched();
    claim["metadata"]["labels"] = json!({});
    let registered = json!({"karpenter.sh/registered": "true"});
    let initialized = json!({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
    let team = vec!["team".to_owned()];
    assert_eq!(read(json!({}), claim.clone()), (NodeState::Registered, team, 7 << 30, false));
    assert_eq!(read(registered.clone(), claim.clone()), (NodeState::Registered, vec![], 7 << 30, false));
    let boot = vec!["boot".to_owned()];
    assert_eq!(read(initialized, claim.clone()), (NodeState::Initialized, boot.clone(), 0, false));
    let mut late = claim.clone();
    late["status"]["conditions"] = json!([{"type": "InitializationTimedOut", "status": "True",
        "reason": "StartupTaintsExist", "message": "", "lastTransitionTime": "1970-01-01T00:15:00Z"}]);
    assert_eq!(read(registered.clone(), late), (NodeState::Registered, vec![], 7 << 30, true));
    claim["spec"]["nodeClassRef"]["group"] = json!("example.com");
    assert_eq!(read(registered, claim), (NodeState::Initialized, boot, 0, false), "of another provider");
}

#[test]
fn an_unmatched_node_of_a_pool_offers_no_capacity_in_a_cluster() {
    let unregistered = node(
        json!({"karpenter.sh/nodepool": "default"}),
        json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]),
    );
    let known = nodes(Source::Cluster, std::slice::from_ref(&unregistered), &[]);
    assert_eq!((known[0].cordoned, known[0].allocatable.is_empty()), (true, true));
    let from_files = nodes(Source::Files, &[unregistered], &[]);
    assert_eq!((from_files[0].cordoned, from_files[0].allocatable.get("cpu")), (false, 4000));
}

#[test]
fn a_node_that_was_not_initialized_in_time_takes_no_pods_until_it_is() {
    let cordoned = |timed_out: bool, initialized: &str| {
        let labels = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": initialized});
        let mut claim = launched();
        if timed_out {
            claim["status"]["conditions"] = json!([{"type": "InitializationTimedOut", "status": "True",
                "reason": "StartupTaintsExist", "message": "", "lastTransitionTime": "1970-01-01T00:15:00Z"}]);
        }
        nodes(Source::Cluster, &[node(labels, json!([]))], &[claim])[0].cordoned
    };
    assert_eq!([cordoned(false, "false"), cordoned(true, "false"), cordoned(true, "true")], [false, true, false]);
}

#[test]
fn node_whose_claim_is_not_initialized_yet_is_idle_since_its_creation() {
    let mut claim = launched();
    claim["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:30Z");
    let labels = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
    let result = &nodes(Source::Cluster, &[node(labels, json!([]))], &[claim])[0];
    assert_eq!((result.state, result.idle_since), (NodeState::Initialized, Some(Timestamp(30_000))));
}

#[test]
fn idle_time_drift_and_deletion_are_read_from_the_claim() {
    let mut claim = launched();
    let condition = |name: &str, reason: &str, time: &str| json!({"type": name, "status": "True", "reason": reason, "message": "", "lastTransitionTime": time});
    claim["status"]["conditions"] = json!([
        condition("Initialized", "Initialized", "1970-01-01T00:01:00Z"),
        condition("Drifted", "NodePoolDrifted", "1970-01-01T00:02:00Z"),
        condition("InstanceTerminating", "InstanceTerminating", "1970-01-01T00:02:00Z"),
    ]);
    let result = &nodes(Source::Cluster, &[], &[claim.clone()])[0];
    assert_eq!(
        (result.idle_since, result.drifted.as_deref(), result.deleting),
        (Some(Timestamp(60_000)), Some("NodePoolDrifted"), true)
    );
    claim["status"]["lastPodEventTime"] = json!("1970-01-01T00:05:00Z");
    assert_eq!(nodes(Source::Cluster, &[], &[claim])[0].idle_since, Some(Timestamp(300_000)));
}

#[test]
fn a_node_is_deleting_cordoned_and_ready_as_it_says_itself() {
    let read = |change: fn(&mut Value)| {
        let mut node = node(json!({}), json!([]));
        change(&mut node);
        let node = &nodes(Source::Cluster, &[node], &[])[0];
        (node.deleting, node.cordoned, node.ready)
    };
    assert_eq!(read(|_| {}), (false, false, true));
    let deleted = |node: &mut Value| node["metadata"]["deletionTimestamp"] = json!("2026-01-05T00:00:00Z");
    assert_eq!(read(deleted), (true, false, true));
    assert_eq!(read(|node| node["spec"]["unschedulable"] = json!(true)), (false, true, true));
    assert_eq!(read(|node| node["status"]["conditions"][0]["status"] = json!("Unknown")), (false, false, false));
    assert_eq!(read(|node| node["status"]["conditions"] = json!([])), (false, false, false), "no kubelet has reported");
}

#[test]
fn a_node_in_a_shifted_zone_is_not_disrupted() {
    let protected = |zone: &str| {
        let node = node(json!({"topology.kubernetes.io/zone": zone}), json!([]));
        let objects = Objects { nodes: vec![serde_json::from_value(node).unwrap()], ..Objects::default() };
        let extra = Extra { shifted_zones: ["us-west-2a".to_owned()].into(), ..Extra::default() };
        crate::build(&objects, &extra).0.nodes[0].do_not_disrupt
    };
    assert!(protected("us-west-2a") && !protected("us-west-2b"));
}

#[test]
fn annotations_of_karpenter_and_cluster_autoscaler_protect_a_node() {
    let protected = |key: &str, value: &str| {
        let mut node = node(json!({}), json!([]));
        node["metadata"]["annotations"] = json!({key: value});
        nodes(Source::Cluster, &[node], &[])[0].do_not_disrupt
    };
    for key in ["karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled"] {
        assert_eq!((protected(key, "true"), protected(key, "false")), (true, false), "{key}");
    }
}

#[test]
fn a_node_counts_against_limits_what_its_claim_has_as_in_the_ledger() {
    let labels = |initialized: &str| {
        json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": initialized})
    };
    let usage = |initialized: &str, claims: &[Value]| {
        let mut node = node(labels(initialized), json!([]));
        node["status"]["capacity"] = json!({"cpu": "4", "memory": "7Gi", "example.com/fuse": "20"});
        let [node] = &nodes(Source::Cluster, &[node], claims)[..] else { panic!("one record") };
        assert_eq!(node.allocatable.get("cpu"), 4000, "as the Node reports it");
        node.limit_usage.clone()
    };
    let of_claim = Resources::from([("cpu", 4000), ("memory", 8 << 30), ("nodes", 1)]);
    let of_node = Resources::from([("cpu", 4000), ("memory", 7 << 30), ("example.com/fuse", 20), ("nodes", 1)]);
    for initialized in ["true", "false"] {
        assert_eq!(usage(initialized, &[launched()]), of_claim);
    }
    assert_eq!(usage("true", &[]), of_node);
    for capacity in [json!({}), json!({"cpu": "lots"}), json!({"cpu": "-1"})] {
        let mut unknown = launched();
        unknown["status"]["capacity"] = capacity;
        assert_eq!(usage("true", &[unknown]), of_node, "the claim does not tell");
    }
    let mut unpriced = launched();
    unpriced["metadata"]["annotations"] =
        json!({"plimsoll.dev/reserved": r#"{"cpu":"16","plimsoll.dev/usd-per-hour":"0.8"}"#});
    let price = |usage: &Resources| usage.get("plimsoll.dev/usd-per-hour");
    let until_recorded = "the reserved price, until another is recorded";
    assert_eq!(price(&usage("true", &[unpriced.clone()])), 800_000, "{until_recorded}");
    assert_eq!(price(&nodes(Source::Cluster, &[], &[unpriced.clone()])[0].limit_usage), 800_000, "{until_recorded}");
    unpriced["status"]["capacity"] = json!({});
    assert_eq!(price(&usage("true", &[unpriced])), 800_000, "{until_recorded}");
}

/// The actuator, which has the NodePool from [`node_pool`], would otherwise refuse a removal, plan after plan.
#[test]
fn a_node_expires_with_the_jitter_of_the_pool_that_it_is_in() {
    let pool = |name: &str, jitter: &str| {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": name, "annotations": {annotation::EXPIRY_JITTER: jitter}},
            "spec": {"template": {"spec": {"requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}})
    };
    let pools = [pool("default", "0%"), pool("other", "50%")];
    let pools = pools.map(|pool| serde_json::from_value::<NodePool>(pool).unwrap());
    let mut claim = launched();
    claim["metadata"]["uid"] = json!("uid-3");
    let claim: NodeClaim = serde_json::from_value(claim).unwrap();
    let cases = [
        (json!({label::NODE_POOL: "other", label::REGISTERED: "true"}), Some("other")),
        (json!({label::REGISTERED: "true"}), None),
        (json!({label::NODE_POOL: "other"}), Some("default")),
        (json!({}), Some("default")),
    ];
    for (labels, expected) in cases {
        let node: KubeNode = serde_json::from_value(node(labels.clone(), json!([]))).unwrap();
        assert_eq!(node_pool(&node, &claim).as_deref(), expected, "{labels}");
        let objects = Objects {
            nodes: vec![node],
            node_claims: vec![claim.clone()],
            node_pools: pools.to_vec(),
            ..Objects::default()
        };
        let (snapshot, _) = crate::build(&objects, &Extra { source: Source::Cluster, ..Extra::default() });
        let pool = pools.iter().find(|pool| pool.metadata.name.as_deref() == expected);
        let created = Timestamp(10_000);
        assert_eq!(snapshot.nodes[0].expires, expires(Some(&claim), pool, created), "{labels}");
        let is_early = snapshot.nodes[0].expires < Some(created.plus(Millis::from_seconds(3600)));
        assert_eq!(is_early, expected == Some("other"), "{labels}");
    }
}
