//! Claims that are gone, or whose name another claim has, while the watch does not show it yet.

use crate::{has_command, is_gone, is_tainted};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::faults::{Distortion, Effect, Gate, Matcher, WatchMatcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;
use std::time::Duration;

/// Deletes a claim without the work of its finalizer.
fn lose(watcher: &FakeWatcher, claim: &str) {
    let no_finalizers = json!({"metadata": {"finalizers": null}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, claim, no_finalizers).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, claim).unwrap();
    assert!(is_gone(&watcher.world, claim));
}

/// Somebody creates the claim again from a copy that has the command. The removal goes on, or is undone since the node
/// is protected.
#[tokio::test(start_paused = true)]
async fn another_claim_with_the_name_of_a_removed_one_is_neither_deleted_nor_changed() {
    for is_protected in [false, true] {
        let watcher = FakeWatcher::begin(Setup::default()).await;
        let (claim, node) = watcher.node(&wanted("a-1")).await;
        let faults = watcher.world.server().faults();
        let deletion = Matcher { client: Some(watcher.actuator()), ..Matcher::of(Verb::Delete, "nodeclaims") };
        let rule = faults.always(deletion, Effect::internal_error());
        watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
        watcher.until("the node is tainted", MINUTE, |world| is_tainted(world, &node)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let claims = WatchMatcher { client: "actuator".to_owned(), resource: Some("nodeclaims") };
        faults.distort_watches(claims, Distortion::Stale(MINUTE));
        let old = watcher.claim(&claim).unwrap();
        lose(&watcher, &claim);
        let command = &old["metadata"]["annotations"][annotation::REMOVAL];
        let copy = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": claim, "annotations": {annotation::REMOVAL: command}}, "spec": old["spec"]});
        watcher.world.apply_object(&copy).unwrap();
        if is_protected {
            let protected = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: "true"}}});
            watcher.world.patch(ResourceId::NODES, &node, protected).unwrap();
        }
        faults.remove(rule);
        // The deletion is tried again after half a minute at most.
        tokio::time::sleep(Duration::from_secs(45)).await;
        let other = watcher.claim(&claim).unwrap();
        assert!(!object::is_deleting(&other) && has_command(&watcher.world, &claim), "{is_protected}: {other:#}");
    }
}

/// Nobody asked for the removal, so nobody waits for its outcome.
#[tokio::test(start_paused = true)]
async fn a_command_that_was_not_admitted_counts_as_no_removal_once_its_claim_is_gone() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (client, name, gate) = (Some(watcher.actuator()), Some(claim.clone()), Gate::default());
    let read = Matcher { client, name, ..Matcher::of(Verb::Get, "nodeclaims") };
    watcher.world.server().faults().next(1, read, Effect::HoldBefore(gate.clone()));
    let command = json!({"action": "r-1", "node": node, "reason": "Empty", "replacements": [], "evictions": {},
                         "rooms": {}, "pods": [], "admitted": watcher.world.server().now().as_millisecond()});
    let patch = json!({"metadata": {"annotations": {annotation::REMOVAL: command.to_string()}}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, patch).unwrap();
    gate.reached(1).await;
    lose(&watcher, &claim);
    gate.open();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let removed = [("kind", "termination"), ("outcome", "removed")];
    assert_eq!(watcher.counted("plimsoll_actuator_actions_total", &removed), 0);
}

/// Somebody has tainted the node as in a removal, which has no command and is undone: the live claim is read.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_seen_to_be_deleted_when_a_removal_is_undone_counts_towards_budgets() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let (_, other) = watcher.node(&wanted("a-2")).await;
    // The watch shows the deletion long after that.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.delay_watch("nodeclaims", 5 * MINUTE);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let taint = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
    watcher.world.patch(ResourceId::NODES, &node, taint).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let outcome = watcher.remove("r-1", &other, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::BudgetExhausted)));
}
