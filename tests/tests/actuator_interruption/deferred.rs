//! Notices for instances that no claim knows yet.

use super::{begin, is_deleting, queue, spot, waiting_messages};
use plimsoll_model::catalog::CapacityType;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect as CloudEffect};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted};
use plimsoll_tests::{HOUR, MINUTE, Setup};
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A change of state is deleted from the queue when it is deferred. The claim, which would cause another look at it,
/// does not change while its instance boots.
#[tokio::test(start_paused = true)]
async fn a_deferred_notice_that_failed_is_retried() {
    let mut setup = Setup::default();
    setup.world.boot = HOUR;
    let watcher = FakeWatcher::begin(setup).await;
    let gate = Gate::default();
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, CloudEffect::HoldAfter(gate.clone()), 1));
    let wanted = Wanted { capacity_type: CapacityType::OnDemand, ..spot("a-1") };
    let outcomes = watcher.send(watcher.plan(&[wanted], Vec::new()).await).await;
    let claim = outcomes[0].node_claim.clone().unwrap();
    gate.reached(1).await;
    tokio::time::sleep(SECOND).await;
    let instance = watcher.world.living_instances().into_keys().next().unwrap();
    let body = json!({"version": "0", "source": "aws.ec2", "time": watcher.world.server().now().to_string(),
        "detail-type": "EC2 Instance State-change Notification",
        "detail": {"instance-id": instance, "state": "stopping"}});
    watcher.world.ec2.with(|cloud, now| cloud.queue.send(&instance, &body.to_string(), now));
    tokio::time::sleep(SECOND).await;
    // The actuator sees the instance in its claim one second later than the test does.
    let faults = watcher.world.server().faults();
    faults.lag_watches(watcher.plimsoll.processes(Role::Actuator).remove(0), SECOND);
    gate.open();
    let has_instance = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim);
        claim.is_some_and(|claim| !object::text(&claim, &["status", "providerID"]).is_empty())
    };
    watcher.until("the claim has its instance", SECOND, has_instance).await;
    let mark = Matcher { subresource: Some(""), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let refused = faults.always(mark, Effect::internal_error());
    tokio::time::sleep(5 * SECOND).await;
    assert!(!is_deleting(&watcher.world, &claim));
    faults.remove(refused);
    watcher.until("the claim is on its way out", 15 * SECOND, |world| is_deleting(world, &claim)).await;
}

const SPOT: &str = "EC2 Spot Instance Interruption Warning";
const REBALANCE: &str = "EC2 Instance Rebalance Recommendation";
const STATE_CHANGE: &str = "EC2 Instance State-change Notification";

/// Puts a message of this kind about an instance into the queue that was sent this long ago.
fn send(watcher: &FakeWatcher, kind: &str, instance: &str, ago: Duration) {
    let sent = watcher.world.server().now() - ago;
    let body = json!({"version": "0", "source": "aws.ec2", "time": sent.to_string(), "detail-type": kind,
        "detail": {"instance-id": instance, "state": "stopping"}});
    watcher.world.ec2.with(|cloud, now| cloud.queue.send(instance, &body.to_string(), now));
}

/// Messages of others about Spot instances, with and without a warning of the end.
fn send_of_others(watcher: &FakeWatcher) {
    send(watcher, SPOT, "i-0000000000000000a", Duration::ZERO);
    send(watcher, SPOT, "i-0000000000000000b", 3 * MINUTE);
    send(watcher, REBALANCE, "i-0000000000000000c", Duration::ZERO);
    send(watcher, STATE_CHANGE, "i-0000000000000000d", Duration::ZERO);
}

/// Launches an instance that its claim does not get to know.
async fn launch_unknown(watcher: &FakeWatcher) {
    let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    watcher.world.server().faults().always(status, Effect::internal_error());
    // Only the messages of the test are in the queue.
    watcher.world.ec2.with(|cloud, _| cloud.settings.tells_states = false);
    watcher.send(watcher.plan(&[spot("a-1")], Vec::new()).await).await;
    watcher.until("the instance is launched", MINUTE, |world| world.living_instances().len() == 1).await;
}

/// For two minutes after it was sent, a notice may be about a claim that awaits its instance. A recommendation is not
/// acted on here, and what a change of state tells, the garbage collector finds.
#[tokio::test(start_paused = true)]
async fn only_a_recent_notice_is_kept_and_only_while_a_claim_awaits_its_instance() {
    let watcher = begin().await;
    send_of_others(&watcher);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(waiting_messages(&watcher.world), 0, "no claim awaits its instance");
    launch_unknown(&watcher).await;
    send_of_others(&watcher);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(waiting_messages(&watcher.world), 1, "the recent Spot notice");
    let counted = |result: &str| queue::handled(&watcher, "spot_interrupted", result);
    assert_eq!((counted("kept"), counted("foreign")), (1, 3), "three of the Spot notices were not kept");
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(waiting_messages(&watcher.world), 1);
    // The queue delivers it every 20 s.
    tokio::time::sleep(40 * SECOND).await;
    assert_eq!(waiting_messages(&watcher.world), 0, "a Spot instance has ended by then");
    assert_eq!(watcher.world.living_instances().len(), 1, "the claim still awaits it");
}

/// Redeliveries of more notices would delay our own.
#[tokio::test(start_paused = true)]
async fn a_thousand_notices_are_kept_at_most() {
    let watcher = begin().await;
    launch_unknown(&watcher).await;
    for number in 0..1020 {
        send(&watcher, SPOT, &format!("i-{number:017x}"), Duration::ZERO);
    }
    tokio::time::sleep(15 * SECOND).await;
    assert_eq!(waiting_messages(&watcher.world), 1000);
}
