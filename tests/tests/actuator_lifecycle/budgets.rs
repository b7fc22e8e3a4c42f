//! The disruption budgets that a drained node leaves to others.

use super::drain::{is_drained, run_pod};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::kube::STOP_AFTER;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, wanted};
use plimsoll_tests::{MINUTE, Setup, instance_of, limit_disruptions, running_on};
use serde_json::json;
use std::time::Duration;

/// Three nodes, the first two with a pod of `web` each. Returns the claim of the first one, and their names.
async fn with_web_on_two_nodes(watcher: &FakeWatcher) -> (String, [String; 3]) {
    let (claim, first) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "1").await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    watcher.world.scale("web", 2).unwrap();
    watcher.until("the second pod runs", MINUTE, |world| running_on(world, &second) == 1).await;
    let (_, third) = watcher.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-3") }).await;
    limit_disruptions(&watcher.world, "maxUnavailable", 1);
    watcher.until("the budget allows a disruption", MINUTE, allows_one).await;
    (claim, [first, second, third])
}

/// Whether the budget of `web` allows a disruption.
fn allows_one(world: &World) -> bool {
    let budget = world.get(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap();
    object::integer(&budget, &["status", "disruptionsAllowed"]) == Some(1)
}

/// Lets a new leader take over if it `is_replaced`, and waits until it has gone on with all terminations.
async fn replace_actuator_if(watcher: &mut FakeWatcher, is_replaced: bool) {
    if is_replaced {
        watcher.replace_actuator();
        tokio::time::sleep(2 * MINUTE).await;
    }
}

/// Evictions that are over are in the budget's own count.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_drained_leaves_its_disruption_budget_to_others() {
    for is_replaced in [false, true] {
        let mut watcher = FakeWatcher::begin(Setup::default()).await;
        let (claim, [first, second, third]) = with_web_on_two_nodes(&watcher).await;
        // The removal goes on while EC2 refuses to terminate the instance.
        let instance = instance_of(&watcher.world, &first);
        watcher.world.ec2.with(|cloud, _| cloud.protect(&instance, true));
        let reason = DisruptionReason::Underutilized;
        let outcome = watcher.remove("r-1", &first, reason, Some(&third)).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        let outcome = watcher.remove("r-2", &second, reason, Some(&third)).await;
        assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::Blocked)));
        let has_moved =
            |world: &World| is_drained(world, &claim) && running_on(world, &third) == 1 && allows_one(world);
        watcher.until("the first node is drained", MINUTE, has_moved).await;
        replace_actuator_if(&mut watcher, is_replaced).await;
        let outcome = watcher.remove("r-3", &second, reason, Some(&third)).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        assert!(watcher.claim(&claim).is_some(), "the first removal is not over");
    }
}

/// The budget's own count has it, too.
#[tokio::test(start_paused = true)]
async fn a_pod_that_takes_long_to_stop_holds_no_disruption_budget() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, [first, second, third]) = with_web_on_two_nodes(&watcher).await;
    let pods = watcher.world.all(ResourceId::PODS);
    let slow = pods.iter().find(|pod| object::text(pod, &["spec", "nodeName"]) == first).unwrap();
    let slow = object::name(slow);
    watcher.world.patch(ResourceId::PODS, slow, json!({"metadata": {"annotations": {STOP_AFTER: "30s"}}})).unwrap();
    let reason = DisruptionReason::Underutilized;
    let outcome = watcher.remove("r-1", &first, reason, Some(&third)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    let has_moved = |world: &World| running_on(world, &third) == 1 && allows_one(world);
    watcher.until("another pod runs in its place", MINUTE, has_moved).await;
    // The watches show it by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(watcher.world.get(ResourceId::PODS, slow).is_some_and(|pod| object::is_deleting(&pod)));
    let outcome = watcher.remove("r-2", &second, reason, Some(&third)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
}

/// The drain may go on for days, and a new leader reads the evictions as they were admitted.
#[tokio::test(start_paused = true)]
async fn a_pod_that_stays_holds_no_disruption_budget_of_pods_that_have_left_its_node() {
    for is_replaced in [false, true] {
        let mut watcher = FakeWatcher::begin(Setup::expired()).await;
        let (claim, [first, second, third]) = with_web_on_two_nodes(&watcher).await;
        run_pod(&watcher, "batch", &first, &json!({annotation::DO_NOT_DISRUPT: "true"}), 30).await;
        let outcome = watcher.remove("r-1", &first, DisruptionReason::Expired, Some(&third)).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        let has_moved = |world: &World| running_on(world, &third) == 1 && allows_one(world);
        watcher.until("the evicted pod runs elsewhere", 2 * MINUTE, has_moved).await;
        // The watches show it by then.
        tokio::time::sleep(Duration::from_secs(5)).await;
        replace_actuator_if(&mut watcher, is_replaced).await;
        assert_eq!(running_on(&watcher.world, &first), 1, "the protected pod runs");
        let reason = DisruptionReason::Underutilized;
        let outcome = watcher.remove("r-2", &second, reason, Some(&third)).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        assert!(!is_drained(&watcher.world, &claim), "the first drain goes on");
    }
}
