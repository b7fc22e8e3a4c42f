//! The leading watcher or a scheduler crashes during a scale-up, and the others continue (rules 17, 18, 21 and 25).

use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, TestCluster, claims_ever_launched, instances_ever_launched};
use std::time::Duration;

/// Pods of the burst.
const PODS: u32 = 24;

async fn all_run_and_nothing_is_left(cluster: &TestCluster) {
    cluster.until_running(PODS as usize, 10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), claims_ever_launched(&cluster.world).len());
    cluster.scale("web", 0);
    cluster.until_empty(15 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), claims_ever_launched(&cluster.world).len());
}

#[tokio::test(start_paused = true)]
async fn the_leading_watcher_dies() {
    let mut cluster = TestCluster::usual().await;
    cluster.deploy("web", PODS, 700);
    cluster.until("some claims are written", 2 * MINUTE, |world| !claims_ever_launched(world).is_empty()).await;
    let leader = cluster.plimsoll.leader(Role::Watcher).unwrap();
    cluster.plimsoll.kill(&leader);
    all_run_and_nothing_is_left(&cluster).await;
    assert_ne!(cluster.plimsoll.leader(Role::Watcher), Some(leader));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_is_cut_off_and_comes_back_drives_no_more() {
    let cluster = TestCluster::usual().await;
    let old = cluster.plimsoll.leader(Role::Watcher).unwrap();
    cluster.deploy("web", PODS / 2, 700);
    cluster.pass(Duration::from_millis(300)).await;
    cluster.plimsoll.isolate(&old);
    cluster.pass(MINUTE).await;
    assert_ne!(cluster.plimsoll.leader(Role::Watcher), Some(old.clone()));
    cluster.scale("web", PODS);
    cluster.plimsoll.heal(&old);
    all_run_and_nothing_is_left(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn one_scheduler_dies_and_then_the_other_and_both_come_back() {
    let mut cluster = TestCluster::usual().await;
    cluster.deploy("web", PODS / 2, 700);
    cluster.pass(Duration::from_millis(200)).await;
    let schedulers = cluster.plimsoll.processes(Role::Scheduler);
    cluster.plimsoll.kill(&schedulers[0]);
    cluster.until_running(PODS as usize / 2, 5 * MINUTE).await;
    cluster.plimsoll.replace(&schedulers[1]).unwrap();
    cluster.scale("web", PODS);
    all_run_and_nothing_is_left(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_scheduler_delays_a_plan_by_less_than_a_few_seconds() {
    let cluster = TestCluster::usual().await;
    for scheduler in cluster.plimsoll.processes(Role::Scheduler).iter().take(1) {
        cluster.plimsoll.isolate(scheduler);
    }
    cluster.deploy("web", 1, 700);
    let bought = |world: &plimsoll_sim::world::World| !instances_ever_launched(world).is_empty();
    let took = cluster.until("an instance is launched", MINUTE, bought).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn all_die_at_once_and_are_replaced() {
    let mut cluster = TestCluster::usual().await;
    cluster.deploy("web", PODS, 700);
    cluster.pass(Duration::from_secs(1)).await;
    for role in [Role::Watcher, Role::Scheduler, Role::Actuator] {
        cluster.plimsoll.replace_all(role);
    }
    all_run_and_nothing_is_left(&cluster).await;
}
