//! New leaders that find an interrupted claim whose pods no plan covers.

use super::{begin, begin_with, interrupt, is_deleting, recommend_rebalance, spot, with_pods};
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::annotation;
use plimsoll_model::time::Millis;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::{Options, Role};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted};
use plimsoll_tests::{MINUTE, instances_ever_launched};
use serde_json::json;
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

/// The former leader keeps the notice in memory until the claim knows its instance, and the queue for the next one.
#[tokio::test(start_paused = true)]
async fn a_new_leader_gets_a_notice_that_the_former_one_could_not_act_on_yet() {
    let mut watcher = begin_with(Options { act_on_rebalance: true, ..Options::default() }).await;
    let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let rule = watcher.world.server().faults().always(status, Effect::internal_error());
    let plan = watcher.plan(&[spot("a-1")], Vec::new()).await;
    watcher.send(plan).await;
    watcher.until("the instance is launched", MINUTE, |world| world.living_instances().len() == 1).await;
    let instance = watcher.world.living_instances().into_keys().next().unwrap();
    recommend_rebalance(&watcher, &instance);
    tokio::time::sleep(Duration::from_secs(5)).await;
    watcher.replace_actuator();
    watcher.world.server().faults().remove(rule);
    watcher
        .until("the claim is on its way out", 3 * MINUTE, |world| {
            world.all(ResourceId::NODE_CLAIMS).iter().all(|claim| object::is_deleting(claim))
        })
        .await;
}

/// An interrupted node whose drain ends before the new leader may launch. Returns the names of claim and instance.
async fn drained_by_a_new_leader(watcher: &mut FakeWatcher) -> (String, String) {
    let (claim, _, instance) = with_pods(watcher).await;
    watcher.world.ec2.with(|cloud, _| cloud.settings.shutdown = Millis(0));
    interrupt(watcher, &instance);
    let is_draining = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim);
        claim.is_some_and(|claim| object::condition(&claim, "Drained").is_some())
    };
    watcher.until("the drain begins", Duration::from_secs(2), is_draining).await;
    watcher.replace_actuator();
    let leads = |_: &World| watcher.plimsoll.leader(Role::Actuator).is_some();
    watcher.until("the new actuator leads", MINUTE, leads).await;
    // It finds out that the pods need a replacement.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for pod in watcher.world.all(ResourceId::PODS) {
        watcher.world.delete(ResourceId::PODS, object::name(&pod)).unwrap();
    }
    (claim, instance)
}

#[tokio::test(start_paused = true)]
async fn a_claim_stays_until_a_new_leader_may_request_its_replacement() {
    let mut watcher = begin().await;
    let (claim, instance) = drained_by_a_new_leader(&mut watcher).await;
    let has_ended = |world: &World| !world.living_instances().contains_key(&instance);
    watcher.until("the instance has ended", Duration::from_secs(5), has_ended).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 1, "calls of the former leader may still take effect");
    let is_replaced = |world: &World| instances_ever_launched(world).len() == 2;
    watcher.until("a replacement is launched", Duration::from_secs(20), is_replaced).await;
    let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    watcher.until("the old claim is deleted", MINUTE, is_gone).await;
}

/// The plan has a node for the pods that came in place of those of the old node, whose drain ends after the plan.
#[tokio::test(start_paused = true)]
async fn a_plan_that_comes_before_the_delayed_replacement_prevents_it() {
    let mut watcher = begin().await;
    let (claim, _) = drained_by_a_new_leader(&mut watcher).await;
    // No drain ends while the pods cannot be listed.
    let lists = Matcher { client: Some(watcher.actuator()), ..Matcher::of(Verb::List, "pods") };
    let rule = watcher.world.server().faults().always(lists, Effect::internal_error());
    watcher.until("new pods wait", Duration::from_secs(5), |world| world.pending_pods() == 2).await;
    let wanted = Wanted { pods: watcher.pods_on(""), ..spot("b-1") };
    let outcomes = watcher.send(watcher.plan(&[wanted], Vec::new()).await).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
    watcher.world.server().faults().remove(rule);
    let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    watcher.until("the old claim is deleted", 2 * MINUTE, is_gone).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 2, "the old instance and that of the plan");
}

/// The delay is longer than the time within which a replacement is launched.
#[tokio::test(start_paused = true)]
async fn a_termination_delay_does_not_delay_the_replacement() {
    let mut watcher = begin().await;
    let delay = json!({"metadata": {"annotations": {annotation::TERMINATION_DELAY: "5m"}}});
    watcher.world.patch(ResourceId::NODE_POOLS, "default", delay).unwrap();
    drained_by_a_new_leader(&mut watcher).await;
    let is_replaced = |world: &World| instances_ever_launched(world).len() == 2;
    watcher.until("a replacement is launched", Duration::from_secs(30), is_replaced).await;
}
