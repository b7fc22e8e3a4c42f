//! Removals of expired nodes.

use crate::{has_command, is_gone, is_tainted, of_node, until_undone};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_model::plan::Termination;
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

/// The next plan may have another place for its pods.
#[tokio::test(start_paused = true)]
async fn a_node_whose_replacement_fails_soon_after_the_expiry_stays_for_another_plan() {
    let watcher = FakeWatcher::begin(Setup::expired()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let reason = DisruptionReason::Expired;
    let removal = Termination { reason, replaced_by: vec![0], ..of_node("r-1", &node) };
    let outcomes = watcher.send(watcher.plan(&[wanted("a-2")], vec![removal]).await).await;
    assert!(outcomes.iter().all(|it| it.status == OutcomeStatus::Accepted), "{outcomes:?}");
    let replacement = outcomes.iter().find(|it| it.action_id.0 == "a-2").unwrap().node_claim.clone().unwrap();
    watcher.until("the node is tainted", MINUTE, |world| is_tainted(world, &node)).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &replacement).unwrap();
    until_undone(&watcher, &claim, &node, MINUTE).await;
    assert!(watcher.is_kept(&claim));
}

/// Plans count it, too. With 50 %, a node expires between half an hour and an hour after its creation.
#[tokio::test(start_paused = true)]
async fn nodes_expire_earlier_by_the_jitter_of_their_pool() {
    let watcher = FakeWatcher::begin(Setup::with_pool(json!({"template": {"spec": {"expireAfter": "1h"}}}))).await;
    let jitter = json!({"metadata": {"annotations": {annotation::EXPIRY_JITTER: "50%"}}});
    watcher.world.patch(ResourceId::NODE_POOLS, "default", jitter).unwrap();
    let mut nodes = Vec::new();
    for action in ["a-1", "a-2", "a-3", "a-4"] {
        nodes.push(watcher.node(&wanted(action)).await.1);
    }
    tokio::time::sleep(52 * MINUTE).await;
    let mut accepted = 0;
    for (number, node) in nodes.iter().enumerate() {
        let outcome = watcher.remove(&format!("r-{number}"), node, DisruptionReason::Expired, None).await;
        accepted += usize::from(outcome.status == OutcomeStatus::Accepted);
    }
    assert!(accepted > 0, "no node is 59 minutes old, and yet some have expired");
}
