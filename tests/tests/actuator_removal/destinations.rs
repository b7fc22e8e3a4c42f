//! Nodes that the pods of removed nodes move to.

use crate::wanted;
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, pod_ref};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;

/// Rule 7: the pod that the node was launched for has not been bound yet.
#[tokio::test(start_paused = true)]
async fn pods_do_not_move_to_room_that_is_reserved_for_another_pod() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, first) = watcher.node(&wanted("a-1")).await;
    watcher.world.deploy("web", 1, &json!({"cpu": "1"}), &json!({})).unwrap();
    watcher.until("the pod runs", MINUTE, |world| world.running_pods() == 1).await;
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
