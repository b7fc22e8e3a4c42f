//! Removals by plans: admitted, tainted, checked again, and deleted or reverted.
#![allow(clippy::unwrap_used, reason = "needed only if helpers outside of tests use it")]

mod blocked;
mod destinations;
mod disruption_budgets;
mod expired;
mod looks;
mod outcomes;
mod pod_events;
mod postponed;
mod recreated;
mod reserved;
mod undone;
mod zonal_shift;

use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_model::plan::{Placement, Termination};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, future_pod, of_node, pod_ref, wanted};
use plimsoll_tests::{MINUTE, Setup, instances_ever_launched, limit_disruptions};
use serde_json::json;
use std::time::Duration;

fn is_tainted(world: &World, node: &str) -> bool {
    has_taint(world, node, "karpenter.sh/disrupted", "NoSchedule")
}

fn is_postponed(world: &World, node: &str) -> bool {
    has_taint(world, node, "plimsoll.dev/removal-postponed", "PreferNoSchedule")
}

fn has_taint(world: &World, node: &str, key: &str, effect: &str) -> bool {
    let node = world.get(ResourceId::NODES, node);
    let is_it = |it: &serde_json::Value| it["key"] == key && it["effect"] == effect;
    node.is_some_and(|node| object::items(&node, &["spec", "taints"]).iter().any(is_it))
}

fn has_command(world: &World, claim: &str) -> bool {
    let claim = world.get(ResourceId::NODE_CLAIMS, claim);
    claim.is_some_and(|claim| !object::text(&claim, &["metadata", "annotations", annotation::REMOVAL]).is_empty())
}

/// The request that writes the command to a claim.
fn command_of(claim: &str) -> Matcher {
    Matcher { subresource: Some(""), name: Some(claim.to_owned()), ..Matcher::of(Verb::Patch, "nodeclaims") }
}

/// The request that deletes a claim.
fn deletion_of(claim: &str) -> Matcher {
    Matcher { name: Some(claim.to_owned()), ..Matcher::of(Verb::Delete, "nodeclaims") }
}

fn is_deleting(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_some_and(|claim| object::is_deleting(&claim))
}

fn is_gone(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_none()
}

/// Waits until the removal of a claim is reverted.
async fn until_undone(watcher: &FakeWatcher, claim: &str, node: &str, limit: Duration) {
    let undone = |world: &World| !has_command(world, claim) && !is_tainted(world, node);
    watcher.until("the removal is reverted", limit, undone).await;
}

/// Binds a pod to the node, as a scheduler that has not seen its taint does.
fn bind_pod(world: &World, node: &str) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    world.apply_object(&pod).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_empty_node_is_removed() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is deleted", 3 * MINUTE, |world| is_gone(world, &claim)).await;
    assert!(watcher.world.living_instances().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_pod_that_the_plan_does_not_know_stays() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    // The plan is made before the pod is bound, and arrives after that.
    let termination = Termination { reason: DisruptionReason::Empty, ..of_node("r-1", &node) };
    watcher.deploy("web", "100m").await;
    let plan = watcher.plan(&[], vec![termination]).await;
    let outcome = watcher.send(plan).await.remove(0);
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::PodChanged)));
    assert!(!has_command(&watcher.world, &claim) && !is_tainted(&watcher.world, &node));
}

/// Rule 7: the node is empty only because the pod that it was launched for has not been bound yet.
#[tokio::test(start_paused = true)]
async fn a_node_stays_while_an_existing_pod_is_reserved_for_it() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let gated = json!({"schedulingGates": [{"name": "example.com/wait"}]});
    watcher.world.deploy("web", 1, &json!({"cpu": "100m"}), &gated).unwrap();
    watcher.until("the pod exists", MINUTE, |world| world.count(ResourceId::PODS, |_| true) == 1).await;
    let pods = vec![pod_ref(&watcher.world.all(ResourceId::PODS)[0])];
    let (claim, node) = watcher.node(&Wanted { pods, ..wanted("a-1") }).await;
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged)));
    assert!(!has_command(&watcher.world, &claim) && !is_tainted(&watcher.world, &node));
    // The pod never comes.
    tokio::time::sleep(MINUTE).await;
    let outcome = watcher.remove("r-2", &node, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// Rule 9: a pod is bound between admission and the taint. The check after the taint sees it, and the removal is
/// reverted.
#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_before_the_taint_undoes_the_removal() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let taint = Matcher::of(Verb::Patch, "nodes");
    let rule = watcher.world.server().faults().always(taint, Effect::internal_error());
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted);
    assert!(has_command(&watcher.world, &claim));
    watcher.deploy("web", "100m").await;
    watcher.world.server().faults().remove(rule);
    until_undone(&watcher, &claim, &node, MINUTE).await;
    tokio::time::sleep(MINUTE).await;
    assert!(!is_gone(&watcher.world, &claim) && !is_tainted(&watcher.world, &node));
    assert_eq!(watcher.world.running_pods(), 1, "the pod still runs");
    let events = watcher.world.events_of("NodeClaim", &claim);
    assert!(events.iter().any(|event| event.contains("DisruptionBlocked")), "{events:?}");
}

/// Rule 9: the same capacity is not counted twice.
#[tokio::test(start_paused = true)]
async fn two_removals_cannot_use_the_same_room() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (one, first) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("one", "1").await;
    let (two, second) = watcher.node(&wanted("a-2")).await;
    watcher.deploy("two", "1").await;
    let (_, third) = watcher.node(&wanted("a-3")).await;
    let reason = DisruptionReason::Underutilized;
    let outcome = watcher.remove("r-1", &first, reason, Some(&third)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    let outcome = watcher.remove("r-2", &second, reason, Some(&third)).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged)));
    watcher.until("the first one is deleted", 3 * MINUTE, |world| is_gone(world, &one)).await;
    assert!(!is_gone(&watcher.world, &two));
    watcher.until("both pods run again", 3 * MINUTE, |world| world.running_pods() == 2).await;
}

/// Rule 11: budgets are checked at admission.
#[tokio::test(start_paused = true)]
async fn a_budget_holds_the_second_removal() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (_, first) = watcher.node(&wanted("a-1")).await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    let outcome = watcher.remove("r-1", &first, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    let outcome = watcher.remove("r-2", &second, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::BudgetExhausted)));
}

/// Rule 12: a command survives its leader.
#[tokio::test(start_paused = true)]
async fn a_new_leader_finishes_a_removal() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    // Deletions fail, so the leader crashes while the node is tainted.
    let matcher = Matcher::of(Verb::Delete, "nodeclaims");
    let rule = watcher.world.server().faults().always(matcher, Effect::internal_error());
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    watcher.until("it is tainted", MINUTE, |world| is_tainted(world, &node)).await;
    watcher.replace_actuator();
    watcher.world.server().faults().remove(rule);
    watcher.until("the claim is deleted", 5 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// Rule 12: the new leader reverts a removal that is no longer valid.
#[tokio::test(start_paused = true)]
async fn a_new_leader_undoes_a_removal_that_no_longer_holds() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let taint = Matcher::of(Verb::Patch, "nodes");
    let rule = watcher.world.server().faults().always(taint, Effect::internal_error());
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert!(has_command(&watcher.world, &claim));
    watcher.replace_actuator();
    watcher.deploy("web", "100m").await;
    watcher.world.server().faults().remove(rule);
    until_undone(&watcher, &claim, &node, 5 * MINUTE).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(watcher.world.running_pods(), 1);
    assert!(!is_gone(&watcher.world, &claim));
}

#[tokio::test(start_paused = true)]
async fn what_must_not_be_disrupted_is_not() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, node) = watcher.node(&wanted("a-1")).await;
    let protected = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}});
    watcher.world.apply_object(&protected).unwrap();
    watcher.until("the pod runs", MINUTE, |world| world.running_pods() == 1).await;
    let (_, other) = watcher.node(&wanted("a-2")).await;
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Underutilized, Some(&other)).await;
    assert_eq!(outcome.status, OutcomeStatus::Rejected);
    assert!(!is_tainted(&watcher.world, &node));
}

/// A command that was written without a response counts like any other: in budgets, and in the capacity at the
/// destination of pods.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_command_was_not_answered_stays_in_the_ledger() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, first) = watcher.node(&wanted("a-1")).await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    let faults = watcher.world.server().faults();
    faults.next(1, command_of(&claim), Effect::LoseAnswer);
    // The removal does not continue after its command.
    let taint = faults.always(Matcher::of(Verb::Patch, "nodes"), Effect::internal_error());
    let outcome = watcher.remove("r-1", &first, DisruptionReason::Empty, None).await;
    assert!(has_command(&watcher.world, &claim));
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    let outcome = watcher.remove("r-2", &second, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::BudgetExhausted)));
    faults.remove(taint);
    watcher.until("the claim is deleted", 3 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// The same if the command was not written: the result is unknown, so the command is written again.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_command_did_not_arrive_is_written_again() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.server().faults().next(1, command_of(&claim), Effect::Drop);
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the claim is deleted", 3 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// A command that was not admitted is in no budget, and is reverted.
#[tokio::test(start_paused = true)]
async fn a_command_that_was_not_admitted_is_not_carried_out() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let command = json!({"action": "r-1", "node": node, "reason": "Empty", "replacements": [], "evictions": {},
                         "rooms": {}, "pods": [], "admitted": watcher.world.server().now().as_millisecond()});
    let patch = json!({"metadata": {"annotations": {annotation::REMOVAL: command.to_string()}}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, patch).unwrap();
    watcher.until("the command is removed", MINUTE, |world| !has_command(world, &claim)).await;
    tokio::time::sleep(MINUTE).await;
    assert!(!is_gone(&watcher.world, &claim) && !is_tainted(&watcher.world, &node));
}

/// A replacement for a removal that is rejected would be launched for nothing.
#[tokio::test(start_paused = true)]
async fn a_removal_that_is_refused_buys_no_replacement() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "1").await;
    limit_disruptions(&watcher.world, "minAvailable", 1);
    tokio::time::sleep(MINUTE).await;
    let pods = watcher.pods_on(&node);
    let shared = vec![pods[0].clone(), future_pod("pending")];
    let launches = [Wanted { pods: pods.clone(), ..wanted("a-2") }, Wanted { pods: shared, ..wanted("a-3") }];
    for (index, status) in [(0, OutcomeStatus::Rejected), (1, OutcomeStatus::Accepted)] {
        let removal = Termination { pods: pods.clone(), replaced_by: vec![0], ..of_node(&format!("r-{index}"), &node) };
        let plan = watcher.plan(&launches[index..=index], vec![removal]).await;
        let outcomes = watcher.send(plan).await;
        assert_eq!(
            outcomes[0].status, status,
            "a launch for a pending pod as well is no mere replacement: {outcomes:?}"
        );
        let rejected = outcomes.iter().find(|it| it.action_id.0 == format!("r-{index}")).unwrap();
        assert_eq!((rejected.status, rejected.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::Blocked)));
    }
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 2, "the first node and the node of the pending pod");
    assert!(!is_gone(&watcher.world, &claim));
}

/// Budgets decide how many removals start. They do not stop an active removal when a user deletes other nodes.
#[tokio::test(start_paused = true)]
async fn a_removal_under_way_goes_on_when_another_node_of_its_pool_is_deleted() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (other, _) = watcher.node(&wanted("a-1")).await;
    let large = Wanted { instance_type: "m6i.2xlarge", ..wanted("a-2") };
    let (claim, node) = watcher.node(&large).await;
    let removal = Termination { replaced_by: vec![0], ..of_node("r-1", &node) };
    let plan = watcher.plan(&[wanted("a-3")], vec![removal]).await;
    let outcomes = watcher.send(plan).await;
    assert!(outcomes.iter().all(|it| it.status == OutcomeStatus::Accepted), "{outcomes:?}");
    // The replacement is still booting.
    watcher.world.delete(ResourceId::NODE_CLAIMS, &other).unwrap();
    watcher.until("the node is removed", 3 * MINUTE, |world| is_gone(world, &claim)).await;
    let events = watcher.world.events_of("NodeClaim", &claim);
    assert!(!events.iter().any(|event| event.contains("DisruptionBlocked")), "{events:?}");
    let replacement = outcomes.iter().find(|it| it.action_id.0 == "a-3").unwrap().node_claim.clone().unwrap();
    let events = watcher.world.events_of("NodeClaim", &replacement);
    let launching = format!("DisruptionLaunching: launched for the removal of node {node}: ");
    assert!(events.iter().any(|event| event.starts_with(&launching)), "{events:?}");
}

/// kube-scheduler would bind the evicted pod to the emptiest node, which is removed next.
#[tokio::test(start_paused = true)]
async fn evicted_pods_avoid_nodes_whose_removal_is_postponed() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, first) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "500m").await;
    let large = Wanted { instance_type: "m6i.2xlarge", ..wanted("a-2") };
    let (_, next) = watcher.node(&large).await;
    let (_, last) = watcher.node(&wanted("a-3")).await;
    let pods = watcher.pods_on(&first);
    let moved_to = vec![Placement { node: last.as_str().into(), pods: pods.clone() }];
    let mut plan = watcher.plan(&[], vec![Termination { pods, moved_to, ..of_node("r-1", &first) }]).await;
    plan.postponed_removals = vec![next.as_str().into()];
    let outcomes = watcher.send(plan).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
    watcher.until("the next node is tainted", MINUTE, |world| is_postponed(world, &next)).await;
    assert!(!is_postponed(&watcher.world, &last) && !is_postponed(&watcher.world, &first));
    watcher.until("the node is removed", 3 * MINUTE, |world| is_gone(world, &claim)).await;
    watcher.until("the pod runs again", MINUTE, |world| world.running_pods() == 1).await;
    assert_eq!((watcher.pods_on(&next).len(), watcher.pods_on(&last).len()), (0, 1));
    // Less than two minutes after the plan. A removal that the budgets hold may follow.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(is_postponed(&watcher.world, &next));
    watcher.until("the taint is gone", 4 * MINUTE, |world| !is_postponed(world, &next)).await;
}

/// The new leader does not know why the node has the taint.
#[tokio::test(start_paused = true)]
async fn a_new_leader_removes_taints_of_postponed_removals() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, first) = watcher.node(&wanted("a-1")).await;
    let (_, next) = watcher.node(&wanted("a-2")).await;
    // The removal cannot end.
    watcher.world.server().faults().always(Matcher::of(Verb::Delete, "nodeclaims"), Effect::internal_error());
    let mut plan = watcher.plan(&[], vec![of_node("r-1", &first)]).await;
    plan.postponed_removals = vec![next.as_str().into()];
    watcher.send(plan).await;
    watcher.until("the next node is tainted", MINUTE, |world| is_postponed(world, &next)).await;
    watcher.replace_actuator();
    watcher.until("the taint is gone", 5 * MINUTE, |world| !is_postponed(world, &next)).await;
}

/// By then, the removals that it waits for should have ended.
#[tokio::test(start_paused = true)]
async fn a_node_has_the_taint_of_a_postponed_removal_for_ten_minutes_at_most() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, first) = watcher.node(&wanted("a-1")).await;
    let (_, next) = watcher.node(&wanted("a-2")).await;
    // The removal cannot end.
    watcher.world.server().faults().always(Matcher::of(Verb::Delete, "nodeclaims"), Effect::internal_error());
    let mut plan = watcher.plan(&[], vec![of_node("r-1", &first)]).await;
    plan.postponed_removals = vec![next.as_str().into()];
    watcher.send(plan).await;
    watcher.until("the next node is tainted", MINUTE, |world| is_postponed(world, &next)).await;
    tokio::time::sleep(9 * MINUTE).await;
    assert!(is_postponed(&watcher.world, &next), "the removal is under way");
    watcher.until("the taint is gone", 2 * MINUTE, |world| !is_postponed(world, &next)).await;
}
