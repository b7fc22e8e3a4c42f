//! Pods that need no node.

use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::plan::PodRef;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, future_pod, pod_ref};
use plimsoll_tests::{MINUTE, Setup, instances_ever_launched};
use serde_json::json;
use std::time::Duration;

fn wanted(action: &str, pod: PodRef) -> Wanted<'_> {
    Wanted { action, instance_type: "m6i.large", capacity_type: CapacityType::OnDemand, pods: vec![pod] }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_launched_for_a_pod_that_runs_or_is_being_deleted() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    watcher.node(&wanted("a-1", future_pod("p"))).await;
    watcher.deploy("web", "100m").await;
    let running = pod_ref(&watcher.world.all(ResourceId::PODS)[0]);
    // It waits for its gate and, once it is deleted, for its finalizer.
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "leaving", "namespace": "default", "finalizers": ["example.com/wait"]},
        "spec": {"schedulingGates": [{"name": "example.com/wait"}],
            "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    watcher.world.apply_object(&pod).unwrap();
    watcher.world.delete(ResourceId::PODS, "leaving").unwrap();
    let leaving = pod_ref(&watcher.world.get(ResourceId::PODS, "leaving").unwrap());
    tokio::time::sleep(Duration::from_secs(5)).await;
    for (action, pod) in [("b-1", running), ("b-2", leaving)] {
        let plan = watcher.plan(&[wanted(action, pod)], Vec::new()).await;
        let outcome = watcher.send(plan).await.remove(0);
        let expected = (OutcomeStatus::Rejected, Some(OutcomeReason::PodChanged));
        assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    }
    tokio::time::sleep(MINUTE).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 1);
}

/// The watcher asks again for the outcomes of a plan. By then, its pods run.
#[tokio::test(start_paused = true)]
async fn a_repeated_plan_is_not_rejected_because_its_pods_run() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    watcher.world.deploy("web", 1, &json!({"cpu": "100m"}), &json!({})).unwrap();
    watcher.until("the pod is there", MINUTE, |world| world.all(ResourceId::PODS).len() == 1).await;
    let pending = pod_ref(&watcher.world.all(ResourceId::PODS)[0]);
    let plan = watcher.plan(&[wanted("a-1", pending)], Vec::new()).await;
    let first = watcher.send(plan.clone()).await.remove(0);
    assert_eq!(first.status, OutcomeStatus::Accepted, "{first:?}");
    watcher.until("the pod runs", 3 * MINUTE, |world| world.running_pods() == 1).await;
    let again = watcher.send(plan).await.remove(0);
    assert_ne!(again.status, OutcomeStatus::Rejected, "{again:?}");
    assert_eq!(instances_ever_launched(&watcher.world).len(), 1);
}
