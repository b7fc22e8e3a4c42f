//! Tests of nominations.

use super::{Fixture, node_of};
use crate::apiserver::store::Part;
use crate::apiserver::{Patch, ResourceId, object};
use serde_json::{Value, json};

const GATE: &str = "test/gate";

/// Creates gated pods from name, CPUs, priority and nominated node, and releases them together. Node `a` has 4 CPUs,
/// `b` has 2, and both are Ready.
async fn fixture(pods: &[(&str, &str, i64, &str)]) -> Fixture {
    let fixture = Fixture::new();
    fixture.node("a", "4");
    fixture.node("b", "2");
    let ready = |fixture: &Fixture, name: &str| {
        fixture.get(ResourceId::NODES, name).is_some_and(|node| {
            object::condition_is_true(&node, "Ready") && object::items(&node, &["spec", "taints"]).is_empty()
        })
    };
    fixture.until("both nodes are up", |fixture| ready(fixture, "a") && ready(fixture, "b")).await;
    for (name, cpu, priority, node) in pods {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let class = format!("priority-{priority}");
        if fixture.get(ResourceId::PRIORITY_CLASSES, &class).is_none() {
            fixture.create(ResourceId::PRIORITY_CLASSES, json!({"metadata": {"name": class}, "value": priority}));
        }
        let spec = json!({"containers": [container], "priorityClassName": class, "schedulingGates": [{"name": GATE}]});
        fixture.create(ResourceId::PODS, json!({"metadata": {"name": name}, "spec": spec}));
        if !node.is_empty() {
            nominate(&fixture, name, &json!(node));
        }
    }
    for (name, ..) in pods {
        fixture.patch(ResourceId::PODS, name, json!({"spec": {"schedulingGates": []}}));
    }
    fixture
}

fn nominate(fixture: &Fixture, pod: &str, node: &Value) {
    let patch = Patch::Merge(json!({"status": {"nominatedNodeName": node}}));
    fixture
        .write(|store, write| store.patch(ResourceId::PODS, "default", pod, Part::Status, &patch, write).map(drop))
        .unwrap();
}

fn place(fixture: &Fixture, pod: &str) -> String {
    node_of(&fixture.get(ResourceId::PODS, pod).unwrap()).to_owned()
}

async fn until_judged(fixture: &Fixture, pods: usize) {
    let judged = |pod: &Value| {
        object::condition(pod, "PodScheduled").is_some_and(|it| object::text(it, &["reason"]) != "SchedulingGated")
    };
    fixture.until("all were tried", |fixture| fixture.count(judged) == pods).await;
}

#[tokio::test(start_paused = true)]
async fn without_one_the_emptier_node_is_taken_and_the_larger_pod_left_over() {
    let fixture = fixture(&[("small", "1", 0, ""), ("zlarge", "3500m", 0, "")]).await;
    until_judged(&fixture, 2).await;
    assert_eq!((place(&fixture, "small"), place(&fixture, "zlarge")), ("a".to_owned(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_nominated_node_is_tried_first() {
    let fixture = fixture(&[("small", "1", 0, "b"), ("zlarge", "3500m", 0, "")]).await;
    until_judged(&fixture, 2).await;
    assert_eq!((place(&fixture, "small"), place(&fixture, "zlarge")), ("b".to_owned(), "a".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_room_of_a_nominated_pod_is_kept_from_all_but_higher_priorities() {
    let equal = fixture(&[("small", "1", 5, ""), ("zlarge", "3500m", 5, "a")]).await;
    until_judged(&equal, 2).await;
    assert_eq!((place(&equal, "small"), place(&equal, "zlarge")), ("b".to_owned(), "a".to_owned()));
    let higher = fixture(&[("small", "1", 6, ""), ("zlarge", "3500m", 5, "a")]).await;
    until_judged(&higher, 2).await;
    assert_eq!((place(&higher, "small"), place(&higher, "zlarge")), ("a".to_owned(), String::new()));
    let left = higher.get(ResourceId::PODS, "zlarge").unwrap();
    assert_eq!(object::text(&left, &["status", "nominatedNodeName"]), "", "it fits nowhere: the nomination is over");
}
