//! What is reverted: the taint, the command and the condition of removals that are not carried out.

use crate::{bind_pod, deletion_of, has_command, is_deleting, is_gone, is_tainted, of_node, until_undone};
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::annotation;
use plimsoll_model::plan::{Placement, Termination};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{Part, Store, Write};
use plimsoll_sim::apiserver::{Audit, Patch, ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, statuses_of, wanted};
use plimsoll_tests::{MINUTE, Setup, limit_disruptions};
use serde_json::json;
use std::time::Duration;

/// Counter of claims that removals have deleted.
const DISRUPTED: &str = "karpenter_nodeclaims_disrupted_total";

/// The removal of this claim is tainted and then waits.
pub(super) fn forbid_deletion(watcher: &FakeWatcher, claim: &str) {
    watcher.world.server().faults().always(deletion_of(claim), Effect::internal_error());
}

fn has_reason(world: &World, claim: &str) -> bool {
    let claim = world.get(ResourceId::NODE_CLAIMS, claim).unwrap();
    object::items(&claim, &["status", "conditions"]).iter().any(|condition| condition["type"] == "DisruptionReason")
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_undone_leaves_neither_taint_nor_condition() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    forbid_deletion(&watcher, &claim);
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    let marked = |world: &World| is_tainted(world, &node) && has_reason(world, &claim);
    watcher.until("the node is marked", MINUTE, marked).await;
    bind_pod(&watcher.world, &node);
    watcher.until("the removal is reverted", MINUTE, |world| !has_command(world, &claim)).await;
    assert!(!is_tainted(&watcher.world, &node) && !has_reason(&watcher.world, &claim));
}

/// Without the taint, kube-scheduler would bind pods to the node that a user deletes.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_being_deleted_keeps_its_taint() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    forbid_deletion(&watcher, &claim);
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    watcher.until("the node is tainted", MINUTE, |world| is_tainted(world, &node)).await;
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    bind_pod(&watcher.world, &node);
    watcher.until("the removal is reverted", MINUTE, |world| !has_command(world, &claim)).await;
    tokio::time::sleep(MINUTE).await;
    assert!(is_tainted(&watcher.world, &node));
}

/// A user or an interruption takes the node that the pods were to move to.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_replacement_is_being_deleted_is_undone() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let large = Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") };
    let (claim, node) = watcher.node(&large).await;
    forbid_deletion(&watcher, &claim);
    let removal = Termination { replaced_by: vec![0], ..of_node("r-1", &node) };
    let plan = watcher.plan(&[wanted("a-2")], vec![removal]).await;
    let outcomes = watcher.send(plan).await;
    assert!(outcomes.iter().all(|it| it.status == OutcomeStatus::Accepted), "{outcomes:?}");
    let replacement = outcomes.iter().find(|it| it.action_id.0 == "a-2").unwrap().node_claim.clone().unwrap();
    let in_service = |world: &World| {
        let found = world.get(ResourceId::NODE_CLAIMS, &replacement);
        is_tainted(world, &node) && found.is_some_and(|it| object::condition_is_true(&it, "Initialized"))
    };
    watcher.until("the replacement is in service", 3 * MINUTE, in_service).await;
    // Its deletion takes longer than the test.
    let finalizers = json!({"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/wait"]}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &replacement, finalizers).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, &replacement).unwrap();
    until_undone(&watcher, &claim, &node, 2 * MINUTE).await;
    assert!(!is_gone(&watcher.world, &claim));
}

/// It is created when the new leader has read all claims, and admits no actions yet: 16 s to 23 s after its start.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_replacement_the_former_leader_creates_late_is_not_undone() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let large = Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") };
    let (claim, node) = watcher.node(&large).await;
    let (create, faults) = (Matcher::of(Verb::Create, "nodeclaims"), watcher.world.server().faults());
    faults.next(1, create.clone(), Effect::Late(Duration::from_secs(20)));
    faults.always(create, Effect::Drop);
    let removal = Termination { replaced_by: vec![0], ..of_node("r-1", &node) };
    let plan = watcher.plan(&[wanted("a-2")], vec![removal]).await;
    let outcomes = watcher.send(plan).await;
    assert!(outcomes.iter().all(|it| it.status == OutcomeStatus::Accepted), "{outcomes:?}");
    // The create has been sent by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.replace_actuator();
    let is_created = |world: &World| world.all(ResourceId::NODE_CLAIMS).len() == 2;
    watcher.until("the replacement is created", MINUTE, is_created).await;
    assert!(watcher.plimsoll.leader(Role::Actuator).is_some(), "the new actuator leads already");
    watcher.until("the node is removed", 5 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// The other node is empty, and this one may have pods.
#[tokio::test(start_paused = true)]
async fn a_command_with_the_node_of_another_claim_is_not_carried_out() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let (_, other) = watcher.node(&wanted("a-2")).await;
    watcher.kill_actuator();
    let command = json!({"action": "r-1", "node": other, "reason": "Empty", "replacements": [], "evictions": {},
                         "rooms": {}, "pods": [], "admitted": watcher.world.server().now().as_millisecond()});
    let patch = json!({"metadata": {"annotations": {annotation::REMOVAL: command.to_string()}}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, patch).unwrap();
    watcher.start_actuator();
    watcher.until("the command is removed", 3 * MINUTE, |world| !has_command(world, &claim)).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(watcher.world.living_instances().len(), 2);
    assert!(!is_tainted(&watcher.world, &node) && !is_tainted(&watcher.world, &other));
}

/// The node is in service again by then, and its pods would have no other place.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_response_has_no_effect_once_the_removal_is_undone() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.server().faults().always(deletion_of(&claim), Effect::Late(Duration::from_secs(30)));
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    watcher.until("the node is tainted", MINUTE, |world| is_tainted(world, &node)).await;
    // The first deletion is sent by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    bind_pod(&watcher.world, &node);
    until_undone(&watcher, &claim, &node, Duration::from_secs(20)).await;
    tokio::time::sleep(2 * MINUTE).await;
    assert!(watcher.is_kept(&claim));
    assert!(!is_tainted(&watcher.world, &node));
}

/// The deletion arrives between the requests that undo the removal.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_response_has_no_effect_while_the_removal_is_undone() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let faults = watcher.world.server().faults();
    faults.always(deletion_of(&claim), Effect::Late(Duration::from_secs(3)));
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    watcher.until("the node is tainted", MINUTE, |world| is_tainted(world, &node)).await;
    // The first deletion is sent by then, and arrives while the taint is being removed.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (client, name, gate) = (Some(watcher.actuator()), Some(node.clone()), Gate::default());
    let untaint = Matcher { client, name, ..Matcher::of(Verb::Patch, "nodes") };
    faults.next(1, untaint, Effect::HoldBefore(gate.clone()));
    bind_pod(&watcher.world, &node);
    gate.reached(1).await;
    let has_arrived = |world: &World| {
        let audit = world.server().audit();
        audit.iter().any(|entry| entry.verb == Verb::Delete && entry.name == claim)
    };
    assert!(!has_arrived(&watcher.world));
    watcher.until("the deletion arrives", Duration::from_secs(3), has_arrived).await;
    gate.open();
    until_undone(&watcher, &claim, &node, Duration::from_secs(20)).await;
    tokio::time::sleep(MINUTE).await;
    assert!(watcher.is_kept(&claim));
    assert!(!is_tainted(&watcher.world, &node));
}

/// It has the command of another removal by then, which waits for a replacement. The watch does not show it yet.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_command_has_changed_is_not_deleted() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let faults = watcher.world.server().faults();
    let rule = faults.always(deletion_of(&claim), Effect::internal_error());
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    let marked = |world: &World| is_tainted(world, &node) && has_reason(world, &claim);
    watcher.until("the node is marked", MINUTE, marked).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.delay_watch("nodeclaims", MINUTE);
    let command = json!({"action": "r-2", "node": node, "reason": "Empty", "replacements": ["a-2"], "evictions": {},
                         "rooms": {}, "pods": [], "admitted": watcher.world.server().now().as_millisecond()});
    let patch = json!({"metadata": {"annotations": {annotation::REMOVAL: command.to_string()}}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, patch).unwrap();
    faults.remove(rule);
    // The deletion is tried again after half a minute at most.
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert!(watcher.is_kept(&claim));
    assert!(has_command(&watcher.world, &claim));
    // Nobody launches the replacement.
    until_undone(&watcher, &claim, &node, MINUTE).await;
    assert!(watcher.is_kept(&claim));
}

/// The write of the reason failed once the node was tainted.
#[tokio::test(start_paused = true)]
async fn a_deleted_claim_has_the_reason_of_its_removal() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    watcher.world.server().faults().next(1, status, Effect::internal_error());
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    watcher.until("the claim is deleted", MINUTE, |world| is_deleting(world, &claim)).await;
    assert!(has_reason(&watcher.world, &claim));
    let audit = watcher.world.server().audit();
    let is_deletion = |entry: &&Audit| entry.verb == Verb::Delete && entry.resource == ResourceId::NODE_CLAIMS;
    assert_eq!(audit.iter().filter(is_deletion).count(), 1, "of the version that has the reason");
}

/// Its deletion got no response, and arrives before the request that clears the reason.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_while_its_removal_is_undone_keeps_the_reason() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    // Its deletion takes longer than the test.
    let finalizers = json!({"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/wait"]}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, finalizers).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let faults = watcher.world.server().faults();
    faults.always(deletion_of(&claim), Effect::Late(Duration::from_secs(3)));
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    watcher.until("the node is tainted", MINUTE, |world| is_tainted(world, &node)).await;
    // The first deletion is sent by then, and arrives while the request is held.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (client, name, gate) = (Some(watcher.actuator()), Some(claim.clone()), Gate::default());
    let clear = Matcher { client, name, subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    faults.next(1, clear, Effect::HoldBefore(gate.clone()));
    // No pod, since the claim would get the time at which it came.
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    watcher.world.patch(ResourceId::NODES, &node, protected).unwrap();
    gate.reached(1).await;
    assert!(!is_deleting(&watcher.world, &claim));
    watcher.until("the deletion arrives", Duration::from_secs(3), |world| is_deleting(world, &claim)).await;
    gate.open();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(has_reason(&watcher.world, &claim));
    let events = watcher.world.events_of("NodeClaim", &claim);
    assert!(!events.iter().any(|event| event.contains("removal undone")), "{events:?}");
    assert_eq!(watcher.counted(DISRUPTED, &[]), 1);
}

/// An interruption deletes it before the removal does, and the watch does not show that yet.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_for_another_reason_keeps_that_one() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    // Its deletion takes longer than the test.
    let finalizers = json!({"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/wait"]}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, finalizers).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let faults = watcher.world.server().faults();
    let deletion = Matcher { client: Some(watcher.actuator()), ..Matcher::of(Verb::Delete, "nodeclaims") };
    let rule = faults.always(deletion, Effect::internal_error());
    watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    let marked = |world: &World| is_tainted(world, &node) && has_reason(world, &claim);
    watcher.until("the node is marked", MINUTE, marked).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.delay_watch("nodeclaims", MINUTE);
    let mut conditions = object::items(&watcher.claim(&claim).unwrap(), &["status", "conditions"]).to_vec();
    let reason = conditions.iter_mut().find(|condition| condition["type"] == "DisruptionReason").unwrap();
    reason["reason"] = json!("Interrupted");
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let write = Write::new(watcher.world.server().now(), "test");
    let change =
        |store: &mut Store| store.patch(ResourceId::NODE_CLAIMS, "", &claim, Part::Status, &patch, &write).map(drop);
    watcher.world.server().write(change).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    faults.remove(rule);
    // The deletion is tried again after half a minute at most.
    tokio::time::sleep(Duration::from_secs(45)).await;
    let deleted = watcher.claim(&claim).unwrap();
    assert_eq!(object::condition(&deleted, "DisruptionReason").unwrap()["reason"], "Interrupted");
    assert_eq!(watcher.counted(DISRUPTED, &[]), 1);
}

/// Somebody else wrote the taint, or removed the command.
#[tokio::test(start_paused = true)]
async fn a_taint_without_a_command_is_removed() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let taints = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
    watcher.world.patch(ResourceId::NODES, &node, taints).unwrap();
    assert!(is_tainted(&watcher.world, &node));
    watcher.until("the taint is gone", MINUTE, |world| !is_tainted(world, &node)).await;
    assert!(!is_gone(&watcher.world, &claim));
}

#[tokio::test(start_paused = true)]
async fn a_removal_whose_claim_is_deleted_is_not_undone() {
    delete_and_use_up_the_budget(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_whose_deletion_got_no_response_is_not_undone() {
    delete_and_use_up_the_budget(true).await;
}

/// The watch shows the deletion before it is tried again.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_deletion_got_no_response_and_is_seen_ends_with_an_outcome() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.server().faults().next(1, deletion_of(&claim), Effect::LoseAnswer);
    let termination = Termination { reason: DisruptionReason::Empty, ..of_node("r-1", &node) };
    let plan = watcher.plan(&[], vec![termination]).await;
    let answers = watcher.stream(plan).await.unwrap();
    assert_eq!(statuses_of("r-1", answers).await, [OutcomeStatus::Accepted, OutcomeStatus::Removed]);
    watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
}

/// The watch of NodeClaims lags, and the disruption budget is used up before it shows the deletion.
async fn delete_and_use_up_the_budget(loses_answers: bool) {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "1").await;
    let (_, other) = watcher.node(&wanted("a-2")).await;
    limit_disruptions(&watcher.world, "maxUnavailable", 1);
    let allows = |world: &World, disruptions: i64| {
        let budget = world.get(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap();
        object::integer(&budget, &["status", "disruptionsAllowed"]) == Some(disruptions)
    };
    watcher.until("the budget allows a disruption", MINUTE, |world| allows(world, 1)).await;
    watcher.delay_watch("nodeclaims", Duration::from_secs(5));
    if loses_answers {
        watcher.world.server().faults().always(deletion_of(&claim), Effect::LoseAnswer);
    }
    let pods = watcher.pods_on(&node);
    let moved_to = vec![Placement { node: other.as_str().into(), pods: pods.clone() }];
    let plan = watcher.plan(&[], vec![Termination { pods, moved_to, ..of_node("r-1", &node) }]).await;
    let answers = watcher.stream(plan).await.unwrap();
    watcher.until("the claim is deleted", MINUTE, |world| is_deleting(world, &claim)).await;
    limit_disruptions(&watcher.world, "maxUnavailable", 0);
    watcher.until("the budget allows no disruption", Duration::from_secs(1), |world| allows(world, 0)).await;
    // The watch shows the deletion only after this.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(is_tainted(&watcher.world, &node) && has_reason(&watcher.world, &claim));
    watcher.world.delete(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap();
    watcher.until("the claim is gone", 3 * MINUTE, |world| is_gone(world, &claim)).await;
    let events = watcher.world.events_of("NodeClaim", &claim);
    assert!(!events.iter().any(|event| event.contains("removal undone")), "{events:?}");
    assert_eq!(statuses_of("r-1", answers).await, [OutcomeStatus::Accepted, OutcomeStatus::Removed]);
    assert_eq!(watcher.counted(DISRUPTED, &[]), 1, "however late the watch shows the deletion");
}
