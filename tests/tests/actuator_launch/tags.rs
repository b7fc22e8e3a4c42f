//! Tags of instances that are written after their launch.

use plimsoll_model::names::{annotation, tag};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;

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
        let is_tagged = |world: &World| {
            let claim = world.get(ResourceId::NODE_CLAIMS, &claim);
            claim.is_some_and(|claim| object::annotation(&claim, annotation::TAGGED).is_some())
        };
        watcher.until("its instance is tagged", MINUTE, is_tagged).await;
        let tags = watcher.world.living_instances().into_values().next().unwrap().tags;
        assert_eq!(tags["Name"], own.unwrap_or(&node), "{tags:?}");
        assert_eq!(tags[tag::NODE_CLAIM], claim);
        assert_eq!(tags[tag::NODE_CLAIM_UID], object::uid(&watcher.claim(&claim).unwrap()));
    }
}
