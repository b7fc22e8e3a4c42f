//! The leading watcher or a scheduler crashes during a scale-up, and the others continue (rules 17, 18, 21 and 25).

use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, Scene, claims_ever_launched, instances_ever_launched};
use std::time::Duration;

/// Pods of the burst.
const PODS: u32 = 24;

async fn all_run_and_nothing_is_left(scene: &Scene) {
    scene.until_running(PODS as usize, 10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&scene.world).len(), claims_ever_launched(&scene.world).len());
    scene.scale("web", 0);
    scene.until_empty(15 * MINUTE).await;
    assert_eq!(instances_ever_launched(&scene.world).len(), claims_ever_launched(&scene.world).len());
}

#[tokio::test(start_paused = true)]
async fn the_leading_watcher_dies() {
    let mut scene = Scene::usual().await;
    scene.deploy("web", PODS, 700);
    scene.until("some claims are written", 2 * MINUTE, |world| !claims_ever_launched(world).is_empty()).await;
    let leader = scene.plimsoll.leader(Role::Watcher).unwrap();
    scene.plimsoll.kill(&leader);
    all_run_and_nothing_is_left(&scene).await;
    assert_ne!(scene.plimsoll.leader(Role::Watcher), Some(leader));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_is_cut_off_and_comes_back_drives_no_more() {
    let scene = Scene::usual().await;
    let old = scene.plimsoll.leader(Role::Watcher).unwrap();
    scene.deploy("web", PODS / 2, 700);
    scene.pass(Duration::from_millis(300)).await;
    scene.plimsoll.isolate(&old);
    scene.pass(MINUTE).await;
    assert_ne!(scene.plimsoll.leader(Role::Watcher), Some(old.clone()));
    scene.scale("web", PODS);
    scene.plimsoll.heal(&old);
    all_run_and_nothing_is_left(&scene).await;
}

#[tokio::test(start_paused = true)]
async fn one_scheduler_dies_and_then_the_other_and_both_come_back() {
    let mut scene = Scene::usual().await;
    scene.deploy("web", PODS / 2, 700);
    scene.pass(Duration::from_millis(200)).await;
    let schedulers = scene.plimsoll.processes(Role::Scheduler);
    scene.plimsoll.kill(&schedulers[0]);
    scene.until_running(PODS as usize / 2, 5 * MINUTE).await;
    scene.plimsoll.replace(&schedulers[1]).unwrap();
    scene.scale("web", PODS);
    all_run_and_nothing_is_left(&scene).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_scheduler_delays_a_plan_by_less_than_a_few_seconds() {
    let scene = Scene::usual().await;
    for scheduler in scene.plimsoll.processes(Role::Scheduler).iter().take(1) {
        scene.plimsoll.isolate(scheduler);
    }
    scene.deploy("web", 1, 700);
    let bought = |world: &plimsoll_sim::world::World| !instances_ever_launched(world).is_empty();
    let took = scene.until("an instance is launched", MINUTE, bought).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn all_die_at_once_and_are_replaced() {
    let mut scene = Scene::usual().await;
    scene.deploy("web", PODS, 700);
    scene.pass(Duration::from_secs(1)).await;
    for role in [Role::Watcher, Role::Scheduler, Role::Actuator] {
        for process in scene.plimsoll.processes(role) {
            scene.plimsoll.replace(&process).unwrap();
        }
    }
    all_run_and_nothing_is_left(&scene).await;
}
