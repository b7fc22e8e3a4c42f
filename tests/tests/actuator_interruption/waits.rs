//! What pods of an interrupted node wait for, and what the ledger knows meanwhile.

use super::{NOTICE, begin, begin_with, interrupt, is_deleting, recommend_rebalance, spot, with_pods};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::ClaimState;
use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::Options;
use plimsoll_tests::fake_watcher::Wanted;
use plimsoll_tests::{MINUTE, instance_of, instances_ever_launched, running_on};
use serde_json::json;
use std::time::Duration;

/// Its end is later than that of the instance.
#[tokio::test(start_paused = true)]
async fn pods_run_until_their_new_node_is_in_service_although_their_node_has_a_grace_period() {
    let watcher = begin().await;
    let grace = json!({"spec": {"template": {"spec": {"terminationGracePeriod": "1h"}}}});
    watcher.world.patch(ResourceId::NODE_POOLS, "default", grace).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (_, node, instance) = with_pods(&watcher).await;
    interrupt(&watcher, &instance);
    // Nodes boot in 20 s.
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "no other node is in service");
    watcher
        .until("the pods run elsewhere", NOTICE, |world| world.running_pods() == 2 && running_on(world, &node) == 0)
        .await;
}

/// A plan that counts on the node would be executed meanwhile.
#[tokio::test(start_paused = true)]
async fn the_ledger_knows_that_an_interrupted_node_goes_before_the_watch_shows_it() {
    let watcher = begin().await;
    let (claim, node) = watcher.node(&spot("a-1")).await;
    watcher.world.server().faults().lag_watches(watcher.actuator(), MINUTE);
    interrupt(&watcher, &instance_of(&watcher.world, &node));
    let limit = Duration::from_secs(2);
    watcher.until("the claim is on its way out", limit, |world| is_deleting(world, &claim)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let in_flight = watcher.ledger().await.unwrap().upserted;
    let states: Vec<(&str, ClaimState)> = in_flight.iter().map(|claim| (claim.name.as_str(), claim.state)).collect();
    assert_eq!(states, [(claim.as_str(), ClaimState::Terminating)]);
}

/// kube-scheduler binds it soon.
#[tokio::test(start_paused = true)]
async fn room_that_a_waiting_pod_was_launched_for_is_not_free() {
    let watcher = begin_with(Options { nominate_nodes: false, ..Options::default() }).await;
    let (_, node) = watcher.node(&spot("a-1")).await;
    watcher.deploy("web", "1500m").await;
    // Nobody binds it.
    let waiting = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waiting"},
        "spec": {"schedulerName": "another-scheduler", "containers": [
            {"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "1"}}}]}});
    watcher.world.apply_object(&waiting).unwrap();
    let pods = watcher.pods_on("");
    watcher.node(&Wanted { capacity_type: CapacityType::OnDemand, pods, ..spot("a-2") }).await;
    interrupt(&watcher, &instance_of(&watcher.world, &node));
    // Plans are waited for during the first five seconds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(running_on(&watcher.world, &node), 1, "it has no room on the other node");
    assert_eq!(instances_ever_launched(&watcher.world).len(), 3, "one replacement");
}

/// The drain waits for pods that would end with the instance.
#[tokio::test(start_paused = true)]
async fn a_notice_counts_although_somebody_has_deleted_the_claim() {
    let watcher = begin().await;
    let (claim, node, instance) = with_pods(&watcher).await;
    for pod in watcher.world.all(ResourceId::PODS) {
        let mark = json!({"metadata": {"annotations": {annotation::SAFE_TO_EVICT: "false"}}});
        watcher.world.patch(ResourceId::PODS, object::name(&pod), mark).unwrap();
    }
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "they are not safe to evict");
    interrupt(&watcher, &instance);
    watcher.until("the pods have left", NOTICE - Duration::from_secs(10), |world| running_on(world, &node) == 0).await;
}

/// Such an instance may run on for days. A Spot notice would come before its end.
#[tokio::test(start_paused = true)]
async fn pods_without_another_place_stay_after_a_recommendation_to_rebalance() {
    let watcher = begin_with(Options { act_on_rebalance: true, ..Options::default() }).await;
    let (claim, node, instance) = with_pods(&watcher).await;
    // The limit allows no new node.
    watcher.world.patch(ResourceId::NODE_POOLS, "default", json!({"spec": {"limits": {"cpu": "2"}}})).unwrap();
    recommend_rebalance(&watcher, &instance);
    let limit = Duration::from_secs(2);
    watcher.until("the claim is on its way out", limit, |world| is_deleting(world, &claim)).await;
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "they have no other place");
    interrupt(&watcher, &instance);
    watcher
        .until("the pods stop in time", NOTICE - Duration::from_secs(1), |world| running_on(world, &node) == 0)
        .await;
}
