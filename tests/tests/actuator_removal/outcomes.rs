//! How removals end, as the watcher sees it.

use crate::{bind_pod, command_of, has_command, is_gone, is_tainted, of_node};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::apiserver::error::ApiError;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, statuses_of, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

fn of_empty(node: &str) -> Termination {
    Termination { reason: DisruptionReason::Empty, ..of_node("r-1", node) }
}

#[tokio::test(start_paused = true)]
async fn a_removal_ends_with_its_node() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let plan = watcher.plan(&[], vec![of_empty(&node)]).await;
    let outcome = watcher.final_outcome(plan).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Removed, None), "{outcome:?}");
    assert_eq!(outcome.node_claim, Some(claim));
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_undone_has_failed() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let taint = Matcher::of(Verb::Patch, "nodes");
    let rule = watcher.world.server().faults().always(taint, Effect::internal_error());
    let plan = watcher.plan(&[], vec![of_empty(&node)]).await;
    let pod_comes = async {
        watcher.until("the command is written", MINUTE, |world| has_command(world, &claim)).await;
        watcher.deploy("web", "100m").await;
        watcher.world.server().faults().remove(rule);
    };
    let (outcome, ()) = tokio::join!(watcher.final_outcome(plan), pod_comes);
    let expected = (OutcomeStatus::Failed, Some(OutcomeReason::NodeChanged));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    assert_eq!(outcome.node_claim, Some(claim.clone()));
}

/// The watch of pods lags, so that the node looks empty until its pods are listed live (rule 15).
#[tokio::test(start_paused = true)]
async fn a_removal_of_a_node_with_a_pod_that_the_watch_does_not_show_has_failed() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.delay_watch("pods", 10 * MINUTE);
    watcher.deploy("web", "100m").await;
    let plan = watcher.plan(&[], vec![of_empty(&node)]).await;
    let outcome = watcher.final_outcome(plan).await;
    let expected = (OutcomeStatus::Failed, Some(OutcomeReason::NodeChanged));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    assert!(outcome.message.contains("was bound after the plan was made"), "{outcome:?}");
    assert!(!is_gone(&watcher.world, &claim) && !is_tainted(&watcher.world, &node));
    assert_eq!(watcher.world.running_pods(), 1);
}

/// The pod is bound after the list is made, and before it arrives.
#[tokio::test(start_paused = true)]
async fn a_removal_of_a_node_with_a_pod_that_only_the_watch_shows_has_failed() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let plan = watcher.plan(&[], vec![of_empty(&node)]).await;
    let (gate, client) = (Gate::default(), Some(watcher.actuator()));
    let list = Matcher { client, ..Matcher::of(Verb::List, "pods") };
    watcher.world.server().faults().next(1, list, Effect::HoldAfter(gate.clone()));
    let pod_comes = async {
        gate.reached(1).await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.com/app:1"}]}});
        watcher.world.apply_object(&pod).unwrap();
        // The watch shows it by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        gate.open();
    };
    let (outcome, ()) = tokio::join!(watcher.final_outcome(plan), pod_comes);
    let expected = (OutcomeStatus::Failed, Some(OutcomeReason::NodeChanged));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    assert!(!is_gone(&watcher.world, &claim) && !is_tainted(&watcher.world, &node));
}

/// Without a finalizer, the claim is gone before any controller sees the deletion: a repeated plan gets the outcome.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_claim_a_user_deletes_ends_with_an_outcome() {
    for has_finalizer in [true, false] {
        let watcher = FakeWatcher::begin(Setup::default()).await;
        let large = Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") };
        let (claim, node) = watcher.node(&large).await;
        let removal = Termination { replaced_by: vec![0], ..of_node("r-1", &node) };
        let plan = watcher.plan(&[wanted("a-2")], vec![removal]).await;
        let first = watcher.stream(plan.clone()).await.unwrap();
        watcher.until("it waits for its replacement", MINUTE, |world| is_tainted(world, &node)).await;
        if !has_finalizer {
            let no_finalizers = json!({"metadata": {"finalizers": null}});
            watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, no_finalizers).unwrap();
        }
        watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
        watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
        tokio::time::sleep(MINUTE).await;
        for answers in [first, watcher.stream(plan).await.unwrap()] {
            let statuses = statuses_of("r-1", answers).await;
            assert_eq!(statuses, [OutcomeStatus::Accepted, OutcomeStatus::Removed], "{has_finalizer}");
        }
    }
}

/// The watch of NodeClaims does not show yet that the claim is gone. No plan is repeated.
#[tokio::test(start_paused = true)]
async fn a_removal_that_a_pod_prevents_once_its_claim_is_gone_ends_with_an_outcome() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let large = Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") };
    let (claim, node) = watcher.node(&large).await;
    let removal = Termination { replaced_by: vec![0], ..of_node("r-1", &node) };
    let plan = watcher.plan(&[wanted("a-2")], vec![removal]).await;
    let answers = watcher.stream(plan).await.unwrap();
    watcher.until("it waits for its replacement", MINUTE, |world| is_tainted(world, &node)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.delay_watch("nodeclaims", Duration::from_secs(5));
    let no_finalizers = json!({"metadata": {"finalizers": null}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, no_finalizers).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    assert!(is_gone(&watcher.world, &claim));
    bind_pod(&watcher.world, &node);
    assert_eq!(statuses_of("r-1", answers).await, [OutcomeStatus::Accepted, OutcomeStatus::Removed]);
}

/// Nothing was written, so the removal counts towards no budget.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_command_is_refused_is_rejected() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, first) = watcher.node(&wanted("a-1")).await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    let denied = Effect::Refuse(ApiError::new(403, "Forbidden", "a policy denies it"));
    watcher.world.server().faults().next(1, command_of(&claim), denied);
    let outcome = watcher.remove("r-1", &first, DisruptionReason::Empty, None).await;
    let expected = (OutcomeStatus::Rejected, Some(OutcomeReason::ClusterRefused));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    let outcome = watcher.remove("r-2", &second, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    assert!(!has_command(&watcher.world, &claim));
}

/// The watcher plans for new pods only after it knows the outcome of each removal.
#[tokio::test(start_paused = true)]
async fn commands_of_a_plan_are_written_at_the_same_time() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "4"}]}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let mut removals = Vec::new();
    for number in 1..=4 {
        let (_, node) = watcher.node(&wanted(&format!("a-{number}"))).await;
        removals.push(Termination { action_id: format!("r-{number}").as_str().into(), ..of_empty(&node) });
    }
    let plan = watcher.plan(&[], removals).await;
    let command = Matcher { subresource: Some(""), ..Matcher::of(Verb::Patch, "nodeclaims") };
    watcher.world.server().faults().always(command, Effect::Delay(Duration::from_secs(1)));
    let start = Instant::now();
    let outcomes = watcher.send(plan).await;
    assert!(outcomes.iter().all(|outcome| outcome.status == OutcomeStatus::Accepted), "{outcomes:?}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// No request for it is answered. Nothing was written, and other removals do not wait for it for ever.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_command_is_never_written_is_given_up() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, first) = watcher.node(&wanted("a-1")).await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    watcher.world.server().faults().always(command_of(&claim), Effect::Drop);
    let outcome = watcher.remove("r-1", &first, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    tokio::time::sleep(10 * MINUTE).await;
    let outcome = watcher.remove("r-2", &second, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::BudgetExhausted)));
    tokio::time::sleep(15 * MINUTE).await;
    let outcome = watcher.remove("r-3", &second, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
}
