//! New leaders that find an interrupted claim whose pods no plan covers.

use super::{begin, interrupt, is_deleting, with_pods};
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, instances_ever_launched};
use std::time::Duration;

/// A new leader launches only when the old lease and the longest call are over, at least 23 s after it has started.
/// After 90 s of the notice's two minutes, a replacement would boot too late.
#[tokio::test(start_paused = true)]
async fn a_new_leader_replaces_a_node_like_for_like_only_while_there_is_time() {
    for (starts_after, launched) in [(30, 2), (70, 1)] {
        let mut watcher = begin().await;
        let (claim, _, instance) = with_pods(&watcher).await;
        interrupt(&watcher, &instance);
        let is_marked = |world: &World| is_deleting(world, &claim);
        watcher.until("the claim is on its way out", Duration::from_secs(2), is_marked).await;
        let process = watcher.plimsoll.processes(Role::Actuator).pop().unwrap();
        watcher.plimsoll.kill(&process);
        tokio::time::sleep(Duration::from_secs(starts_after)).await;
        watcher.plimsoll.start_another(Role::Actuator).unwrap();
        watcher
            .until("the old claim is deleted", 5 * MINUTE, |world| world.get(ResourceId::NODE_CLAIMS, &claim).is_none())
            .await;
        assert_eq!(instances_ever_launched(&watcher.world).len(), launched, "a leader from {starts_after} s on");
    }
}
