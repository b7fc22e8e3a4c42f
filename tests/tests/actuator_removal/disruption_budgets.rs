//! Nodes with pods that the Eviction API would not evict.

use crate::is_tainted;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;

/// The Eviction API refuses the pod whatever its budgets allow, so that the drain would never end.
#[tokio::test(start_paused = true)]
async fn a_node_with_a_pod_of_several_disruption_budgets_stays() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, node) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "1").await;
    let (_, other) = watcher.node(&wanted("a-2")).await;
    for name in ["one", "two"] {
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
        watcher.world.apply_object(&budget).unwrap();
    }
    let allow = |world: &World| {
        let budgets = world.all(ResourceId::POD_DISRUPTION_BUDGETS);
        budgets.iter().all(|budget| object::integer(budget, &["status", "disruptionsAllowed"]) == Some(1))
    };
    watcher.until("each budget allows a disruption", MINUTE, allow).await;
    let reason = DisruptionReason::Underutilized;
    let outcome = watcher.remove("r-1", &node, reason, Some(&other)).await;
    assert_eq!(outcome.status, OutcomeStatus::Rejected, "{outcome:?}");
    assert!(!is_tainted(&watcher.world, &node));
    watcher.world.delete(ResourceId::POD_DISRUPTION_BUDGETS, "two").unwrap();
    let outcome = watcher.remove("r-2", &node, reason, Some(&other)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
}
