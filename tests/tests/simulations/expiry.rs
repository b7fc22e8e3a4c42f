//! Expiry is forceful: neither budgets nor pods block the deletion of the node's claim, but the drain respects them.

use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};
use std::cell::Cell;

/// A pool whose first node has a pod that may move and a pod that must not be disrupted. Returns the node's claim.
async fn aged(template: &Value) -> (TestCluster, String) {
    let cluster = TestCluster::begin(Setup::with_pool(json!({
        "template": {"spec": template}, "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]},
    })))
    .await;
    cluster.deploy("free", 1, 1000);
    cluster.deploy("held", 1, 1000);
    cluster.until_running(2, 3 * MINUTE).await;
    let pods = cluster.world.all(ResourceId::PODS);
    let held = pods.iter().find(|pod| object::name(pod).starts_with("held")).unwrap();
    let mark = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: "true"}}});
    cluster.world.patch(ResourceId::PODS, object::name(held), mark).unwrap();
    let node = object::text(held, &["spec", "nodeName"]).to_owned();
    let claims = cluster.claims();
    let claim = claims.iter().find(|it| object::text(it, &["status", "nodeName"]) == node).unwrap();
    let name = object::name(claim).to_owned();
    (cluster, name)
}

fn is_leaving(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_none_or(|it| object::is_deleting(&it))
}

#[tokio::test(start_paused = true)]
async fn an_expired_node_goes_although_a_pod_must_not_be_disrupted_and_is_replaced_once() {
    let (cluster, claim) = aged(&json!({"expireAfter": "30m"})).await;
    let name = claim.clone();
    cluster.until("the expired claim is deleted", 35 * MINUTE, move |world| is_leaving(world, &name)).await;
    // Shorter than the lifetime of the replacement.
    cluster.pass(20 * MINUTE).await;
    let bought = instances_ever_launched(&cluster.world).len();
    assert!(bought <= 2, "{bought} instances were launched\n{}", cluster.summary());
    assert_eq!(cluster.world.running_pods(), 2, "{}", cluster.summary());
    let waits = cluster.world.get(ResourceId::NODE_CLAIMS, &claim);
    assert!(waits.is_some(), "without a terminationGracePeriod the drain waits for the pod");
}

#[tokio::test(start_paused = true)]
async fn the_drain_of_an_expired_node_ends_with_its_termination_grace_period() {
    let (cluster, claim) = aged(&json!({"expireAfter": "30m", "terminationGracePeriod": "5m"})).await;
    let gone = move |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    cluster.until("the expired node is deleted", 45 * MINUTE, gone).await;
    cluster.until("both pods run again", 5 * MINUTE, |world| world.running_pods() == 2).await;
    let bought = instances_ever_launched(&cluster.world).len();
    assert!(bought <= 3, "{bought} instances were launched\n{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_a_static_pool_expire_and_their_successors_are_there_first() {
    let cluster = TestCluster::begin(Setup::with_pool(json!({
        "replicas": 2, "template": {"spec": {"expireAfter": "30m"}},
    })))
    .await;
    let in_service = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| {
            object::condition_is_true(claim, "Initialized") && !object::is_deleting(claim)
        })
    };
    cluster.until("both nodes are in service", 5 * MINUTE, |world| in_service(world) == 2).await;
    let first: Vec<String> = cluster.claims().iter().map(|claim| object::name(claim).to_owned()).collect();
    let fewest = Cell::new(2);
    let gone = |world: &World| first.iter().all(|claim| world.get(ResourceId::NODE_CLAIMS, claim).is_none());
    cluster
        .until("both nodes have expired", 45 * MINUTE, |world| {
            fewest.set(fewest.get().min(in_service(world)));
            gone(world)
        })
        .await;
    assert_eq!((fewest.get(), in_service(&cluster.world)), (2, 2), "{}", cluster.summary());
    assert_eq!(instances_ever_launched(&cluster.world).len(), 4, "{}", cluster.summary());
}
