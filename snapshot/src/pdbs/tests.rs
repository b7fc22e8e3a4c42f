use crate::{Extra, Objects, Source};
use plimsoll_model::snapshot::Snapshot;
use serde_json::{Value, json};
use std::sync::Arc;

fn budget(spec: &Value, status: &Value) -> Value {
    json!({"metadata": {"namespace": "shop", "name": "web", "generation": 2}, "spec": spec, "status": status})
}

fn pod(name: &str, ready: bool) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "app"}]},
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}})
}

fn snapshot(source: Source, budget: &Value, pods: &[Value]) -> Snapshot {
    snapshot_of(source, std::slice::from_ref(budget), pods)
}

fn snapshot_of(source: Source, budgets: &[Value], pods: &[Value]) -> Snapshot {
    let objects = Objects {
        nodes: vec![serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()],
        pods: pods.iter().map(|it| Arc::new(serde_json::from_value(it.clone()).unwrap())).collect(),
        pod_disruption_budgets: budgets.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        ..Objects::default()
    };
    let (snapshot, problems) = crate::build(&objects, &Extra { source, ..Extra::default() });
    assert_eq!(problems, []);
    snapshot
}

fn selecting(rest: &Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    spec
}

#[test]
fn an_outdated_status_allows_no_disruptions() {
    for (observed, allowed) in [(2, 3), (1, 0)] {
        let status = json!({"observedGeneration": observed, "disruptionsAllowed": 3, "currentHealthy": 3,
            "desiredHealthy": 0, "expectedPods": 3});
        let result = snapshot(Source::Cluster, &budget(&selecting(&json!({"minAvailable": 0})), &status), &[]);
        assert_eq!(result.pod_disruption_budgets[0].disruptions_allowed, allowed, "observed {observed}");
    }
}

#[test]
fn without_a_status_files_use_the_spec_and_a_cluster_allows_no_disruptions() {
    let pods = [pod("a", true), pod("b", true), pod("c", true), pod("d", false)];
    let table = [
        (json!({"minAvailable": 2}), 1),
        (json!({"minAvailable": "50%"}), 1),
        (json!({"maxUnavailable": 2}), 1),
        (json!({"maxUnavailable": "25%"}), 0),
        (json!({"minAvailable": 4}), 0),
    ];
    for (rest, allowed) in table {
        let budget = budget(&selecting(&rest), &Value::Null);
        let result = snapshot(Source::Files, &budget, &pods);
        assert_eq!(result.pod_disruption_budgets[0].disruptions_allowed, allowed, "{rest}");
        assert_eq!(snapshot(Source::Cluster, &budget, &pods).pod_disruption_budgets[0].disruptions_allowed, 0);
    }
}

#[test]
fn files_count_only_pods_that_run_as_healthy_and_none_that_have_ended() {
    let with = |name: &str, change: fn(&mut Value)| {
        let mut pod = pod(name, true);
        change(&mut pod);
        pod
    };
    let pods = [
        pod("a", true),
        pod("b", true),
        with("unbound", |pod| pod["spec"]["nodeName"] = Value::Null),
        with("leaving", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-05T00:00:00Z")),
        with("ended", |pod| pod["status"]["phase"] = json!("Succeeded")),
        with("elsewhere", |pod| pod["metadata"]["namespace"] = json!("other")),
        with("other", |pod| pod["metadata"]["labels"]["app"] = json!("other")),
    ];
    // Two of four pods are healthy. A quarter of five would be two.
    let cases = [(json!({}), 2), (json!({"maxUnavailable": "100%"}), 2), (json!({"minAvailable": "25%"}), 1)];
    for (rest, allowed) in cases {
        let result = snapshot(Source::Files, &budget(&selecting(&rest), &Value::Null), &pods);
        assert_eq!(result.pod_disruption_budgets[0].disruptions_allowed, allowed, "{rest}");
    }
}

#[test]
fn pods_list_the_budgets_that_cover_them() {
    let covered = |rest: &Value, ready: bool| {
        let result = snapshot(Source::Files, &budget(&selecting(rest), &Value::Null), &[pod("a", ready)]);
        result.pods[0].pod_disruption_budgets.clone()
    };
    assert_eq!(covered(&json!({}), true), ["shop/web"]);
    assert_eq!(covered(&json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"}), false), [""; 0]);
    assert_eq!(covered(&json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"}), true), ["shop/web"]);
    let other = json!({"selector": {"matchLabels": {"app": "other"}}});
    let result = snapshot(Source::Files, &budget(&other, &Value::Null), &[pod("a", true)]);
    assert_eq!(result.pods[0].pod_disruption_budgets, [""; 0]);
}

/// The Eviction API counts the budgets before it reads their policies.
#[test]
fn an_unready_pod_with_several_budgets_is_covered_by_all_of_them() {
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    for (first, second) in policies.iter().flat_map(|first| policies.iter().map(move |second| (first, second))) {
        let mut budgets = [first, second]
            .map(|policy| budget(&selecting(&json!({ "unhealthyPodEvictionPolicy": policy })), &Value::Null));
        budgets[1]["metadata"]["name"] = json!("all");
        let result = snapshot_of(Source::Files, &budgets, &[pod("a", false)]);
        assert_eq!(result.pods[0].pod_disruption_budgets, ["shop/all", "shop/web"], "{first} {second}");
    }
}

#[test]
fn budgets_that_never_allow_evictions_are_fully_blocking() {
    for (rest, blocking) in [
        (json!({"maxUnavailable": 0}), true),
        (json!({"maxUnavailable": "0%"}), true),
        (json!({"minAvailable": "100%"}), true),
        (json!({"minAvailable": 1}), false),
    ] {
        let result = snapshot(Source::Files, &budget(&selecting(&rest), &Value::Null), &[]);
        assert_eq!(result.pod_disruption_budgets[0].fully_blocking, blocking, "{rest}");
    }
}

#[test]
fn evictions_count_the_pods_of_each_budget() {
    let budget = |rest: &Value| serde_json::from_value(budget(&selecting(rest), &Value::Null)).unwrap();
    let mut other = pod("other", true);
    other["metadata"]["namespace"] = json!("other");
    let pods: [plimsoll_api::Pod; 3] =
        [pod("a", true), pod("b", false), other].map(|it| serde_json::from_value(it).unwrap());
    let count = |rest: &Value| crate::evictions(&pods, vec![budget(rest)]);
    assert_eq!(count(&json!({"maxUnavailable": 1})), [("shop/web".to_owned(), 2)].into());
    let unhealthy = json!({"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"});
    assert_eq!(count(&unhealthy), [("shop/web".to_owned(), 1)].into());
}
