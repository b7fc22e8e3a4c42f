//! Batches of TerminateInstances.

use plimsoll_sim::apiserver::faults::Gate;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Call, Effect};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, wanted};
use plimsoll_tests::{MINUTE, Setup};
use std::time::Duration;

/// Instances without Nodes, which have nothing to drain.
async fn with_instances(count: usize) -> FakeWatcher {
    let mut setup = Setup::default();
    setup.world.boot = Duration::from_secs(3600);
    let watcher = FakeWatcher::begin(setup).await;
    let actions: Vec<String> = (0..count).map(|number| format!("a-{number}")).collect();
    let launches: Vec<Wanted<'_>> = actions.iter().map(|action| wanted(action)).collect();
    watcher.send(watcher.plan(&launches, Vec::new()).await).await;
    let are_launched = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Launched")) == count
    };
    watcher.until("the instances are launched", 2 * MINUTE, are_launched).await;
    watcher
}

fn delete_claims(watcher: &FakeWatcher) {
    for claim in watcher.world.all(ResourceId::NODE_CLAIMS) {
        watcher.world.delete(ResourceId::NODE_CLAIMS, object::name(&claim)).unwrap();
    }
}

/// Its instances end, and the others do not wait for the answer.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_answered_delays_no_other() {
    // More than one call terminates, which are 200.
    let watcher = with_instances(250).await;
    // Each call is carried out, and none is answered.
    let unanswered = Effect::HoldAfter(Gate::default());
    watcher.world.ec2.faults(|faults| faults.sometimes(1000, Action::TerminateInstances, unanswered));
    delete_claims(&watcher);
    // A call times out after 8 s, and 2 s later the next one is sent.
    let limit = Duration::from_secs(15);
    watcher.until("all instances end", limit, |world| world.living_instances().is_empty()).await;
}

/// EC2 says nothing of single instances, and smaller batches would be more calls.
#[tokio::test(start_paused = true)]
async fn a_throttled_batch_is_repeated_and_not_split() {
    let watcher = with_instances(20).await;
    watcher.world.ec2.faults(|faults| faults.throttle(Action::TerminateInstances, u32::MAX));
    delete_claims(&watcher);
    tokio::time::sleep(MINUTE).await;
    let is_termination = |call: &&Call| call.action == Action::TerminateInstances;
    let calls: Vec<Call> =
        watcher.world.ec2.read(|cloud, _| cloud.log.iter().filter(is_termination).cloned().collect());
    // One call every two seconds, and a few while the claims are being deleted.
    assert!((20..=45).contains(&calls.len()), "{} calls", calls.len());
    assert_eq!(calls.last().unwrap().about.split(' ').count(), 20);
    watcher.world.ec2.faults(|faults| faults.clear());
    watcher.until("all instances end", MINUTE, |world| world.living_instances().is_empty()).await;
}
