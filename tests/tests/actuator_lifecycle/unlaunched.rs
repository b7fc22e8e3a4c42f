//! Claims that are deleted before they have an instance (safety rule 14), and drift of claims without one.

use plimsoll_model::catalog::CapacityType;
use plimsoll_sim::apiserver::faults::{Effect as ApiEffect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{Part, Store, Write};
use plimsoll_sim::apiserver::{Patch, ResourceId, object};
use plimsoll_sim::cloud::{Action, Capacity, Effect, Pool};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// EC2 launches one instance of a group of two. Waits until the claim without an instance is gone. Before that, the
/// other claim and its instance may end. Returns the other claim.
async fn until_the_other_is_gone(is_ended: bool) -> (FakeWatcher, String) {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    watcher.world.ec2.with(|cloud, _| {
        let zones: BTreeSet<String> = cloud.subnets.values().map(|subnet| subnet.zone.clone()).collect();
        for (index, zone) in zones.iter().enumerate() {
            let capacity = Capacity::Instances(u32::from(index == 0));
            cloud.limit(Pool::new("m6i.large", zone, CapacityType::OnDemand), capacity);
        }
    });
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::Delay(Duration::from_secs(2)), 1));
    let outcomes = watcher.send(watcher.plan(&[wanted("a-1"), wanted("a-2")], Vec::new()).await).await;
    let mut claims: Vec<String> = outcomes.into_iter().filter_map(|outcome| outcome.node_claim).collect();
    claims.sort();
    let [with_instance, without] = claims.try_into().unwrap();
    // The launcher cannot end the failed claim: the finalizer stays, and its scan finds no claims.
    let faults = watcher.world.server().faults();
    faults.always(Matcher::of(Verb::List, "nodeclaims"), ApiEffect::internal_error());
    let finalizer =
        Matcher { subresource: Some(""), name: Some(without.clone()), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let rule = faults.always(finalizer, ApiEffect::internal_error());
    let is_deleting = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &without);
        claim.is_some_and(|claim| object::is_deleting(&claim))
    };
    watcher.until("the claim without an instance is deleted", MINUTE, is_deleting).await;
    let size = watcher.world.ec2.read(|cloud, _| cloud.fleets()[0].request.total_target_capacity);
    assert_eq!((size, watcher.world.living_instances().len()), (2, 1));
    if is_ended {
        let finalizers = json!({"metadata": {"finalizers": null}});
        watcher.world.patch(ResourceId::NODE_CLAIMS, &with_instance, finalizers).unwrap();
        watcher.world.delete(ResourceId::NODE_CLAIMS, &with_instance).unwrap();
        let instances: Vec<String> = watcher.world.living_instances().into_keys().collect();
        watcher.world.ec2.with(|cloud, now| cloud.terminate_instances(&instances, now));
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    watcher.world.server().faults().remove(rule);
    let reads = |world: &World| {
        world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::DescribeInstances).count())
    };
    let before = reads(&watcher.world);
    let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &without).is_none();
    // Look-ups by tag must find nothing else for two minutes, of which ten seconds have passed.
    let took = watcher.until("the claim is gone", 2 * MINUTE + Duration::from_secs(20), is_gone).await;
    assert!(took >= Duration::from_secs(109), "{took:?}");
    // One every ten seconds, and those of garbage collection.
    let made = reads(&watcher.world) - before;
    assert!(made <= 40, "{made} reads");
    (watcher, with_instance)
}

#[tokio::test(start_paused = true)]
async fn a_claim_does_not_wait_for_the_instance_of_another_claim_of_its_group() {
    let (watcher, other) = until_the_other_is_gone(false).await;
    assert!(watcher.is_kept(&other));
}

/// EC2 shows it for another hour.
#[tokio::test(start_paused = true)]
async fn a_claim_does_not_wait_for_an_instance_of_its_group_that_has_ended() {
    until_the_other_is_gone(true).await;
}

/// Somebody else wrote both conditions.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_launched_has_not_drifted() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (name, _) = watcher.node(&wanted("a-1")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let claim = watcher.claim(&name).unwrap();
    let since = &object::condition(&claim, "Launched").unwrap()["lastTransitionTime"];
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Tested", "message": "", "lastTransitionTime": since});
    let others = object::items(&claim, &["status", "conditions"]).iter().filter(|it| it["type"] != "Launched").cloned();
    let conditions: Vec<Value> =
        others.chain([condition("Launched", "Unknown"), condition("Drifted", "True")]).collect();
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let write = Write::new(watcher.world.server().now(), "test");
    let change =
        |store: &mut Store| store.patch(ResourceId::NODE_CLAIMS, "", &name, Part::Status, &patch, &write).map(drop);
    watcher.world.server().write(change).unwrap();
    let has_drifted = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &name).unwrap();
        object::condition(&claim, "Drifted").is_some()
    };
    assert!(has_drifted(&watcher.world));
    watcher.until("the condition is cleared", Duration::from_secs(20), |world| !has_drifted(world)).await;
    let claim = watcher.claim(&name).unwrap();
    assert!(!object::condition_is_true(&claim, "Launched"), "it is still not launched");
}
