//! Nodes that a pod is reserved for (rule 7).

use crate::{has_command, is_gone, is_tainted, of_node};
use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::store::{Part, Store, Write};
use plimsoll_sim::apiserver::{Patch, ResourceId, object};
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, pod_ref, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;
use std::time::Duration;

/// Its scheduler refused the pod before the node was there, and has not looked at it since.
#[tokio::test(start_paused = true)]
async fn a_verdict_from_before_the_node_was_in_service_ends_no_reservation() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let world = &watcher.world;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"schedulerName": "test",
        "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    world.apply_object(&pod).unwrap();
    let refused = json!({"status": {"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    let write = Write::new(world.server().now(), "test");
    let refuse = |store: &mut Store| {
        let patch = Patch::Merge(refused);
        store.patch(ResourceId::PODS, "default", "web", Part::Status, &patch, &write).map(drop)
    };
    world.server().write(refuse).unwrap();
    let pods = vec![pod_ref(&world.all(ResourceId::PODS)[0])];
    let (_, node) = watcher.node(&Wanted { pods, ..wanted("a-1") }).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged)));
    assert!(!is_tainted(&watcher.world, &node));
}

/// The pods of a CapacityBuffer exist only in plans.
#[tokio::test(start_paused = true)]
async fn a_node_stays_while_a_virtual_pod_is_reserved_for_it() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let buffer = wanted("a-1");
    let virtual_pods = buffer.pods.iter().map(|pod| pod.uid.clone()).collect();
    let plan = watcher.plan(&[buffer], Vec::new()).await;
    let mut answers = watcher.stream_with(plan, virtual_pods).await.unwrap();
    let outcome = Outcome::try_from(answers.message().await.unwrap().unwrap()).unwrap();
    let node = watcher.in_service(&outcome.node_claim.unwrap()).await;
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged)));
    assert!(!is_tainted(&watcher.world, &node));
}

/// Claim and node of a pod, and the node that was launched as their replacement before the removal was undone.
async fn undone_removal(watcher: &FakeWatcher) -> [String; 3] {
    let world = &watcher.world;
    let (claim, node) = watcher.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") }).await;
    watcher.deploy("web", "1500m").await;
    // Times of objects are whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pods = watcher.pods_on(&node);
    let removal = Termination { pods: pods.clone(), replaced_by: vec![0], ..of_node("r-1", &node) };
    let plan = watcher.plan(&[Wanted { pods, ..wanted("a-2") }], vec![removal]).await;
    let outcomes = watcher.send(plan).await;
    assert!(outcomes.iter().all(|it| it.status == OutcomeStatus::Accepted), "{outcomes:?}");
    let replacement = outcomes.iter().find(|it| it.action_id.0 == "a-2").unwrap().node_claim.clone().unwrap();
    let pod = world.all(ResourceId::PODS)[0].clone();
    let protect = |value: &str| {
        let patch = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: value}}});
        world.patch(ResourceId::PODS, object::name(&pod), patch).unwrap();
    };
    protect("true");
    watcher.until("the removal is reverted", MINUTE, |world| !has_command(world, &claim)).await;
    protect("false");
    let other = watcher.in_service(&replacement).await;
    [claim, node, other]
}

#[tokio::test(start_paused = true)]
async fn a_replacement_stays_for_two_minutes_after_its_removal_was_undone() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let [_, _, other] = undone_removal(&watcher).await;
    // The ledger reserves it for the pod for 30 s.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let outcome = watcher.remove("r-2", &other, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged)));
    tokio::time::sleep(Duration::from_secs(70)).await;
    let outcome = watcher.remove("r-3", &other, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
}

/// The node has 2 vCPU, of which 1500m are reserved for this pod.
#[tokio::test(start_paused = true)]
async fn a_pod_may_move_to_the_node_that_is_reserved_for_it() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let [claim, node, other] = undone_removal(&watcher).await;
    let outcome = watcher.remove("r-2", &node, DisruptionReason::Underutilized, Some(&other)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
    watcher.until("the pod runs again", MINUTE, |world| world.running_pods() == 1).await;
    assert!(!is_tainted(&watcher.world, &other));
}
