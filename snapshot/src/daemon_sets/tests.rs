use crate::{Extra, Objects};
use plimsoll_model::snapshot::PodShape;
use serde_json::{Value, json};
use std::sync::Arc;

fn shape(spec: &Value) -> PodShape {
    let set = json!({"metadata": {"namespace": "kube-system", "name": "proxy", "uid": "u"}, "spec": {
        "selector": {}, "template": {"metadata": {"labels": {"app": "proxy"}}, "spec": spec}}});
    let objects = Objects { daemon_sets: vec![serde_json::from_value(set).unwrap()], ..Objects::default() };
    let (snapshot, problems) = crate::build(&objects, &Extra::default());
    assert_eq!(problems, []);
    assert_eq!(snapshot.daemon_sets[0].shape, snapshot.shapes[0].id);
    assert_eq!(snapshot.daemon_sets[0].uid, "u");
    snapshot.shapes[0].clone()
}

#[test]
fn pods_have_the_requests_of_the_template_and_the_tolerations_of_the_controller() {
    let container = json!({"name": "app", "resources": {"requests": {"cpu": "100m"}}});
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "proxy"}}});
    let result = shape(&json!({
        "containers": [container],
        "tolerations": [{"key": "own", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    }));
    assert_eq!((result.requests.get("cpu"), result.requests.get("pods")), (100, 1));
    assert_eq!(result.labels.get("app").map(String::as_str), Some("proxy"));
    let keys: Vec<_> = result.tolerations.iter().map(|it| it.key.as_str()).collect();
    assert!(keys.contains(&"own") && keys.contains(&"node.kubernetes.io/not-ready"), "{keys:?}");
    assert!(!keys.contains(&"node.kubernetes.io/network-unavailable"), "{keys:?}");
}

#[test]
fn host_network_pods_tolerate_an_unavailable_network() {
    let result =
        shape(&json!({"hostNetwork": true, "containers": [{"name": "app", "ports": [{"containerPort": 9100}]}]}));
    assert!(result.tolerations.iter().any(|it| it.key == "node.kubernetes.io/network-unavailable"));
    assert_eq!(result.host_ports.iter().map(|it| it.port).collect::<Vec<_>>(), [9100]);
}

#[test]
fn an_invalid_template_is_reported() {
    let set = json!({"metadata": {"namespace": "n", "name": "bad"}, "spec": {"selector": {}, "template": {"spec": {
        "containers": [{"name": "app", "resources": {"requests": {"cpu": "lots"}}}]}}}});
    let objects = Objects { daemon_sets: vec![serde_json::from_value(set).unwrap()], ..Objects::default() };
    let (snapshot, problems) = crate::build(&objects, &Extra::default());
    assert_eq!(snapshot.daemon_sets, []);
    assert_eq!(problems[0].kind, "DaemonSet");
    assert_eq!(problems[0].field, "spec.template.spec.containers[0].resources.requests.cpu");
}

/// The CPU, in millicores, that a DaemonSet with 100 millicores in its template uses on a new node. Each pod has a
/// number of its template, the second in which it was created, and its request.
fn cpu_beside(pods: &[(&str, u8, &str)]) -> i64 {
    let set = json!({"metadata": {"namespace": "kube-system", "name": "proxy", "uid": "u",
        "annotations": {"deprecated.daemonset.template.generation": "2"}}, "spec": {
        "selector": {}, "template": {"spec": {
            "containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]}}}});
    let pod = |(index, (generation, second, cpu)): (usize, &(&str, u8, &str))| {
        let pod = json!({
            "metadata": {"namespace": "kube-system", "name": format!("proxy-{index}"), "uid": format!("p{index}"),
                "labels": {"pod-template-generation": generation},
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "proxy", "uid": "u"}]},
            "spec": {"nodeName": "n", "containers": [
                {"name": "app", "resources": {"requests": {"cpu": cpu}}},
                {"name": "injected", "resources": {"requests": {"cpu": "50m"}}}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    let pods = pods.iter().enumerate().map(pod).collect();
    let objects = Objects { daemon_sets: vec![serde_json::from_value(set).unwrap()], pods, ..Objects::default() };
    let (snapshot, _) = crate::build(&objects, &Extra::default());
    let shape = snapshot.shapes.iter().find(|shape| shape.id == snapshot.daemon_sets[0].shape).unwrap();
    shape.requests.get("cpu")
}

#[test]
fn a_pod_is_expected_to_request_what_the_newest_one_does() {
    assert_eq!(cpu_beside(&[]), 100);
    assert_eq!(cpu_beside(&[("2", 1, "200m"), ("2", 3, "400m"), ("2", 2, "800m")]), 450);
}

#[test]
fn a_pod_of_an_earlier_template_or_without_readable_requests_does_not_count() {
    assert_eq!(cpu_beside(&[("1", 1, "400m")]), 100);
    assert_eq!(cpu_beside(&[("2", 1, "many")]), 100);
}
