//! Instances that stay after the drain of their nodes, until load balancers have deregistered these.

use super::drain::is_drained;
use super::{is_gone, with_booting_instance};
use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::{Value, json};
use std::time::Duration;

/// A node of a pool with a delay of three minutes, whose drain has just ended. Returns the name of its claim.
async fn drained(pool: Value) -> (FakeWatcher, String) {
    let watcher = FakeWatcher::begin(Setup::with_pool(pool)).await;
    let delay = json!({"metadata": {"annotations": {annotation::TERMINATION_DELAY: "3m"}}});
    watcher.world.patch(ResourceId::NODE_POOLS, "default", delay).unwrap();
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("the node is drained", MINUTE, |world| is_drained(world, &claim)).await;
    (watcher, claim)
}

fn has_ended(world: &World) -> bool {
    world.living_instances().is_empty()
}

/// Times in Kubernetes have whole seconds, and some calls come before the end. An instance that shuts down has ended.
fn is_about_three_minutes(took: Duration) -> bool {
    (178..=195).contains(&took.as_secs())
}

#[tokio::test(start_paused = true)]
async fn an_instance_outlives_the_drain_by_the_delay_of_its_pool() {
    let (watcher, claim) = drained(json!({})).await;
    tokio::time::sleep(MINUTE).await;
    let waiting = watcher.world.get(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let condition = object::condition(&waiting, "InstanceTerminating").cloned().unwrap_or_default();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("TerminationDelay")));
    let took = MINUTE + watcher.until("the instance ends", 5 * MINUTE, has_ended).await;
    assert!(is_about_three_minutes(took), "{took:?}");
    watcher.until("claim and node are deleted", MINUTE, is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn another_leader_does_not_begin_the_delay_again() {
    let (mut watcher, _) = drained(json!({})).await;
    tokio::time::sleep(MINUTE).await;
    watcher.replace_actuator();
    let took = MINUTE + watcher.until("the instance ends", 5 * MINUTE, has_ended).await;
    assert!(is_about_three_minutes(took), "{took:?}");
}

/// Load balancers know the instance without it.
#[tokio::test(start_paused = true)]
async fn an_instance_whose_node_is_deleted_meanwhile_stays() {
    let (watcher, claim) = drained(json!({})).await;
    let node = object::text(&watcher.claim(&claim).unwrap(), &["status", "nodeName"]).to_owned();
    // The Node is being deleted, so that it is gone without its finalizers.
    watcher.world.patch(ResourceId::NODES, &node, json!({"metadata": {"finalizers": null}})).unwrap();
    assert!(watcher.world.get(ResourceId::NODES, &node).is_none());
    let took = watcher.until("the instance ends", 5 * MINUTE, has_ended).await;
    assert!(is_about_three_minutes(took), "{took:?}");
    watcher.until("the claim is deleted", MINUTE, is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn the_delay_ends_with_the_grace_period_of_the_node() {
    let (watcher, _) = drained(json!({"template": {"spec": {"terminationGracePeriod": "1m"}}})).await;
    let took = watcher.until("the instance ends", 2 * MINUTE, has_ended).await;
    assert!(took.as_secs() >= 45, "{took:?}");
}

/// No load balancer had it.
#[tokio::test(start_paused = true)]
async fn an_instance_that_has_not_become_a_node_ends_without_the_delay() {
    let (watcher, claim) = with_booting_instance().await;
    let delay = json!({"metadata": {"annotations": {annotation::TERMINATION_DELAY: "3m"}}});
    watcher.world.patch(ResourceId::NODE_POOLS, "default", delay).unwrap();
    // The watch shows it by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("the instance ends", MINUTE, has_ended).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_gone_delays_nothing() {
    let (watcher, _) = drained(json!({})).await;
    watcher.world.delete(ResourceId::NODE_POOLS, "default").unwrap();
    watcher.until("the instance ends", MINUTE, has_ended).await;
}
