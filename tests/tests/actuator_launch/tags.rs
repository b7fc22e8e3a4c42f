//! Tags of instances that are written after their launch.

use plimsoll_actuator::ports::{CloudError, ZonalShift};
use plimsoll_model::names::{annotation, tag};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;
use std::time::Duration;

fn is_tagged(world: &World, claim: &str) -> bool {
    let claim = world.get(ResourceId::NODE_CLAIMS, claim);
    claim.is_some_and(|claim| object::annotation(&claim, annotation::TAGGED).is_some())
}

#[tokio::test(start_paused = true)]
async fn an_instance_has_the_name_of_its_node_unless_its_class_gives_it_another() {
    for own in [None, Some("mine")] {
        let watcher = FakeWatcher::start(Setup::default());
        if let Some(name) = own {
            let tags = json!({"spec": {"tags": {"Name": name}}});
            watcher.world.patch(ResourceId::EC2_NODE_CLASSES, "default", tags).unwrap();
        }
        let is_ready = |world: &World| {
            world.get(ResourceId::NODE_POOLS, "default").is_some_and(|pool| object::condition_is_true(&pool, "Ready"))
        };
        watcher.until("the pool is Ready", 2 * MINUTE, is_ready).await;
        let (claim, node) = watcher.node(&wanted("a-1")).await;
        watcher.until("its instance is tagged", MINUTE, |world| is_tagged(world, &claim)).await;
        let tags = watcher.world.living_instances().into_values().next().unwrap().tags;
        assert_eq!(tags["Name"], own.unwrap_or(&node), "{tags:?}");
        assert_eq!(tags[tag::NODE_CLAIM], claim);
        assert_eq!(tags[tag::NODE_CLAIM_UID], object::uid(&watcher.claim(&claim).unwrap()));
    }
}

/// Nothing is changed in the zone that the cluster is shifted away from.
#[tokio::test(start_paused = true)]
async fn instances_of_a_shifted_zone_are_tagged_after_the_shift() {
    let options = Options { zonal_shift: true, ..Options::default() };
    let watcher = FakeWatcher::begin(Setup { options, ..Setup::default() }).await;
    watcher.world.ec2.faults(|faults| {
        faults.inject(Action::CreateTags, Effect::Refuse(CloudError::Throttled), u32::MAX);
    });
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    let zone = watcher.world.living_instances().into_values().next().unwrap().zone;
    watcher.world.ec2.with(|cloud, _| {
        let subnet = cloud.subnets.values().find(|subnet| subnet.zone == zone).unwrap();
        cloud.zonal_shifts = vec![ZonalShift { zone_id: subnet.zone_id.clone(), expires: None }];
    });
    // The shifts are read every 30 s.
    tokio::time::sleep(MINUTE).await;
    watcher.world.ec2.faults(|faults| faults.clear());
    tokio::time::sleep(5 * MINUTE).await;
    assert!(!is_tagged(&watcher.world, &claim));
    watcher.world.ec2.with(|cloud, _| cloud.zonal_shifts.clear());
    watcher.until("the instance is tagged", 3 * MINUTE, |world| is_tagged(world, &claim)).await;
}

/// Each call counts towards the rate limit of EC2.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_instance_is_tagged_may_change_without_another_call() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    watcher.until("its instance is tagged", MINUTE, |world| is_tagged(world, &claim)).await;
    // The watch shows it by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let calls =
        || watcher.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::CreateTags).count());
    let before = calls();
    let changed = json!({"metadata": {"annotations": {"example.com/changed": "true"}}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, changed).unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(calls(), before);
}
