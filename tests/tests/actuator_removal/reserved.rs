//! Nodes that a pod is reserved for (rule 7).

use crate::{is_tainted, wanted};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::store::{Part, Store, Write};
use plimsoll_sim::apiserver::{Patch, ResourceId};
use plimsoll_tests::Setup;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, pod_ref};
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
