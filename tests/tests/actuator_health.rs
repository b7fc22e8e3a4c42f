//! Tests of the actuator with instances that EC2 reports as impaired, and with bad conditions of Nodes.
#![allow(clippy::unwrap_used, reason = "needed only if helpers outside of tests use it")]

use plimsoll_actuator::ports::{CloudError, InstanceEvent, InstanceStatus, StatusCheck};
use plimsoll_model::names::{annotation, lease};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_sim::apiserver::faults::{Effect as ApiEffect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{Part, Write};
use plimsoll_sim::apiserver::{ApiError, Patch, ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup, instance_of, instances_ever_launched, limit_disruptions};
use serde_json::{Value, json};
use std::time::Duration;

/// A status check counts after it has failed for two minutes, and EC2 is polled each minute.
const NOTICED: Duration = Duration::from_secs(240);

async fn begin() -> FakeWatcher {
    FakeWatcher::begin(Setup::with_pool(json!({}))).await
}

/// Launches a node and returns the names of claim and node.
async fn node(watcher: &FakeWatcher, action: &str) -> (String, String) {
    watcher.node(&wanted(action)).await
}

/// Makes EC2 report a failed status check of the node's instance from now on.
fn impair(world: &World, node: &str) {
    change_status(world, node, |status, now| status.system = StatusCheck::Impaired { since: Some(now) });
}

/// Makes EC2 report an event that stops the node's instance at this time, if it is known.
fn schedule_stop(world: &World, node: &str, not_before: Option<Timestamp>) {
    let event = InstanceEvent { code: "instance-stop".to_owned(), not_before };
    change_status(world, node, |status, _| status.events.push(event));
}

fn change_status(world: &World, node: &str, change: impl FnOnce(&mut InstanceStatus, Timestamp)) {
    let id = instance_of(world, node);
    world.ec2.with(|cloud, now| {
        let status = cloud.statuses.entry(id.clone()).or_insert(InstanceStatus {
            instance_id: id,
            instance: StatusCheck::Ok,
            system: StatusCheck::Ok,
            events: Vec::new(),
        });
        change(status, now);
    });
}

/// Whether the time of a claim's node is over, so that nothing protects its pods.
fn is_forced(world: &World, claim: &str) -> bool {
    let claim = world.get(ResourceId::NODE_CLAIMS, claim).unwrap();
    let until = object::text(&claim, &["metadata", "annotations", annotation::TERMINATION_TIMESTAMP]).parse();
    until.is_ok_and(|until: jiff::Timestamp| until <= world.server().now())
}

fn is_going(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_none_or(|claim| object::is_deleting(&claim))
}

#[tokio::test(start_paused = true)]
async fn one_impaired_node_is_replaced_and_many_at_once_are_not() {
    let watcher = begin().await;
    let mut nodes = Vec::new();
    for action in ["a-1", "a-2", "a-3"] {
        nodes.push(node(&watcher, action).await);
    }
    impair(&watcher.world, &nodes[0].1);
    impair(&watcher.world, &nodes[1].1);
    let has_reason = |world: &World| {
        let events = world.events_of("NodeClaim", &nodes[0].0);
        events.iter().any(|event| event.contains("NodeRepairBlocked") && event.contains("2 of 3 nodes"))
    };
    watcher.until("the limit is reported", NOTICED, has_reason).await;
    tokio::time::sleep(5 * MINUTE).await;
    assert!(nodes.iter().all(|(claim, _)| !is_going(&watcher.world, claim)), "two of three are too many");
    let unhealthy = "karpenter_interruption_instance_status_unhealthy_total";
    assert_eq!(watcher.counted(unhealthy, &[("category", "SystemStatus")]), 2, "each once, however often EC2 is asked");
    watcher.world.ec2.with(|cloud, _| {
        let well = cloud.statuses.keys().next_back().cloned().unwrap();
        cloud.statuses.remove(&well);
    });
    watcher
        .until("the impaired node is being removed", NOTICED, |world| {
            nodes.iter().filter(|(claim, _)| is_going(world, claim)).count() == 1
        })
        .await;
}

/// EC2 stops the instance in any case.
#[tokio::test(start_paused = true)]
async fn the_limit_keeps_no_node_whose_instance_has_an_event() {
    let watcher = begin().await;
    let mut nodes = Vec::new();
    for action in ["a-1", "a-2", "a-3"] {
        nodes.push(node(&watcher, action).await);
    }
    impair(&watcher.world, &nodes[0].1);
    impair(&watcher.world, &nodes[1].1);
    let is_blocked = |world: &World| {
        let events = world.events_of("NodeClaim", &nodes[1].0);
        events.iter().any(|event| event.contains("NodeRepairBlocked"))
    };
    watcher.until("the limit is reported", NOTICED, is_blocked).await;
    let stops = watcher.world.ec2.now().plus(Millis::from_seconds(7200));
    schedule_stop(&watcher.world, &nodes[1].1, Some(stops));
    watcher.until("the node is being removed", 2 * MINUTE, |world| is_going(world, &nodes[1].0)).await;
    assert!(!is_forced(&watcher.world, &nodes[1].0), "its pods are evicted");
    assert!(!is_going(&watcher.world, &nodes[0].0) && !is_going(&watcher.world, &nodes[2].0));
    let claim = watcher.claim(&nodes[1].0).unwrap();
    let notice = object::text(&claim, &["metadata", "annotations", annotation::INTERRUPTED]);
    let notice: Value = serde_json::from_str(notice).unwrap();
    assert_eq!((&notice["kind"], &notice["ends"]), (&json!("event_status"), &json!(stops.0)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = watcher.world.events_of("NodeClaim", &nodes[1].0);
    let expected = "InstanceUnhealthy: notice from EC2 for the instance: scheduled_change";
    assert!(events.iter().any(|event| event == expected), "{events:?}");
}

/// Its pods cannot terminate, so nothing is gained by waiting.
#[tokio::test(start_paused = true)]
async fn a_grace_period_ends_once_the_instance_is_impaired() {
    let grace = json!({"template": {"spec": {"terminationGracePeriod": "2h"}}});
    let watcher = FakeWatcher::begin(Setup::with_pool(grace)).await;
    let (claim, name) = node(&watcher, "a-1").await;
    protected_pod(&watcher).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(5 * MINUTE).await;
    assert!(!is_forced(&watcher.world, &claim) && watcher.world.running_pods() == 1);
    impair(&watcher.world, &name);
    let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    watcher.until("the claim is deleted", NOTICED + 2 * MINUTE, is_gone).await;
}

/// EC2 does not say since when, and lists no instance without a problem.
#[tokio::test(start_paused = true)]
async fn a_check_that_fails_again_has_not_failed_since_the_first_time() {
    let watcher = begin().await;
    let (claim, name) = node(&watcher, "a-1").await;
    let fail =
        || change_status(&watcher.world, &name, |status, _| status.system = StatusCheck::Impaired { since: None });
    fail();
    tokio::time::sleep(Duration::from_secs(100)).await;
    watcher.world.ec2.with(|cloud, _| cloud.statuses.clear());
    tokio::time::sleep(5 * MINUTE).await;
    fail();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!is_going(&watcher.world, &claim), "less than two minutes");
    watcher.until("the node is being removed", NOTICED, |world| is_going(world, &claim)).await;
}

/// A pod runs on the only node, and a budget protects it.
async fn protected_pod(watcher: &FakeWatcher) {
    watcher.deploy("web", "500m").await;
    limit_disruptions(&watcher.world, "maxUnavailable", 0);
}

/// The drain of a claim waits for a pod that a budget protects. Then the instance fails, so that the pod cannot
/// terminate.
#[tokio::test(start_paused = true)]
async fn a_drain_that_a_budget_holds_is_forced_once_the_instance_is_impaired() {
    let watcher = begin().await;
    let (claim, name) = node(&watcher, "a-1").await;
    protected_pod(&watcher).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    assert!(watcher.world.get(ResourceId::NODE_CLAIMS, &claim).is_some(), "the budget holds the drain");
    let audit = watcher.world.server().audit();
    let evictions = audit.iter().filter(|entry| entry.verb == Verb::Create && entry.subresource == "eviction").count();
    // Eight within 13 s, as the pause doubles from 0.1 s on, and then one every 10 s.
    assert!((60..=70).contains(&evictions), "{evictions} evictions");
    impair(&watcher.world, &name);
    let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    watcher.until("the claim is deleted", NOTICED + 2 * MINUTE, is_gone).await;
}

/// Nothing waits for a replacement of a broken node: the next plan has its pods.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_drained_by_force_is_not_replaced_like_for_like() {
    let watcher = begin().await;
    let (claim, name) = node(&watcher, "a-1").await;
    protected_pod(&watcher).await;
    let refused = ApiEffect::Refuse(ApiError::new(403, "Forbidden", "a webhook refuses it"));
    watcher.world.server().faults().always(Matcher::of(Verb::Delete, "pods"), refused);
    impair(&watcher.world, &name);
    watcher.until("the node is being removed", NOTICED, |world| is_going(world, &claim)).await;
    let time = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim).unwrap();
        object::text(&claim, &["metadata", "annotations", annotation::TERMINATION_TIMESTAMP]).to_owned()
    };
    let before = time(&watcher.world);
    assert!(is_forced(&watcher.world, &claim));
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(time(&watcher.world), before, "each poll finds the check failed, and its time is over already");
    assert_eq!(watcher.world.running_pods(), 1, "it cannot be deleted");
    assert_eq!(instances_ever_launched(&watcher.world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_for_an_event_is_forced_once_a_status_check_fails_too() {
    let watcher = begin().await;
    let (claim, name) = node(&watcher, "a-1").await;
    protected_pod(&watcher).await;
    schedule_stop(&watcher.world, &name, None);
    watcher.until("the node is being removed", NOTICED, |world| is_going(world, &claim)).await;
    tokio::time::sleep(5 * MINUTE).await;
    assert!(watcher.world.get(ResourceId::NODE_CLAIMS, &claim).is_some(), "the budget holds the drain");
    impair(&watcher.world, &name);
    let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    watcher.until("the claim is deleted", NOTICED + 2 * MINUTE, is_gone).await;
    for events in [watcher.world.events_of("NodeClaim", &claim), watcher.world.events_of("Node", &name)] {
        for part in ["InstanceUnhealthy: EC2 status check system_status failed", "TerminatingOnInterruption: "] {
            assert!(events.iter().any(|event| event.contains(part)), "{part}: {events:?}");
        }
    }
}

/// EC2 lists the status of all instances of the region, page by page.
#[tokio::test(start_paused = true)]
async fn a_status_list_that_takes_a_minute_is_waited_for() {
    let watcher = begin().await;
    let (claim, node) = node(&watcher, "a-1").await;
    let slow = Effect::Delay(MINUTE);
    watcher.world.ec2.faults(|faults| faults.inject(Action::DescribeInstanceStatus, slow, u32::MAX));
    impair(&watcher.world, &node);
    watcher.until("the impaired node is being removed", 2 * NOTICED, |world| is_going(world, &claim)).await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_an_impaired_instance_are_deleted_at_once() {
    let watcher = begin().await;
    let (claim, node) = node(&watcher, "a-1").await;
    protected_pod(&watcher).await;
    impair(&watcher.world, &node);
    watcher.until("the impaired node is being removed", NOTICED, |world| is_going(world, &claim)).await;
    assert!(is_forced(&watcher.world, &claim));
    // Long before EC2 is polled again.
    let is_gone = |world: &World| world.running_pods() == 0;
    watcher.until("the pod is deleted", Duration::from_secs(10), is_gone).await;
}

/// The pods of a marked claim are planned elsewhere, so it must not stay.
#[tokio::test(start_paused = true)]
async fn a_marked_claim_is_deleted_although_its_instance_recovers() {
    let watcher = begin().await;
    let (claim, name) = node(&watcher, "a-1").await;
    let delete = Matcher::of(Verb::Delete, "nodeclaims");
    watcher.world.server().faults().next(1, delete, ApiEffect::internal_error());
    impair(&watcher.world, &name);
    watcher.until("the claim is marked", NOTICED, |world| is_forced(world, &claim)).await;
    watcher.world.ec2.with(|cloud, _| cloud.statuses.clear());
    watcher.until("the claim is being deleted", Duration::from_secs(10), |world| is_going(world, &claim)).await;
}

/// As when the actuator's credentials have expired and are renewed late.
#[tokio::test(start_paused = true)]
async fn instances_are_checked_again_after_ec2_denied_it() {
    let watcher = begin().await;
    let (claim, node) = node(&watcher, "a-1").await;
    let denied = Effect::Refuse(CloudError::Denied { message: "ExpiredToken: the token has expired".to_owned() });
    watcher.world.ec2.faults(|faults| faults.inject(Action::DescribeInstanceStatus, denied, 3));
    impair(&watcher.world, &node);
    // EC2 is polled each minute.
    let limit = NOTICED + 3 * MINUTE;
    watcher.until("the impaired node is being removed", limit, |world| is_going(world, &claim)).await;
}

/// As Karpenter tolerates it.
const ACCELERATORS_TOLERATED: Duration = Duration::from_secs(600);

async fn begin_with_repair(node_repair: bool) -> FakeWatcher {
    let mut setup = Setup::with_pool(json!({}));
    setup.options = Options { node_repair, ..setup.options };
    FakeWatcher::begin(setup).await
}

/// The node monitoring agent reports the status of the node's accelerators.
fn report(world: &World, node: &str, status: &str) {
    let object = world.get(ResourceId::NODES, node).unwrap();
    let write = Write::new(world.server().now(), "eks-node-monitoring-agent");
    let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap();
    conditions.retain(|condition| condition["type"] != "AcceleratedHardwareReady");
    let since = world.server().now().to_string();
    conditions.push(json!({"type": "AcceleratedHardwareReady", "status": status, "lastTransitionTime": since}));
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    world.server().write(|store| store.patch(ResourceId::NODES, "", node, Part::Status, &patch, &write)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_bad_condition_is_replaced_once_it_is_no_longer_tolerated() {
    let watcher = begin_with_repair(true).await;
    let (claim, node) = node(&watcher, "a-1").await;
    report(&watcher.world, &node, "False");
    tokio::time::sleep(ACCELERATORS_TOLERATED - MINUTE).await;
    assert!(!is_going(&watcher.world, &claim), "it is tolerated");
    watcher.until("the node is being removed", 2 * MINUTE, |world| is_going(world, &claim)).await;
    assert!(is_forced(&watcher.world, &claim));
    // The drain changes claim and Node, which are looked at again.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let labels = [("nodepool", "default"), ("condition", "accelerated_hardware_ready")];
    assert_eq!(watcher.counted("karpenter_nodeclaims_unhealthy_disrupted_total", &labels), 1);
    let events = watcher.world.events_of("NodeClaim", &claim);
    let message = "condition AcceleratedHardwareReady has been False for too long";
    assert!(events.iter().any(|event| event.contains("NodeRepair") && event.contains(message)), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_recovers_in_time_and_one_without_the_gate_replace_nothing() {
    for node_repair in [true, false] {
        let watcher = begin_with_repair(node_repair).await;
        let (claim, node) = node(&watcher, "a-1").await;
        report(&watcher.world, &node, "False");
        tokio::time::sleep(ACCELERATORS_TOLERATED - MINUTE).await;
        if node_repair {
            report(&watcher.world, &node, "True");
        }
        tokio::time::sleep(2 * ACCELERATORS_TOLERATED).await;
        assert!(!is_going(&watcher.world, &claim), "node repair: {node_repair}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_a_fifth_of_the_nodes_is_never_replaced_for_bad_conditions() {
    let watcher = begin_with_repair(true).await;
    let mut nodes = Vec::new();
    for action in ["a-1", "a-2", "a-3"] {
        nodes.push(node(&watcher, action).await);
    }
    report(&watcher.world, &nodes[0].1, "False");
    report(&watcher.world, &nodes[1].1, "False");
    tokio::time::sleep(2 * ACCELERATORS_TOLERATED).await;
    assert!(nodes.iter().all(|(claim, _)| !is_going(&watcher.world, claim)), "two of three are too many");
    let events = watcher.world.events_of("NodeClaim", &nodes[0].0);
    let says = |event: &String| event.contains("NodeRepairBlocked") && event.contains("2 of 3 nodes");
    assert!(events.iter().any(says), "{events:?}");
    let events = watcher.world.events_of("NodePool", "default");
    assert!(events.iter().any(says), "{events:?}");
    // The other one recovers.
    report(&watcher.world, &nodes[1].1, "True");
    watcher.until("the broken node is being removed", MINUTE, |world| is_going(world, &nodes[0].0)).await;
    assert!(!is_going(&watcher.world, &nodes[1].0));
}

/// For example while a webhook is down.
#[tokio::test(start_paused = true)]
async fn a_repair_that_cannot_be_written_is_tried_again_within_half_a_minute() {
    let watcher = begin_with_repair(true).await;
    let (claim, node) = node(&watcher, "a-1").await;
    report(&watcher.world, &node, "False");
    let mark = Matcher { subresource: Some(""), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let refused = watcher.world.server().faults().always(mark, ApiEffect::internal_error());
    tokio::time::sleep(ACCELERATORS_TOLERATED + MINUTE).await;
    assert!(!is_going(&watcher.world, &claim));
    watcher.world.server().faults().remove(refused);
    watcher.until("the node is being removed", Duration::from_secs(31), |world| is_going(world, &claim)).await;
}

/// Karpenter's Lease has this holder for a day.
fn set_karpenter(world: &World, holder: &str) {
    let now = world.server().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 86_400, "renewTime": now});
    let metadata = json!({"name": lease::KARPENTER, "namespace": "kube-system"});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
    world.apply_object(&lease).unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_event_says_that_a_node_is_replaced_while_karpenter_leads() {
    let watcher = begin_with_repair(true).await;
    let (claim, node) = node(&watcher, "a-1").await;
    set_karpenter(&watcher.world, "karpenter-1");
    tokio::time::sleep(MINUTE).await;
    report(&watcher.world, &node, "False");
    impair(&watcher.world, &node);
    tokio::time::sleep(2 * ACCELERATORS_TOLERATED).await;
    assert!(!is_going(&watcher.world, &claim));
    let events = watcher.world.events_of("NodeClaim", &claim);
    assert!(!events.iter().any(|event| event.contains("replacing the node")), "{events:?}");
    set_karpenter(&watcher.world, "");
    watcher.until("the node is being removed", NOTICED, |world| is_going(world, &claim)).await;
}
