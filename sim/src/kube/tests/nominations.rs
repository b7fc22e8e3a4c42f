//! Tests of nominations.

use super::{Scene, node_of};
use crate::apiserver::store::Part;
use crate::apiserver::{Patch, ResourceId, object};
use serde_json::{Value, json};

const GATE: &str = "test/gate";

/// Creates gated pods from name, CPUs, priority and nominated node, and releases them together. Node `a` has 4 CPUs,
/// `b` has 2, and both are Ready.
async fn scene(pods: &[(&str, &str, i64, &str)]) -> Scene {
    let scene = Scene::new();
    scene.node("a", "4");
    scene.node("b", "2");
    let ready = |scene: &Scene, name: &str| {
        scene.get(ResourceId::NODES, name).is_some_and(|node| {
            object::condition_is_true(&node, "Ready") && object::items(&node, &["spec", "taints"]).is_empty()
        })
    };
    scene.until("both nodes are up", |scene| ready(scene, "a") && ready(scene, "b")).await;
    for (name, cpu, priority, node) in pods {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let class = format!("priority-{priority}");
        if scene.get(ResourceId::PRIORITY_CLASSES, &class).is_none() {
            scene.create(ResourceId::PRIORITY_CLASSES, json!({"metadata": {"name": class}, "value": priority}));
        }
        let spec = json!({"containers": [container], "priorityClassName": class, "schedulingGates": [{"name": GATE}]});
        scene.create(ResourceId::PODS, json!({"metadata": {"name": name}, "spec": spec}));
        if !node.is_empty() {
            nominate(&scene, name, &json!(node));
        }
    }
    for (name, ..) in pods {
        scene.patch(ResourceId::PODS, name, json!({"spec": {"schedulingGates": []}}));
    }
    scene
}

fn nominate(scene: &Scene, pod: &str, node: &Value) {
    let patch = Patch::Merge(json!({"status": {"nominatedNodeName": node}}));
    scene
        .write(|store, write| store.patch(ResourceId::PODS, "default", pod, Part::Status, &patch, write).map(drop))
        .unwrap();
}

fn place(scene: &Scene, pod: &str) -> String {
    node_of(&scene.get(ResourceId::PODS, pod).unwrap()).to_owned()
}

async fn until_judged(scene: &Scene, pods: usize) {
    let judged = |pod: &Value| {
        object::condition(pod, "PodScheduled").is_some_and(|it| object::text(it, &["reason"]) != "SchedulingGated")
    };
    scene.until("all were tried", |scene| scene.count(judged) == pods).await;
}

#[tokio::test(start_paused = true)]
async fn without_one_the_emptier_node_is_taken_and_the_larger_pod_left_over() {
    let scene = scene(&[("small", "1", 0, ""), ("zlarge", "3500m", 0, "")]).await;
    until_judged(&scene, 2).await;
    assert_eq!((place(&scene, "small"), place(&scene, "zlarge")), ("a".to_owned(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_nominated_node_is_tried_first() {
    let scene = scene(&[("small", "1", 0, "b"), ("zlarge", "3500m", 0, "")]).await;
    until_judged(&scene, 2).await;
    assert_eq!((place(&scene, "small"), place(&scene, "zlarge")), ("b".to_owned(), "a".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_room_of_a_nominated_pod_is_kept_from_all_but_higher_priorities() {
    let equal = scene(&[("small", "1", 5, ""), ("zlarge", "3500m", 5, "a")]).await;
    until_judged(&equal, 2).await;
    assert_eq!((place(&equal, "small"), place(&equal, "zlarge")), ("b".to_owned(), "a".to_owned()));
    let higher = scene(&[("small", "1", 6, ""), ("zlarge", "3500m", 5, "a")]).await;
    until_judged(&higher, 2).await;
    assert_eq!((place(&higher, "small"), place(&higher, "zlarge")), ("a".to_owned(), String::new()));
    let left = higher.get(ResourceId::PODS, "zlarge").unwrap();
    assert_eq!(object::text(&left, &["status", "nominatedNodeName"]), "", "it fits nowhere: the nomination is over");
}
