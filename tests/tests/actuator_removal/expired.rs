//! Removals of expired nodes.

use crate::is_gone;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};

/// The list of the node's pods fails.
#[tokio::test(start_paused = true)]
async fn an_unreadable_pod_does_not_keep_an_expired_node() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.unreadable_pod(&node);
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Expired, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
}
