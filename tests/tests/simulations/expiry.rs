//! Expiry is forceful: neither budgets nor pods block the deletion of the node's claim, but the drain respects them.

use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Scene, Setup, instances_ever_launched};
use serde_json::{Value, json};
use std::cell::Cell;

/// A pool whose first node has a pod that may move and a pod that must not be disrupted. Returns the node's claim.
async fn aged(template: &Value) -> (Scene, String) {
    let scene = Scene::begin(Setup::with_pool(json!({
        "template": {"spec": template}, "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]},
    })))
    .await;
    scene.deploy("free", 1, 1000);
    scene.deploy("held", 1, 1000);
    scene.until_running(2, 3 * MINUTE).await;
    let pods = scene.world.all(ResourceId::PODS);
    let held = pods.iter().find(|pod| object::name(pod).starts_with("held")).unwrap();
    let mark = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: "true"}}});
    scene.world.patch(ResourceId::PODS, object::name(held), mark).unwrap();
    let node = object::text(held, &["spec", "nodeName"]).to_owned();
    let claims = scene.claims();
    let claim = claims.iter().find(|it| object::text(it, &["status", "nodeName"]) == node).unwrap();
    let name = object::name(claim).to_owned();
    (scene, name)
}

fn is_leaving(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_none_or(|it| object::is_deleting(&it))
}

#[tokio::test(start_paused = true)]
async fn an_expired_node_goes_although_a_pod_must_not_be_disrupted_and_is_replaced_once() {
    let (scene, claim) = aged(&json!({"expireAfter": "30m"})).await;
    let name = claim.clone();
    scene.until("the expired claim is deleted", 35 * MINUTE, move |world| is_leaving(world, &name)).await;
    // Shorter than the lifetime of the replacement.
    scene.pass(20 * MINUTE).await;
    let bought = instances_ever_launched(&scene.world).len();
    assert!(bought <= 2, "{bought} instances were launched\n{}", scene.summary());
    assert_eq!(scene.world.running_pods(), 2, "{}", scene.summary());
    let waits = scene.world.get(ResourceId::NODE_CLAIMS, &claim);
    assert!(waits.is_some(), "without a terminationGracePeriod the drain waits for the pod");
}

#[tokio::test(start_paused = true)]
async fn the_drain_of_an_expired_node_ends_with_its_termination_grace_period() {
    let (scene, claim) = aged(&json!({"expireAfter": "30m", "terminationGracePeriod": "5m"})).await;
    let gone = move |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    scene.until("the expired node is deleted", 45 * MINUTE, gone).await;
    scene.until("both pods run again", 5 * MINUTE, |world| world.running_pods() == 2).await;
    let bought = instances_ever_launched(&scene.world).len();
    assert!(bought <= 3, "{bought} instances were launched\n{}", scene.summary());
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_a_static_pool_expire_and_their_successors_are_there_first() {
    let scene = Scene::begin(Setup::with_pool(json!({
        "replicas": 2, "template": {"spec": {"expireAfter": "30m"}},
    })))
    .await;
    let in_service = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| {
            object::condition_is_true(claim, "Initialized") && !object::is_deleting(claim)
        })
    };
    scene.until("both nodes are in service", 5 * MINUTE, |world| in_service(world) == 2).await;
    let first: Vec<String> = scene.claims().iter().map(|claim| object::name(claim).to_owned()).collect();
    let fewest = Cell::new(2);
    let gone = |world: &World| first.iter().all(|claim| world.get(ResourceId::NODE_CLAIMS, claim).is_none());
    scene
        .until("both nodes have expired", 45 * MINUTE, |world| {
            fewest.set(fewest.get().min(in_service(world)));
            gone(world)
        })
        .await;
    assert_eq!((fewest.get(), in_service(&scene.world)), (2, 2), "{}", scene.summary());
    assert_eq!(instances_ever_launched(&scene.world).len(), 4, "{}", scene.summary());
}
