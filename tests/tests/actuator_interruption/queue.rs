//! How the queue of interruptions is read.

use super::{NOTICE, begin, interrupt, is_deleting, spot, with_pods};
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::names::lease;
use plimsoll_sim::cloud::{Action, Call, Effect, Outcome};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::FakeWatcher;
use plimsoll_tests::{HOUR, MINUTE, instance_of};
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The receive calls so far.
fn receives(world: &World) -> Vec<Call> {
    let is_receive = |call: &&Call| call.action == Action::ReceiveMessage;
    world.ec2.read(|cloud, _| cloud.log.iter().filter(is_receive).cloned().collect())
}

/// Milliseconds from each of these calls to the next.
fn pauses(calls: &[Call]) -> Vec<i64> {
    calls.windows(2).map(|pair| pair[1].at.0 - pair[0].at.0).collect()
}

/// Messages of this kind that were handled with this result.
pub(super) fn handled(watcher: &FakeWatcher, kind: &str, result: &str) -> u64 {
    watcher.counted("plimsoll_actuator_interruption_messages_total", &[("kind", kind), ("result", result)])
}

fn fail_receives(watcher: &FakeWatcher, times: u32) {
    let unavailable = Effect::Refuse(CloudError::Unavailable { message: "no route to SQS".to_owned() });
    watcher.world.ec2.faults(|faults| faults.inject(Action::ReceiveMessage, unavailable, times));
}

/// A Spot node in service. Returns the name of its claim and the id of its instance.
async fn spot_node(watcher: &FakeWatcher) -> (String, String) {
    let (claim, node) = watcher.node(&spot("a-1")).await;
    (claim, instance_of(&watcher.world, &node))
}

async fn until_going(watcher: &FakeWatcher, claim: &str, limit: Duration) {
    watcher.until("the claim is on its way out", limit, |world| is_deleting(world, claim)).await;
}

/// Each call costs money, and an empty one takes 20 s.
#[tokio::test(start_paused = true)]
async fn an_empty_queue_is_read_by_one_reader() {
    let watcher = begin().await;
    tokio::time::sleep(MINUTE).await;
    let before = receives(&watcher.world).len();
    tokio::time::sleep(10 * MINUTE).await;
    let calls = receives(&watcher.world).len() - before;
    assert!((25..=35).contains(&calls), "{calls} calls in ten minutes");
}

/// The pauses double up to ten seconds, which a Spot notice can lose.
#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_read_is_tried_again_within_ten_seconds() {
    let watcher = begin().await;
    let (claim, instance) = spot_node(&watcher).await;
    fail_receives(&watcher, u32::MAX);
    tokio::time::sleep(3 * MINUTE).await;
    let calls = receives(&watcher.world);
    let refused: Vec<Call> = calls.into_iter().filter(|call| call.outcome == Outcome::Refused).collect();
    let found = pauses(&refused);
    assert!(found.len() >= 8, "{found:?}");
    for (expected, pause) in [1, 2, 4, 8].into_iter().chain(std::iter::repeat(10)).zip(&found) {
        assert_eq!((pause + 500) / 1000, expected, "{found:?}");
    }
    watcher.world.ec2.faults(|faults| faults.clear());
    tokio::time::sleep(MINUTE).await;
    let before = receives(&watcher.world).len();
    fail_receives(&watcher, 1);
    tokio::time::sleep(MINUTE).await;
    let calls = receives(&watcher.world).split_off(before);
    let refused = calls.iter().position(|call| call.outcome == Outcome::Refused).unwrap();
    assert_eq!((pauses(&calls[refused..])[0] + 500) / 1000, 1, "a later failure begins with a short pause again");
    fail_receives(&watcher, u32::MAX);
    tokio::time::sleep(MINUTE).await;
    watcher.world.ec2.faults(|faults| faults.clear());
    interrupt(&watcher, &instance);
    until_going(&watcher, &claim, 12 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_receive_call_that_is_not_answered_is_given_up() {
    let watcher = begin().await;
    let (claim, instance) = spot_node(&watcher).await;
    watcher.world.ec2.faults(|faults| faults.inject(Action::ReceiveMessage, Effect::Delay(HOUR), 1));
    // The call before has ended.
    tokio::time::sleep(21 * SECOND).await;
    interrupt(&watcher, &instance);
    until_going(&watcher, &claim, 35 * SECOND).await;
}

/// A receive call may wait for messages when the pause begins.
#[tokio::test(start_paused = true)]
async fn messages_are_left_to_karpenter_while_it_runs() {
    let watcher = begin().await;
    let (claim, instance) = spot_node(&watcher).await;
    let karpenter = |holder: &str| {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": lease::KARPENTER, "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600}});
        watcher.world.apply_object(&lease).unwrap();
    };
    let before = receives(&watcher.world).len();
    watcher.until("a receive call begins", 25 * SECOND, |world| receives(world).len() > before).await;
    karpenter("karpenter-0");
    // Its Lease is read every five seconds.
    tokio::time::sleep(6 * SECOND).await;
    interrupt(&watcher, &instance);
    tokio::time::sleep(10 * SECOND).await;
    assert!(!is_deleting(&watcher.world, &claim));
    let received = watcher.world.ec2.with(|cloud, now| cloud.queue.receive(now));
    assert_eq!(received.len(), 1, "the message is hidden from Karpenter");
    // Karpenter ends before it has deleted the message, which is visible again after 20 s. It may return for a minute.
    karpenter("");
    until_going(&watcher, &claim, NOTICE - 40 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_notice_counts_with_its_node_and_its_pods() {
    let watcher = begin().await;
    let (claim, node, instance) = with_pods(&watcher).await;
    // A static pod ends with its node, so it does not count.
    let proxy = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "proxy", "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    watcher.world.apply_object(&proxy).unwrap();
    tokio::time::sleep(2 * SECOND).await;
    interrupt(&watcher, &instance);
    until_going(&watcher, &claim, 2 * SECOND).await;
    tokio::time::sleep(2 * SECOND).await;
    let (kind, disrupted) = ("spot_interrupted", [("nodepool", "default"), ("reason", "spot_interrupted")]);
    for (name, labels, expected) in [
        ("karpenter_interruption_received_messages_total", vec![("message_type", kind)], 1),
        ("plimsoll_actuator_interruption_messages_total", vec![("kind", kind), ("result", "handled")], 1),
        ("karpenter_nodeclaims_disrupted_total", disrupted.to_vec(), 1),
        ("karpenter_pods_disruption_initiated_total", disrupted.to_vec(), 2),
    ] {
        assert_eq!(watcher.counted(name, &labels), expected, "{name}");
    }
    // The queue also has messages about instances that start. Each message is deleted once it has been handled.
    let received = watcher.counted("karpenter_interruption_received_messages_total", &[]);
    assert_eq!(watcher.counted("karpenter_interruption_deleted_messages_total", &[]), received);
}
