use super::Replicas;
use crate::{Extra, Objects, Source, build};
use plimsoll_api::Pod;
use serde_json::{Value, json};
use std::sync::Arc;

/// A pod of a Deployment, modified by `change`.
fn template(change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"namespace": "shop", "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": ""}]},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn budget() -> Value {
    json!({"metadata": {"namespace": "shop", "name": "web"},
        "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "web"}}}})
}

/// Objects with the workload, another pod of the namespace, a node and a budget.
fn objects(pod: Pod, numbers: Vec<usize>) -> Objects {
    let other = json!({"metadata": {"namespace": "shop", "name": "web-10", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "app"}]}});
    Objects {
        pods: vec![Arc::new(serde_json::from_value(other).unwrap())],
        replicas: vec![Replicas::new(pod, "web".to_owned(), numbers).unwrap()],
        nodes: vec![serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()],
        pod_disruption_budgets: vec![serde_json::from_value(budget()).unwrap()],
        ..Objects::default()
    }
}

#[test]
fn replicas_give_the_same_snapshot_as_their_pods() {
    type Case = (&'static str, fn(&mut Value));
    let table: [Case; 8] = [
        ("pending", |_| {}),
        ("bound", |pod| pod["spec"]["nodeName"] = json!("n1")),
        ("on a node that is not there", |pod| pod["spec"]["nodeName"] = json!("gone")),
        ("gated", |pod| pod["spec"]["schedulingGates"] = json!([{"name": "later"}])),
        ("unreadable", |pod| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("many")),
        ("unreadable on a node", |pod| {
            pod["spec"]["nodeName"] = json!("n1");
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("many");
        }),
        ("a wish", |pod| pod["metadata"]["annotations"] = json!({"plimsoll.dev/on-demand-percentage": "30"})),
        ("a bad wish", |pod| pod["metadata"]["annotations"] = json!({"plimsoll.dev/on-demand-base": "all"})),
    ];
    for source in [Source::Files, Source::Cluster] {
        let extra = Extra { source, ..Extra::default() };
        for (what, change) in table {
            let objects = objects(template(change), vec![0, 1, 2, 11]);
            let expanded = objects.clone().expanded();
            assert_eq!((expanded.pods.len(), expanded.replicas.len()), (5, 0));
            assert_eq!(build(&objects, &extra), build(&expanded, &extra), "{what}");
        }
    }
}

#[test]
fn an_ignored_workload_has_no_shape() {
    let objects = objects(template(|pod| pod["spec"]["schedulingGates"] = json!([{"name": "later"}])), vec![0, 1]);
    let (snapshot, _) = build(&objects, &Extra { source: Source::Files, ..Extra::default() });
    assert_eq!((snapshot.ignored.len(), snapshot.shapes.len()), (2, 1));
}

#[test]
fn pods_that_differ_in_more_than_their_names_are_not_replicas() {
    type Case = (&'static str, fn(&mut Value));
    let table: [Case; 4] = [
        ("a claim", |pod| {
            pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        }),
        ("an ephemeral claim", |pod| pod["spec"]["volumes"] = json!([{"name": "data", "ephemeral": {}}])),
        ("no owner", |pod| pod["metadata"]["ownerReferences"] = json!([])),
        ("a UID", |pod| pod["metadata"]["uid"] = json!("u1")),
    ];
    for (what, change) in table {
        assert_eq!(Replicas::new(template(change), "web".to_owned(), vec![3, 4]).err(), Some(vec![3, 4]), "{what}");
    }
}
