//! Removals by plans that do not know the last pod event of the node (decision 202).

use crate::undone::forbid_deletion;
use crate::{is_tainted, of_node};
use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::plan::{Placement, Termination};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;
use std::time::Duration;

/// Removals whose commands the actuator writes at the same time.
const AT_ONCE: usize = 16;

/// Before the removal has its turn, the commands of the others are written. By then, the claim shows the event.
#[tokio::test(start_paused = true)]
async fn a_removal_that_waits_for_its_turn_while_the_pod_event_is_written_is_rejected() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let actions: Vec<String> = (0..=AT_ONCE).map(|number| format!("a-{number:02}")).collect();
    let launches: Vec<Wanted<'_>> = actions.iter().map(|action| wanted(action)).collect();
    let launched = watcher.send(watcher.plan(&launches, Vec::new()).await).await;
    let claims: Vec<String> = launched.into_iter().filter_map(|outcome| outcome.node_claim).collect();
    let mut nodes = Vec::new();
    for claim in &claims {
        nodes.push(watcher.in_service(claim).await);
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": nodes[AT_ONCE], "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    watcher.world.apply_object(&pod).unwrap();
    watcher.until("the pod runs", MINUTE, |world| world.running_pods() == 1).await;
    tokio::time::sleep(MINUTE).await;
    let (faults, event, commands) = (watcher.world.server().faults(), Gate::default(), Gate::default());
    let patch = Matcher::of(Verb::Patch, "nodeclaims");
    let status = Matcher { subresource: Some("status"), name: Some(claims[AT_ONCE].clone()), ..patch.clone() };
    faults.next(1, status, Effect::HoldBefore(event.clone()));
    watcher.world.delete(ResourceId::PODS, "web").unwrap();
    event.reached(1).await;
    watcher.until("the pod is gone", Duration::from_secs(3), |world| world.all(ResourceId::PODS).is_empty()).await;
    // The ledger knows it by then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let removal = |(index, node): (usize, &String)| Termination {
        reason: DisruptionReason::Empty,
        ..of_node(&format!("r-{index:02}"), node)
    };
    let plan = watcher.plan(&[], nodes.iter().enumerate().map(removal).collect()).await;
    faults.always(Matcher { subresource: Some(""), ..patch }, Effect::HoldBefore(commands.clone()));
    let writes = async {
        commands.reached(AT_ONCE).await;
        event.open();
        // The watch shows the event by then.
        tokio::time::sleep(Duration::from_millis(500)).await;
        commands.open();
    };
    let (outcomes, ()) = tokio::join!(watcher.send(plan), writes);
    let (last, others) = outcomes.split_last().unwrap();
    assert!(others.iter().all(|outcome| outcome.status == OutcomeStatus::Accepted), "{others:?}");
    let expected = (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged));
    assert_eq!((last.status, last.reason), expected, "{last:?}");
}

/// The pod leaves the node because of the removal, and the claim does not show that yet.
#[tokio::test(start_paused = true)]
async fn a_repeated_plan_is_not_rejected_for_the_pods_that_its_removal_moves() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "500m").await;
    let (_, other) = watcher.node(&wanted("a-2")).await;
    tokio::time::sleep(MINUTE).await;
    forbid_deletion(&watcher, &claim);
    let pods = watcher.pods_on(&node);
    let moved_to = vec![Placement { node: other.as_str().into(), pods: pods.clone() }];
    let plan = watcher.plan(&[], vec![Termination { pods, moved_to, ..of_node("r-1", &node) }]).await;
    let outcomes = watcher.send(plan.clone()).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
    watcher.until("the node is tainted", MINUTE, |world| is_tainted(world, &node)).await;
    // The reason is written by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (event, patch) = (Gate::default(), Matcher::of(Verb::Patch, "nodeclaims"));
    let status = Matcher { subresource: Some("status"), name: Some(claim.clone()), ..patch };
    watcher.world.server().faults().always(status, Effect::HoldBefore(event.clone()));
    let pod = watcher.world.all(ResourceId::PODS).remove(0);
    watcher.world.delete(ResourceId::PODS, object::name(&pod)).unwrap();
    event.reached(1).await;
    let mut answers = watcher.stream(plan).await.unwrap();
    let known = Outcome::try_from(answers.message().await.unwrap().unwrap()).unwrap();
    assert_eq!(known.status, OutcomeStatus::Accepted, "{known:?}");
    let next = tokio::time::timeout(Duration::from_secs(1), answers.message()).await;
    assert!(next.is_err(), "the removal goes on: {next:?}");
}

/// Its replacement would be launched for nothing.
#[tokio::test(start_paused = true)]
async fn a_removal_with_a_replacement_is_rejected_while_the_pod_event_is_written() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") }).await;
    for name in ["stays", "goes"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "example.com/app:1"}]}});
        watcher.world.apply_object(&pod).unwrap();
    }
    watcher.until("the pods run", MINUTE, |world| world.running_pods() == 2).await;
    tokio::time::sleep(MINUTE).await;
    let (event, patch) = (Gate::default(), Matcher::of(Verb::Patch, "nodeclaims"));
    let status = Matcher { subresource: Some("status"), name: Some(claim), ..patch };
    watcher.world.server().faults().always(status, Effect::HoldBefore(event.clone()));
    watcher.world.delete(ResourceId::PODS, "goes").unwrap();
    event.reached(1).await;
    let is_gone = |world: &World| world.get(ResourceId::PODS, "goes").is_none();
    watcher.until("the pod is gone", Duration::from_secs(3), is_gone).await;
    // The ledger knows it by then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let pods = watcher.pods_on(&node);
    let removal = Termination { pods: pods.clone(), replaced_by: vec![0], ..of_node("r-1", &node) };
    let plan = watcher.plan(&[Wanted { pods, ..wanted("a-2") }], vec![removal]).await;
    let outcomes = watcher.send(plan).await;
    let results: Vec<_> = outcomes.iter().map(|outcome| (outcome.status, outcome.reason)).collect();
    let rejected = OutcomeStatus::Rejected;
    let expected = [(rejected, Some(OutcomeReason::Dependency)), (rejected, Some(OutcomeReason::NodeChanged))];
    assert_eq!(results, expected, "launch and removal: {outcomes:?}");
}

/// The last event was less than ten seconds before, and `consolidateAfter` is 0 s.
#[tokio::test(start_paused = true)]
async fn an_empty_node_stays_while_the_end_of_its_pod_is_written_and_a_second_longer() {
    let spec = json!({"disruption": {"consolidateAfter": "0s"}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    watcher.world.apply_object(&pod).unwrap();
    watcher.until("the pod runs", MINUTE, |world| world.running_pods() == 1).await;
    let last_event = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim).unwrap();
        object::text(&claim, &["status", "lastPodEventTime"]).to_owned()
    };
    let (before, event) = (last_event(&watcher.world), Gate::default());
    assert!(!before.is_empty());
    let patch = Matcher::of(Verb::Patch, "nodeclaims");
    let status = Matcher { subresource: Some("status"), name: Some(claim.clone()), ..patch };
    watcher.world.server().faults().next(1, status, Effect::HoldBefore(event.clone()));
    watcher.world.delete(ResourceId::PODS, "web").unwrap();
    watcher.until("the pod is gone", Duration::from_secs(3), |world| world.all(ResourceId::PODS).is_empty()).await;
    // The ledger knows it by then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let rejected = (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged));
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), rejected, "the claim does not show the event: {outcome:?}");
    event.reached(1).await;
    event.open();
    watcher.until("the event is written", Duration::from_secs(1), |world| last_event(world) != before).await;
    let outcome = watcher.remove("r-2", &node, DisruptionReason::Empty, None).await;
    assert_eq!((outcome.status, outcome.reason), rejected, "the plan may be older: {outcome:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let outcome = watcher.remove("r-3", &node, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
}
