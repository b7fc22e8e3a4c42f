//! The main path: from a pending pod to a running node, and back.

use plimsoll_model::names::{TERMINATION_FINALIZER, annotation, label, taint};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, TestCluster, claims_ever_launched, instances_ever_launched, node_pool};
use serde_json::json;
use std::collections::BTreeSet;

#[tokio::test(start_paused = true)]
async fn a_pending_pod_gets_a_node_which_goes_when_it_is_not_needed() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let nodes = cluster.world.all(ResourceId::NODES);
    assert_eq!(nodes.len(), 1);
    for (key, value) in [
        (label::NODE_POOL, "default"),
        (label::REGISTERED, "true"),
        (label::INITIALIZED, "true"),
        (label::CAPACITY_TYPE, "on-demand"),
        (label::ARCH, "amd64"),
    ] {
        assert_eq!(object::label(&nodes[0], key), Some(value), "{key}");
    }
    assert!(!object::items(&nodes[0], &["spec", "taints"]).iter().any(|it| it["key"] == taint::UNREGISTERED));
    assert!(object::items(&nodes[0], &["metadata", "finalizers"]).iter().any(|it| it == TERMINATION_FINALIZER));
    let pool = cluster.world.get(ResourceId::NODE_POOLS, "default").unwrap();
    assert!(object::condition_is_true(&pool, "NodeRegistrationHealthy"), "{}", cluster.summary());
    let claims = cluster.claims();
    assert_eq!(claims.len(), 1);
    assert_eq!(object::annotation(&claims[0], annotation::OWNER), Some(annotation::OWNER_VALUE));
    assert_eq!(object::text(&claims[0], &["status", "nodeName"]), object::name(&nodes[0]));

    cluster.scale("web", 0);
    cluster.until_empty(10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1);
    assert_eq!(claims_ever_launched(&cluster.world).len(), 1);
    assert!(cluster.world.problems.all().is_empty(), "{:?}", cluster.world.problems.all());
}

#[tokio::test(start_paused = true)]
async fn pods_that_fit_on_one_node_get_one() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 6, 500);
    cluster.until_running(6, 3 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn pods_that_came_with_room_there_buy_nothing() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.deploy("small", 1, 100);
    cluster.until_running(2, MINUTE).await;
    cluster.pass(MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
}

/// `kubectl describe` looks for Events by the UID of their object.
#[tokio::test(start_paused = true)]
async fn events_have_the_uid_of_their_object() {
    let cluster = TestCluster::usual().await;
    let nowhere = json!([{"key": label::ZONE, "operator": "In", "values": ["us-west-2x"]}]);
    let nowhere = node_pool("nowhere", &json!({"template": {"spec": {"requirements": nowhere}}}));
    cluster.world.apply_object(&nowhere).unwrap();
    cluster
        .until("the NodePool without offerings is ready", MINUTE, |world| {
            let pool = world.get(ResourceId::NODE_POOLS, "nowhere").unwrap();
            object::condition_is_true(&pool, "Ready")
        })
        .await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let is_named = |world: &World| {
        let events = world.events_of("NodePool", "nowhere");
        events.iter().any(|event| event.starts_with("NoCompatibleInstanceTypes"))
    };
    cluster.until("an Event names the NodePool without offerings", MINUTE, is_named).await;
    let mut kinds = BTreeSet::new();
    for event in cluster.world.all(ResourceId::EVENTS) {
        let text = |field: &str| object::text(&event, &["involvedObject", field]);
        if object::text(&event, &["source", "component"]) != "plimsoll-actuator" {
            continue;
        }
        let resource = ResourceId::of_kind(text("apiVersion"), text("kind")).unwrap();
        if let Some(about) = cluster.world.get(resource, text("name")) {
            assert_eq!(text("uid"), object::uid(&about), "{event}");
            kinds.insert(text("kind").to_owned());
        }
    }
    assert!(kinds.contains("NodePool") && kinds.len() > 1, "{kinds:?}");
}
