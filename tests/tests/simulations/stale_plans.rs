//! Plans whose basis changes before they are executed (rules 10, 11, 15, 16 and 18). The test acts as the watcher.

use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::names::{annotation, taint};
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, of_node, wanted};
use plimsoll_tests::{MINUTE, Setup, instances_ever_launched, limit_disruptions};
use serde_json::json;

fn of_empty(action: &str, node: &str) -> Termination {
    Termination { reason: DisruptionReason::Empty, ..of_node(action, node) }
}

fn version(world: &World, node: &str) -> String {
    let node = world.get(ResourceId::NODES, node).unwrap();
    object::text(&node, &["metadata", "resourceVersion"]).to_owned()
}

fn said(outcome: &Outcome) -> (OutcomeStatus, Option<OutcomeReason>) {
    (outcome.status, outcome.reason)
}

/// Rule 10: heartbeats do not count as changes.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_outdates_no_plan_and_a_label_does() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, first) = watcher.node(&wanted("a-1")).await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    tokio::time::sleep(MINUTE).await;
    let (before, plan) = (version(&watcher.world, &first), watcher.plan(&[], vec![of_empty("r-1", &first)]).await);
    let later = watcher.plan(&[], vec![of_empty("r-2", &second)]).await;
    // The taint of an earlier plan, which the actuator cannot remove.
    watcher.world.server().faults().always(Matcher::of(Verb::Patch, "nodes"), Effect::internal_error());
    let taint = json!({"key": taint::REMOVAL_POSTPONED, "effect": "PreferNoSchedule"});
    watcher.world.patch(ResourceId::NODES, &first, json!({"spec": {"taints": [taint]}})).unwrap();
    tokio::time::sleep(6 * MINUTE).await;
    assert_ne!(version(&watcher.world, &first), before, "the node had a heartbeat");
    assert_eq!(said(&watcher.send(plan).await[0]), (OutcomeStatus::Accepted, None));
    watcher.world.patch(ResourceId::NODES, &second, json!({"metadata": {"labels": {"team": "other"}}})).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let outcome = watcher.send(later).await.remove(0);
    assert_eq!(said(&outcome), (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged)), "{outcome:?}");
}

/// Rule 11: an admitted eviction counts against its PodDisruptionBudget before it is executed.
#[tokio::test(start_paused = true)]
async fn two_removals_cannot_use_the_same_room_of_a_disruption_budget() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, first) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "1").await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    watcher.world.scale("web", 2).unwrap();
    watcher.until("both pods run", MINUTE, |world| world.running_pods() == 2).await;
    limit_disruptions(&watcher.world, "minAvailable", 1);
    let (_, room) = watcher.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-3") }).await;
    // The first removal does not continue after its admission.
    watcher.world.server().faults().always(Matcher::of(Verb::Patch, "nodes"), Effect::internal_error());
    let reason = DisruptionReason::Underutilized;
    let outcome = watcher.remove("r-1", &first, reason, Some(&room)).await;
    assert_eq!(said(&outcome), (OutcomeStatus::Accepted, None), "{outcome:?}");
    let outcome = watcher.remove("r-2", &second, reason, Some(&room)).await;
    assert_eq!(said(&outcome), (OutcomeStatus::Rejected, Some(OutcomeReason::Blocked)), "{outcome:?}");
}

/// Rule 15: a node seems empty because the watch of pods is stalled. Its pods are listed live before it is removed.
#[tokio::test(start_paused = true)]
async fn a_node_that_only_looks_empty_stays() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let faults = watcher.world.server().faults();
    let actuator = watcher.actuator();
    let pods = Matcher { client: Some(actuator.clone()), ..Matcher::of(Verb::Watch, "pods") };
    let blind = faults.always(pods, Effect::Drop);
    faults.cut_watches([actuator.as_str()]);
    tokio::time::sleep(MINUTE).await;
    watcher.deploy("web", "1").await;
    let plan = watcher.plan(&[], vec![of_empty("r-1", &node)]).await;
    assert_eq!(said(&watcher.send(plan).await[0]), (OutcomeStatus::Accepted, None), "it does not see the pod");
    tokio::time::sleep(3 * MINUTE).await;
    faults.remove(blind);
    let current = watcher.claim(&claim).unwrap();
    assert!(!object::is_deleting(&current));
    assert!(object::annotation(&current, annotation::REMOVAL).is_none(), "the removal is reverted");
    assert_eq!(watcher.world.running_pods(), 1);
}

/// Rule 18: actions that depend on a rejected action are rejected too.
#[tokio::test(start_paused = true)]
async fn a_rejected_launch_takes_the_removal_along_that_rests_on_it() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let removal = Termination { replaced_by: vec![0], ..of_empty("r-1", &node) };
    let mut plan = watcher.plan(&[wanted("a-2")], vec![removal]).await;
    "other".clone_into(&mut plan.launches[0].node_class);
    let outcomes = watcher.send(plan).await;
    let statuses: Vec<_> = outcomes.iter().map(said).collect();
    let rejected = OutcomeStatus::Rejected;
    assert_eq!(statuses, [(rejected, Some(OutcomeReason::PoolChanged)), (rejected, Some(OutcomeReason::Dependency))]);
    assert!(!object::is_deleting(&watcher.claim(&claim).unwrap()));
}

/// Rule 18: positions of the old leader's ledger are not comparable with those of a new leader.
#[tokio::test(start_paused = true)]
async fn a_plan_on_a_former_leaders_ledger_is_rejected() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let plan = watcher.plan(&[wanted("a-1")], Vec::new()).await;
    watcher.replace_actuator();
    let outcome = watcher.send(plan).await.remove(0);
    assert_eq!(said(&outcome), (OutcomeStatus::Rejected, Some(OutcomeReason::StaleSnapshot)), "{outcome:?}");
    assert!(watcher.world.living_instances().is_empty());
}

/// Rule 9: the old node is removed only after the new node is in service.
#[tokio::test(start_paused = true)]
async fn a_node_goes_only_once_its_replacement_is_in_service() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") }).await;
    watcher.deploy("web", "1").await;
    let pods = watcher.pods_on(&node);
    let replacement = Wanted { pods: pods.clone(), ..wanted("a-2") };
    let removal = Termination { pods: pods.clone(), replaced_by: vec![0], ..of_node("r-1", &node) };
    let plan = watcher.plan(&[replacement], vec![removal]).await;
    let outcomes = watcher.send(plan).await;
    assert!(outcomes.iter().all(|it| it.status == OutcomeStatus::Accepted), "{outcomes:?}");
    let new = outcomes[0].node_claim.clone().unwrap();
    // While the pod still runs on the old node, it stays reserved for the new one.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let again = watcher.plan(&[Wanted { pods, ..wanted("a-3") }], Vec::new()).await;
    let outcome = watcher.send(again).await.remove(0);
    assert_eq!(said(&outcome), (OutcomeStatus::Rejected, Some(OutcomeReason::PodChanged)), "{outcome:?}");
    assert!(outcome.message.ends_with(&format!("is reserved for NodeClaim {new}")), "{outcome:?}");
    let goes = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none_or(|it| object::is_deleting(&it));
    watcher.until("the old node is being removed", 3 * MINUTE, goes).await;
    assert!(object::condition_is_true(&watcher.claim(&new).unwrap(), "Initialized"));
    watcher.until("the pod runs again", 3 * MINUTE, |world| world.running_pods() == 1).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 2);
}

/// Rule 9: the taint is first, and nothing is removed without it.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_tainted_stays() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let rule = watcher.world.server().faults().always(Matcher::of(Verb::Patch, "nodes"), Effect::internal_error());
    let plan = watcher.plan(&[], vec![of_empty("r-1", &node)]).await;
    assert_eq!(said(&watcher.send(plan).await[0]), (OutcomeStatus::Accepted, None));
    tokio::time::sleep(2 * MINUTE).await;
    assert!(!object::is_deleting(&watcher.claim(&claim).unwrap()));
    watcher.world.server().faults().remove(rule);
    let gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    watcher.until("the node is removed after it is tainted", 5 * MINUTE, gone).await;
}
