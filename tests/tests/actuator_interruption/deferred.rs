//! Notices for instances that no claim knows yet.

use super::{is_deleting, spot};
use plimsoll_model::catalog::CapacityType;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect as CloudEffect};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted};
use plimsoll_tests::{HOUR, Setup};
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
