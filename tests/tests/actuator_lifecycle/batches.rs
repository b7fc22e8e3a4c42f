//! Batches of TerminateInstances.

use plimsoll_sim::apiserver::faults::Gate;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, wanted};
use plimsoll_tests::{MINUTE, Setup};
use std::time::Duration;

/// More instances than one call terminates, which are 200.
const INSTANCES: usize = 250;

/// Its instances end, and the others do not wait for the answer.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_answered_delays_no_other() {
    let mut setup = Setup::default();
    // Instances without Nodes have nothing to drain.
    setup.world.boot = Duration::from_secs(3600);
    let watcher = FakeWatcher::begin(setup).await;
    let actions: Vec<String> = (0..INSTANCES).map(|number| format!("a-{number}")).collect();
    let launches: Vec<Wanted<'_>> = actions.iter().map(|action| wanted(action)).collect();
    watcher.send(watcher.plan(&launches, Vec::new()).await).await;
    let are_launched = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Launched")) == INSTANCES
    };
    watcher.until("the instances are launched", 2 * MINUTE, are_launched).await;
    // Each call is carried out, and none is answered.
    let unanswered = Effect::HoldAfter(Gate::default());
    watcher.world.ec2.faults(|faults| faults.sometimes(1000, Action::TerminateInstances, unanswered));
    for claim in watcher.world.all(ResourceId::NODE_CLAIMS) {
        watcher.world.delete(ResourceId::NODE_CLAIMS, object::name(&claim)).unwrap();
    }
    // A call times out after 8 s, and 2 s later the next one is sent.
    let limit = Duration::from_secs(15);
    watcher.until("all instances end", limit, |world| world.living_instances().is_empty()).await;
}
