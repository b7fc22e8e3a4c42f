//! Nodes that the pods of removed nodes move to.

use crate::is_gone;
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, pod_ref, wanted};
use plimsoll_tests::{MINUTE, Setup, instance_of};
use serde_json::json;
use std::time::Duration;

/// Rule 7: the pod that the node was launched for has not been bound yet.
#[tokio::test(start_paused = true)]
async fn pods_do_not_move_to_room_that_is_reserved_for_another_pod() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, first) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "1").await;
    let gates = json!({"schedulingGates": [{"name": "example.com/wait"}]});
    watcher.world.deploy("gated", 1, &json!({"cpu": "1500m"}), &gates).unwrap();
    watcher.until("the other pod exists", MINUTE, |world| world.count(ResourceId::PODS, |_| true) == 2).await;
    let pods = watcher.world.all(ResourceId::PODS);
    let gated = pods.iter().find(|pod| object::label(pod, "app") == Some("gated")).unwrap();
    // 2 vCPU, of which 1500m are reserved.
    let (_, second) = watcher.node(&Wanted { pods: vec![pod_ref(gated)], ..wanted("a-2") }).await;
    let outcome = watcher.remove("r-1", &first, DisruptionReason::Underutilized, Some(&second)).await;
    let expected = (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    assert!(outcome.message.contains("insufficient cpu"), "{outcome:?}");
}

/// The pod of a removed node has moved to the second of three nodes, and EC2 refuses to terminate the instance of the
/// removed one. Returns the claim of the second node, and the names of the second and the third.
async fn with_a_drained_node_that_stays(watcher: &FakeWatcher) -> (String, String, String) {
    let (removed, first) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "1").await;
    let (claim, second) = watcher.node(&wanted("a-2")).await;
    let (_, third) = watcher.node(&wanted("a-3")).await;
    let cordon =
        |on: bool| watcher.world.patch(ResourceId::NODES, &third, json!({"spec": {"unschedulable": on}})).unwrap();
    cordon(true);
    let instance = instance_of(&watcher.world, &first);
    watcher.world.ec2.with(|cloud, _| cloud.protect(&instance, true));
    let outcome = watcher.remove("r-1", &first, DisruptionReason::Underutilized, Some(&second)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    let has_moved = |world: &World| {
        let removed = world.get(ResourceId::NODE_CLAIMS, &removed).unwrap();
        let is_drained = object::condition_is_true(&removed, "Drained");
        is_drained && world.running_pods() == 1 && watcher.pods_on(&second).len() == 1
    };
    watcher.until("the pod runs on the second node", MINUTE, has_moved).await;
    cordon(false);
    // The watches show it by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    (claim, second, third)
}

/// The pod would count twice on the second node, too.
#[tokio::test(start_paused = true)]
async fn a_destination_may_go_two_minutes_after_the_drain_although_the_removed_node_is_still_there() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, second, third) = with_a_drained_node_that_stays(&watcher).await;
    let outcome = watcher.remove("r-2", &second, DisruptionReason::Underutilized, Some(&third)).await;
    let expected = (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged));
    assert_eq!((outcome.status, outcome.reason), expected, "pods may come late: {outcome:?}");
    assert!(outcome.message.contains("pods are planned onto"), "{outcome:?}");
    tokio::time::sleep(2 * MINUTE).await;
    let outcome = watcher.remove("r-3", &second, DisruptionReason::Underutilized, Some(&third)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// Expiry waits neither for the other removal nor for the two minutes after its drain.
#[tokio::test(start_paused = true)]
async fn an_expired_destination_may_go_at_once() {
    let watcher = FakeWatcher::begin(Setup::expired()).await;
    let (claim, second, third) = with_a_drained_node_that_stays(&watcher).await;
    let outcome = watcher.remove("r-2", &second, DisruptionReason::Expired, Some(&third)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// Also when the removal is checked again before the deletion. The second node has 2 vCPU: enough for both pods, and
/// not for the first one twice.
#[tokio::test(start_paused = true)]
async fn pods_may_move_to_such_a_destination() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, second, third) = with_a_drained_node_that_stays(&watcher).await;
    watcher.world.deploy("other", 1, &json!({"cpu": "500m"}), &json!({})).unwrap();
    watcher.until("the other pod is on the third node", MINUTE, |_| watcher.pods_on(&third).len() == 1).await;
    tokio::time::sleep(2 * MINUTE).await;
    let outcome = watcher.remove("r-2", &third, DisruptionReason::Underutilized, Some(&second)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    let is_removed = |world: &World| world.get(ResourceId::NODES, &third).is_none();
    watcher.until("the third node is removed", 3 * MINUTE, is_removed).await;
}
