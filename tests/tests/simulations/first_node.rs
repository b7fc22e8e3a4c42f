//! The main path: from a pending pod to a running node, and back.

use plimsoll_model::names::{TERMINATION_FINALIZER, annotation, label, taint};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_tests::{MINUTE, Scene, claims_ever_launched, instances_ever_launched};

#[tokio::test(start_paused = true)]
async fn a_pending_pod_gets_a_node_which_goes_when_it_is_not_needed() {
    let scene = Scene::usual().await;
    scene.deploy("web", 1, 500);
    scene.until_running(1, 3 * MINUTE).await;
    let nodes = scene.world.all(ResourceId::NODES);
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
    let pool = scene.world.get(ResourceId::NODE_POOLS, "default").unwrap();
    assert!(object::condition_is_true(&pool, "NodeRegistrationHealthy"), "{}", scene.summary());
    let claims = scene.claims();
    assert_eq!(claims.len(), 1);
    assert_eq!(object::annotation(&claims[0], annotation::OWNER), Some(annotation::OWNER_VALUE));
    assert_eq!(object::text(&claims[0], &["status", "nodeName"]), object::name(&nodes[0]));

    scene.scale("web", 0);
    scene.until_empty(10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&scene.world).len(), 1);
    assert_eq!(claims_ever_launched(&scene.world).len(), 1);
    assert!(scene.world.problems.all().is_empty(), "{:?}", scene.world.problems.all());
}

#[tokio::test(start_paused = true)]
async fn pods_that_fit_on_one_node_get_one() {
    let scene = Scene::usual().await;
    scene.deploy("web", 6, 500);
    scene.until_running(6, 3 * MINUTE).await;
    assert_eq!(instances_ever_launched(&scene.world).len(), 1, "{}", scene.summary());
}

#[tokio::test(start_paused = true)]
async fn pods_that_came_with_room_there_buy_nothing() {
    let scene = Scene::usual().await;
    scene.deploy("web", 1, 500);
    scene.until_running(1, 3 * MINUTE).await;
    scene.deploy("small", 1, 100);
    scene.until_running(2, MINUTE).await;
    scene.pass(MINUTE).await;
    assert_eq!(instances_ever_launched(&scene.world).len(), 1, "{}", scene.summary());
}
