//! Removals of expired nodes.

use crate::{has_command, is_gone};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;

/// The clock of a watcher may be ahead. Never is the default of these tests.
#[tokio::test(start_paused = true)]
async fn a_plan_alone_does_not_make_a_node_expire() {
    for (expire_after, is_expired) in [("Never", false), ("1h", false), ("1s", true)] {
        let pool = json!({"template": {"spec": {"expireAfter": expire_after}}});
        let watcher = FakeWatcher::begin(Setup::with_pool(pool)).await;
        let (claim, node) = watcher.node(&wanted("a-1")).await;
        let outcome = watcher.remove("r-1", &node, DisruptionReason::Expired, None).await;
        let expected = if is_expired {
            (OutcomeStatus::Accepted, None)
        } else {
            (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged))
        };
        assert_eq!((outcome.status, outcome.reason), expected, "{expire_after}: {outcome:?}");
        assert_eq!(has_command(&watcher.world, &claim), is_expired, "{expire_after}");
    }
}

/// The list of the node's pods fails.
#[tokio::test(start_paused = true)]
async fn an_unreadable_pod_does_not_keep_an_expired_node() {
    let watcher = FakeWatcher::begin(Setup::expired()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.unreadable_pod(&node);
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Expired, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// Cluster Autoscaler's annotation protects from voluntary removals.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_safe_to_evict_leaves_an_expired_node_and_no_deleted_one() {
    for is_expired in [true, false] {
        let watcher = FakeWatcher::begin(Setup::expired()).await;
        let (claim, node) = watcher.node(&wanted("a-1")).await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "annotations": {annotation::SAFE_TO_EVICT: "false"}},
            "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}});
        watcher.world.apply_object(&pod).unwrap();
        watcher.until("the pod runs", MINUTE, |world| world.running_pods() == 1).await;
        if is_expired {
            let outcome = watcher.remove("r-1", &node, DisruptionReason::Expired, None).await;
            assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        } else {
            watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
        }
        tokio::time::sleep(MINUTE).await;
        assert_eq!(watcher.world.get(ResourceId::PODS, "web").is_none(), is_expired);
        let events = watcher.world.events_of("Pod", "web");
        assert_eq!(events.iter().any(|event| event == "Evicted: evicted: Expired"), is_expired, "{events:?}");
    }
}
