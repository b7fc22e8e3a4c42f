use crate::{Extra, Objects, Source};
use plimsoll_api::NodeOverlay;
use plimsoll_model::snapshot::{ConsolidationPolicy, DisruptionReason, NodePool, NodeState};
use plimsoll_model::time::{Millis, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn pool(spec: &Value) -> Value {
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let mut pool = json!({"metadata": {"name": "default"},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}}});
    pool["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pool
}

fn class(ready: &str) -> Value {
    let condition = json!({"type": "Ready", "status": ready, "reason": "R", "message": "no subnets found",
        "lastTransitionTime": "2026-01-05T00:00:00Z"});
    json!({"metadata": {"name": "default"}, "spec": {"subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
        "status": {"conditions": [condition]}})
}

fn node(name: &str, ready: bool) -> Value {
    let labels = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
    json!({"metadata": {"name": name, "labels": labels}, "status": {"capacity": {"cpu": "1"},
        "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}})
}

fn read(pool: &Value, classes: &[Value], nodes: &[Value], extra: &Extra) -> NodePool {
    let objects = Objects {
        node_pools: vec![serde_json::from_value(pool.clone()).unwrap()],
        node_classes: classes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        nodes: nodes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        ..Objects::default()
    };
    let (snapshot, problems) = crate::build(&objects, extra);
    assert_eq!(problems, []);
    snapshot.node_pools[0].clone()
}

fn with_catalog() -> Extra {
    Extra { catalogs: BTreeMap::from([("default".to_owned(), "c1".into())]), ..Extra::default() }
}

#[test]
fn a_pool_uses_the_catalog_of_its_ready_class() {
    let result = read(&pool(&json!({"weight": 7, "limits": {"cpu": "10"}})), &[class("True")], &[], &with_catalog());
    assert_eq!((result.catalog.map(|id| id.0), result.not_ready, result.weight), (Some("c1".to_owned()), None, 7));
    assert_eq!(result.limits.get("cpu"), 10_000);
}

#[test]
fn a_limit_that_no_pool_reaches_is_none() {
    let limits = json!({"cpu": "1E", "memory": "1E"});
    let result = read(&pool(&json!({"limits": limits})), &[], &[], &Extra::default());
    assert_eq!(result.limits.iter().collect::<Vec<_>>(), [("memory", 1_000_000_000_000_000_000)]);
}

/// In a cluster, its nodes must still be removed.
#[test]
fn a_pool_with_a_negative_limit_stays_and_launches_nothing() {
    let below_zero = pool(&json!({"limits": {"cpu": "-1", "memory": "1Gi"}}));
    let result = read(&below_zero, &[class("True")], &[], &with_catalog());
    let problem = result.not_ready.unwrap();
    assert_eq!((problem.code.as_str(), result.catalog, result.limits.is_empty()), ("NodePoolInvalid", None, true));
    assert_eq!(problem.message, "spec.limits.cpu: must not be negative");
    let objects = Objects { node_pools: vec![serde_json::from_value(below_zero).unwrap()], ..Objects::default() };
    let from_files = Extra { source: Source::Files, ..with_catalog() };
    let (snapshot, problems) = crate::build(&objects, &from_files);
    assert_eq!((snapshot.node_pools.len(), problems[0].field.as_str()), (0, "spec.limits.cpu"));
}

#[test]
fn an_unusable_pool_has_a_problem() {
    let problem = |pool: &Value, classes: &[Value], extra: &Extra| {
        let result = read(pool, classes, &[], extra);
        assert_eq!(result.catalog, None);
        result.not_ready.map(|it| (it.code, it.message)).unwrap()
    };
    let usual = pool(&json!({}));
    let (code, message) = problem(&usual, &[], &with_catalog());
    assert_eq!((code.as_str(), message.as_str()), ("NodeClassNotFound", "EC2NodeClass \"default\" not found"));
    let (code, message) = problem(&usual, &[class("False")], &with_catalog());
    assert_eq!(code, "NodeClassNotReady");
    assert!(message.contains("no subnets found"), "{message}");
    let mut unseen = class("True");
    unseen["status"] = Value::Null;
    assert_eq!(problem(&usual, std::slice::from_ref(&unseen), &with_catalog()).0, "NodeClassNotReady");
    let from_files = Extra { source: Source::Files, ..with_catalog() };
    assert_eq!(read(&usual, &[unseen], &[], &from_files).not_ready, None, "nobody looks at classes in files");
    let why = Extra {
        catalog_problems: BTreeMap::from([("default".to_owned(), "no offering".to_owned())]),
        ..Extra::default()
    };
    let (code, message) = problem(&usual, &[class("True")], &why);
    assert_eq!(code, "CatalogMissing");
    assert!(message.ends_with("\"default\": no offering"), "{message}");
    let requirement = json!({"key": "karpenter.sh/nodepool", "operator": "In", "values": ["x"]});
    let mut invalid = usual;
    invalid["spec"]["template"]["spec"]["requirements"] = json!([requirement]);
    assert_eq!(problem(&invalid, &[class("True")], &with_catalog()).0, "NodePoolInvalid");
}

/// The actuator would refuse each launch, while another pool might take the pods.
#[test]
fn a_pool_whose_partition_its_class_does_not_have_launches_nothing() {
    let key = "karpenter.k8s.aws/placement-group-partition";
    let requires = |operator: &str, values: &[&str]| {
        let mut pool = pool(&json!({}));
        let requirement = json!({"key": key, "operator": operator, "values": values});
        pool["spec"]["template"]["spec"]["requirements"] = json!([requirement]);
        pool
    };
    let selecting = |group: &Value| {
        let mut class = class("True");
        class["spec"]["placementGroupSelector"] = json!({"name": "own"});
        class["status"]["placementGroup"] = group.clone();
        class
    };
    let group = |strategy: &str, count: Option<i32>| {
        selecting(&json!({"id": "pg-1", "name": "own", "strategy": strategy, "partitionCount": count}))
    };
    let message = |pool: &Value, class: Value| {
        let problem = read(pool, &[class], &[], &with_catalog()).not_ready;
        problem.map(|problem| {
            assert_eq!(problem.code, "NodePoolInvalid");
            problem.message
        })
    };
    let (first, fourth) = (requires("In", &["1"]), requires("In", &["4"]));
    let none = format!("it requires {key} In [1], but EC2NodeClass \"default\" selects no partition placement group");
    assert_eq!(message(&first, class("True")).as_ref(), Some(&none));
    assert_eq!(message(&first, group("cluster", None)).as_ref(), Some(&none));
    let few =
        format!("it requires {key} In [4], but placement group pg-1 of EC2NodeClass \"default\" has 3 partitions");
    assert_eq!(message(&fourth, group("partition", Some(3))), Some(few));
    assert_eq!(message(&first, group("partition", Some(3))), None);
    assert_eq!(message(&fourth, selecting(&Value::Null)), None, "the group is not known");
    assert_eq!(message(&requires("NotIn", &["1"]), class("True")), None, "no partition is allowed, too");
    let mut labelled = pool(&json!({}));
    labelled["spec"]["template"]["metadata"] = json!({"labels": {key: "1"}});
    assert_eq!(message(&labelled, class("True")), Some(none));
}

#[test]
fn a_pool_of_another_provider_is_left_out_and_its_nodes_belong_to_no_pool() {
    let mut starting = node("a", true);
    starting["metadata"]["labels"].as_object_mut().unwrap().remove("karpenter.sh/initialized");
    let with_class = |group: &str, kind: &str| {
        let mut pool = pool(&json!({}));
        pool["spec"]["template"]["spec"]["nodeClassRef"] = json!({"group": group, "kind": kind, "name": "default"});
        let objects = Objects {
            node_pools: vec![serde_json::from_value(pool).unwrap()],
            nodes: vec![serde_json::from_value(starting.clone()).unwrap()],
            ..Objects::default()
        };
        let (snapshot, problems) = crate::build(&objects, &with_catalog());
        assert_eq!(problems, []);
        (snapshot.node_pools.len(), snapshot.nodes[0].node_pool.is_some(), snapshot.nodes[0].state)
    };
    assert_eq!(with_class("karpenter.azure.com", "AKSNodeClass"), (0, false, NodeState::Initialized));
    let ours = (1, true, NodeState::Registered);
    assert_eq!(with_class("karpenter.k8s.aws", "EC2NodeClass"), ours);
    assert_eq!(with_class("karpenter.k8s.aws", "NodeClass"), ours, "a mistake, which is reported");
}

#[test]
fn budgets_count_initialized_nodes() {
    let disruption = json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m",
        "budgets": [{"nodes": "50%"}, {"nodes": "1", "reasons": ["Drifted"]}]});
    let nodes = [node("a", true), node("b", true), node("c", true), node("d", false)];
    let result =
        read(&pool(&json!({ "disruption": disruption })), &[class("True")], &nodes, &with_catalog()).disruption;
    assert_eq!((result.policy, result.consolidate_after), (ConsolidationPolicy::WhenEmpty, Some(Millis(300_000))));
    // Half of four, minus the node that is not ready.
    assert_eq!(result.allowed.get(&DisruptionReason::Empty), Some(&1));
    assert_eq!(result.allowed.get(&DisruptionReason::Drifted), Some(&0));
    assert_eq!(result.allowed.get(&DisruptionReason::Expired), None, "budgets are not about expiry");
}

#[test]
fn budgets_leave_out_nodes_whose_instance_is_being_terminated() {
    let allowed = |terminating: &str| {
        let disruption = json!({"consolidateAfter": "5m", "budgets": [{"nodes": "50%"}]});
        let condition = json!({"type": "InstanceTerminating", "status": terminating, "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-05T00:00:00Z"});
        let claim = json!({"metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "default"},
                "deletionTimestamp": "2026-01-05T00:00:00Z"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "default"}},
            "status": {"providerID": "p", "conditions": [condition]}});
        let mut leaving = node("d", false);
        leaving["spec"] = json!({"providerID": "p"});
        let nodes = [node("a", true), node("b", true), node("c", true), leaving];
        let objects = Objects {
            node_pools: vec![serde_json::from_value(pool(&json!({ "disruption": disruption }))).unwrap()],
            nodes: nodes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
            node_claims: vec![serde_json::from_value(claim).unwrap()],
            ..Objects::default()
        };
        let (snapshot, _) = crate::build(&objects, &with_catalog());
        snapshot.node_pools[0].disruption.allowed.get(&DisruptionReason::Empty).copied()
    };
    assert_eq!(allowed("False"), Some(1), "half of four, minus the one that is drained");
    assert_eq!(allowed("True"), Some(2), "half of three");
}

#[test]
fn budgets_count_what_is_on_its_way_out_and_not_what_is_not_in_service_yet() {
    let allowed = |change: fn(&mut Value, &mut Value)| {
        let disruption = json!({"consolidateAfter": "5m", "budgets": [{"nodes": "100%"}]});
        let mut claim = json!({"metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass",
                "name": "default"}},
            "status": {"providerID": "p"}});
        let mut leaving = node("b", true);
        leaving["spec"] = json!({"providerID": "p"});
        change(&mut leaving, &mut claim);
        let objects = Objects {
            node_pools: vec![serde_json::from_value(pool(&json!({ "disruption": disruption }))).unwrap()],
            nodes: [node("a", true), leaving].map(|it| serde_json::from_value(it).unwrap()).into(),
            node_claims: vec![serde_json::from_value(claim).unwrap()],
            ..Objects::default()
        };
        let (snapshot, _) = crate::build(&objects, &with_catalog());
        snapshot.node_pools[0].disruption.allowed.get(&DisruptionReason::Empty).copied()
    };
    assert_eq!(allowed(|_, _| {}), Some(2));
    assert_eq!(allowed(|node, _| node["status"]["conditions"][0]["status"] = json!("False")), Some(1));
    let taint = |node: &mut Value, _: &mut Value| {
        node["spec"]["taints"] = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    };
    assert_eq!(allowed(taint), Some(1));
    let command = |_: &mut Value, claim: &mut Value| {
        claim["metadata"]["annotations"] = json!({"plimsoll.dev/removal": "{}"});
    };
    assert_eq!(allowed(command), Some(1));
    let deleted = |_: &mut Value, claim: &mut Value| {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-05T00:00:00Z");
    };
    assert_eq!(allowed(deleted), Some(1));
    let starting = |node: &mut Value, _: &mut Value| {
        node["metadata"]["labels"].as_object_mut().unwrap().remove("karpenter.sh/initialized");
    };
    assert_eq!(allowed(starting), Some(1), "all of one");
}

#[test]
fn a_pool_with_an_unreadable_schedule_launches_nodes_and_disrupts_none() {
    let budgets = json!([{"nodes": "5"}, {"nodes": "5", "schedule": "0 9 * * 7", "duration": "8h"}]);
    let pool = pool(&json!({"disruption": {"consolidateAfter": "0s", "budgets": budgets}}));
    let objects = Objects {
        node_pools: vec![serde_json::from_value(pool).unwrap()],
        node_classes: vec![serde_json::from_value(class("True")).unwrap()],
        nodes: vec![serde_json::from_value(node("a", true)).unwrap()],
        ..Objects::default()
    };
    let (snapshot, problems) = crate::build(&objects, &with_catalog());
    let pool = &snapshot.node_pools[0];
    assert_eq!((&pool.not_ready, pool.catalog.is_some()), (&None, true));
    let allowed: Vec<u32> = pool.disruption.allowed.values().copied().collect();
    assert_eq!(allowed, [0, 0, 0]);
    let field = "spec.disruption.budgets[1].schedule";
    assert_eq!(problems.iter().map(|it| (it.field.as_str(), it.left_out)).collect::<Vec<_>>(), [(field, false)]);
}

#[test]
fn the_next_budget_change_is_reported() {
    let budgets = json!([{"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}]);
    let pool = pool(&json!({"disruption": {"consolidateAfter": "0s", "budgets": budgets}}));
    let hour = 3_600_000;
    let at = |now: i64| {
        let extra = Extra { now: Timestamp(now), ..with_catalog() };
        read(&pool, &[class("True")], &[node("a", true)], &extra).disruption
    };
    let before = at(8 * hour);
    assert_eq!(before.next_budget_change, Some(Timestamp(9 * hour)));
    assert_ne!(before.allowed.get(&DisruptionReason::Empty), Some(&0));
    let within = at(10 * hour);
    assert_eq!(within.allowed.get(&DisruptionReason::Empty), Some(&0));
    assert_eq!(within.next_budget_change, Some(Timestamp(17 * hour)));
}

#[test]
fn an_invalid_on_demand_percentage_makes_the_pool_unusable() {
    let mut annotated = pool(&json!({}));
    annotated["metadata"]["annotations"] =
        json!({"plimsoll.dev/on-demand-percentage": "30", "plimsoll.dev/on-demand-base": "2"});
    let result = read(&annotated, &[class("True")], &[], &with_catalog());
    assert_eq!(result.on_demand.map(|mix| (mix.base, mix.percentage)), Some((2, 30)));
    annotated["metadata"]["annotations"] = json!({"plimsoll.dev/on-demand-percentage": "most"});
    let result = read(&annotated, &[class("True")], &[], &with_catalog());
    let problem = result.not_ready.unwrap();
    assert_eq!((problem.code.as_str(), result.catalog), ("NodePoolInvalid", None));
    assert!(problem.message.contains("plimsoll.dev/on-demand-percentage"), "{}", problem.message);
}

#[test]
fn an_invalid_annotation_about_the_lifetime_of_nodes_makes_the_pool_unusable() {
    let mut annotated = pool(&json!({}));
    let cases = [("plimsoll.dev/termination-delay", "5m", "5"), ("plimsoll.dev/expiry-jitter", "10%", "10")];
    for (key, valid, invalid) in cases {
        annotated["metadata"]["annotations"] = json!({key: valid});
        let result = read(&annotated, &[class("True")], &[], &with_catalog());
        assert_eq!((&result.not_ready, result.catalog.is_some()), (&None, true), "{key}");
        annotated["metadata"]["annotations"] = json!({key: invalid});
        let result = read(&annotated, &[class("True")], &[], &with_catalog());
        let problem = result.not_ready.unwrap();
        assert_eq!((problem.code.as_str(), result.catalog), ("NodePoolInvalid", None));
        assert!(problem.message.contains(key), "{}", problem.message);
        let invalid = crate::invalid_annotations(&serde_json::from_value(annotated.clone()).unwrap());
        let paths: Vec<&str> = invalid.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, [format!("metadata.annotations[{key}]")]);
    }
}

#[test]
fn pools_have_all_valid_overlays() {
    let overlay = |name: &str, price: &str| -> NodeOverlay {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"price": price,
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}}))
        .unwrap()
    };
    let mut leaving = overlay("leaving", "0.5");
    leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-05T00:00:00Z")).unwrap();
    let objects = Objects {
        node_pools: vec![serde_json::from_value(pool(&json!({}))).unwrap()],
        node_overlays: vec![overlay("good", "0.5"), overlay("bad", "cheap"), leaving],
        ..Objects::default()
    };
    let (snapshot, problems) = crate::build(&objects, &with_catalog());
    let names: Vec<_> = snapshot.node_pools[0].overlays.iter().map(|overlay| overlay.name.as_str()).collect();
    let faults: Vec<_> = problems.iter().map(|problem| (problem.name.as_str(), problem.field.as_str())).collect();
    assert_eq!((names, faults), (vec!["good"], vec![("bad", "spec.price")]));
}

/// How many of two drifted nodes the budget and the rollout allow to replace while there is no canary yet. Node a is
/// Ready or not, and its claim has `metadata` as well.
fn canaries(ready: bool, budget: &str, metadata: &Value) -> (Option<u32>, Option<u32>) {
    let condition = |name: &str| {
        json!({"type": name, "status": "True", "reason": name, "message": "",
            "lastTransitionTime": "2026-01-05T00:00:00Z"})
    };
    let claim = |name: &str| {
        json!({"metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "default"}},
            "status": {"nodeName": name, "conditions": [condition("Initialized"), condition("Drifted")]}})
    };
    let mut first = claim("a");
    first["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    let disruption = json!({"consolidateAfter": "5m", "budgets": [{"nodes": budget}]});
    let objects = Objects {
        node_pools: vec![serde_json::from_value(pool(&json!({ "disruption": disruption }))).unwrap()],
        nodes: [node("a", ready), node("b", true)].map(|it| serde_json::from_value(it).unwrap()).into(),
        node_claims: [first, claim("b")].map(|it| serde_json::from_value(it).unwrap()).into(),
        ..Objects::default()
    };
    let (snapshot, problems) = crate::build(&objects, &with_catalog());
    assert_eq!(problems, []);
    let disruption = &snapshot.node_pools[0].disruption;
    (disruption.allowed.get(&DisruptionReason::Drifted).copied(), disruption.rollout_limit)
}

#[test]
fn only_replacements_for_drift_hold_a_canary_back() {
    let limit = |ready: bool, budget: &str, metadata: &Value| canaries(ready, budget, metadata).1;
    assert_eq!(limit(true, "5", &json!({})), Some(1));
    assert_eq!(limit(false, "5", &json!({})), Some(1), "a node that is not Ready");
    assert_eq!(canaries(false, "1", &json!({})), (Some(0), Some(1)), "budgets count it");
    let removal = |reason: &str| json!({"plimsoll.dev/removal": json!({"v": 1, "reason": reason}).to_string()});
    let deleted = "2026-01-05T00:00:00Z";
    let expired = json!({"annotations": removal("Expired"), "deletionTimestamp": deleted});
    assert_eq!(limit(true, "5", &expired), Some(1));
    let interrupted = json!({"annotations": {"plimsoll.dev/interrupted": "{}"}, "deletionTimestamp": deleted});
    assert_eq!(limit(true, "5", &interrupted), Some(1));
    assert_eq!(limit(true, "5", &json!({"annotations": removal("Drifted")})), Some(0));
    assert_eq!(limit(true, "5", &json!({"annotations": removal("Drifted"), "deletionTimestamp": deleted})), Some(0));
    assert_eq!(limit(true, "5", &json!({"deletionTimestamp": deleted})), Some(0), "the reason is unknown");
    let unreadable = json!({"annotations": {"plimsoll.dev/removal": "nonsense"}});
    assert_eq!(limit(true, "5", &unreadable), Some(0));
}
