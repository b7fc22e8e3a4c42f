//! CapacityBuffers: capacity is launched like a node for pods, once, and stays as long as it is requested.

use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};
use std::time::Duration;

/// Creates a buffer for this number of pods with this many millicores.
fn keep_for(world: &World, name: &str, replicas: u32, millicpu: u32) {
    let requests = json!({"cpu": format!("{millicpu}m"), "memory": "1Gi"});
    let containers = json!([{"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}]);
    let template = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name},
                          "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}});
    let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
                        "metadata": {"name": name},
                        "spec": {"podTemplateRef": {"name": name}, "replicas": replicas}});
    world.apply_object(&template).unwrap();
    world.apply_object(&buffer).unwrap();
}

/// Creates a buffer for this number of pods of 3 CPUs.
fn keep(world: &World, replicas: u32) {
    keep_for(world, "spare", replicas, 3000);
}

fn bought(world: &World) -> usize {
    instances_ever_launched(world).len()
}

fn living(world: &World) -> usize {
    world.living_instances().len()
}

fn in_service(world: &World) -> usize {
    world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Initialized"))
}

/// Status and reason of a condition of the buffer.
fn condition(world: &World, name: &str) -> (String, String) {
    let buffer = world.get(ResourceId::CAPACITY_BUFFERS, "spare").unwrap();
    let conditions = object::items(&buffer, &["status", "conditions"]);
    let condition_of_type = conditions.iter().find(|condition| object::text(condition, &["type"]) == name);
    condition_of_type
        .map(|condition| ["status", "reason"].map(|field| object::text(condition, &[field]).to_owned()).into())
        .unwrap_or_default()
}

/// Objects that Plimsoll writes, with their versions. They do not change while Plimsoll does nothing.
fn versions(world: &World) -> Vec<String> {
    let kinds = [ResourceId::NODE_CLAIMS, ResourceId::NODE_POOLS, ResourceId::CAPACITY_BUFFERS, ResourceId::EVENTS];
    let version = |object: &Value| object::text(object, &["metadata", "resourceVersion"]).to_owned();
    kinds.into_iter().flat_map(|kind| world.all(kind)).map(|object| version(&object)).collect()
}

#[tokio::test(start_paused = true)]
async fn room_is_bought_once_and_then_nothing_happens() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    keep(&cluster.world, 2);
    let requests_capacity =
        |world: &World| condition(world, "Provisioning") == ("False".to_owned(), "RequiresNewCapacity".to_owned());
    cluster.until("the buffer requests capacity", MINUTE, requests_capacity).await;
    cluster.until("two nodes are in service", 5 * MINUTE, |world| in_service(world) == 2).await;
    cluster.pass(5 * MINUTE).await;
    let (yes, fits) = ("True".to_owned(), "FitsExistingCapacity".to_owned());
    assert_eq!(condition(&cluster.world, "Provisioning"), (yes.clone(), fits));
    assert_eq!(condition(&cluster.world, "ReadyForProvisioning"), (yes, "Resolved".to_owned()));
    let before = versions(&cluster.world);
    cluster.pass(60 * MINUTE).await;
    assert_eq!((bought(&cluster.world), living(&cluster.world)), (2, 2), "{}", cluster.summary());
    assert_eq!(versions(&cluster.world), before, "nothing is written about a cluster that is quiet");
    let about = |event: &Value| object::text(event, &["involvedObject", "name"]).starts_with("capacity-buffer-");
    assert_eq!(cluster.world.count(ResourceId::EVENTS, about), 0, "buffer pods have no Events");
    cluster.world.delete(ResourceId::CAPACITY_BUFFERS, "spare").unwrap();
    cluster.until_empty(10 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_takes_room_at_once_and_room_is_bought_for_the_next() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    keep(&cluster.world, 1);
    cluster.until("a node is in service", 5 * MINUTE, |world| in_service(world) == 1).await;
    cluster.pass(MINUTE).await;
    cluster.deploy("web", 1, 3000);
    let took = cluster.until_running(1, MINUTE).await;
    assert!(took < Duration::from_secs(10), "{took:?}: it need not wait for a node");
    cluster.until("another node is launched", MINUTE, |world| bought(world) == 2).await;
    cluster.pass(30 * MINUTE).await;
    assert_eq!((bought(&cluster.world), living(&cluster.world)), (2, 2), "{}", cluster.summary());
    // The pod is deleted: there is capacity for two pods, and one is requested.
    cluster.scale("web", 0);
    cluster.until("a node too many is removed", 10 * MINUTE, |world| living(world) == 1).await;
    cluster.pass(30 * MINUTE).await;
    assert_eq!((bought(&cluster.world), living(&cluster.world)), (2, 1), "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn room_that_is_on_its_way_is_a_pods_if_it_comes() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    keep(&cluster.world, 1);
    cluster.until("a node is launched", MINUTE, |world| bought(world) == 1).await;
    cluster.deploy("web", 1, 3000);
    // Long before the first node is in service: the capacity is used, although the launch was for the buffer.
    let took = cluster.until("another node is launched", MINUTE, |world| bought(world) == 2).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(in_service(&cluster.world), 0, "{}", cluster.summary());
    cluster.until_running(1, 5 * MINUTE).await;
    cluster.pass(30 * MINUTE).await;
    assert_eq!((bought(&cluster.world), living(&cluster.world)), (2, 2), "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn whoever_dies_room_is_not_bought_twice() {
    let mut cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let gate = Gate::default();
    let claims = Matcher::of(Verb::Create, "nodeclaims");
    let rule = cluster.world.server().faults().always(claims, Effect::HoldAfter(gate.clone()));
    keep(&cluster.world, 3);
    gate.reached(1).await;
    for role in [Role::Actuator, Role::Watcher] {
        let leader = cluster.plimsoll.leader(role).unwrap();
        cluster.plimsoll.kill(&leader);
    }
    cluster.world.server().faults().remove(rule);
    gate.open();
    cluster.until("three nodes are in service", 10 * MINUTE, |world| in_service(world) == 3).await;
    // The nodes are in service, and no process remembers what they are for.
    for role in [Role::Actuator, Role::Watcher] {
        cluster.plimsoll.start_another(role).unwrap();
        let leader = cluster.plimsoll.leader(role).unwrap();
        cluster.plimsoll.kill(&leader);
    }
    cluster.pass(30 * MINUTE).await;
    assert_eq!((bought(&cluster.world), living(&cluster.world)), (3, 3), "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn room_of_several_sizes_stays_as_it_was_planned() {
    let cluster = TestCluster::usual().await;
    // The pods fill a node of eight cores and one of four, but not if a large pod goes to the small node.
    let sizes = [("small", 3, 1900), ("large", 2, 2900)];
    for (name, replicas, millicpu) in sizes {
        keep_for(&cluster.world, name, replicas, millicpu);
    }
    let there = |world: &World| {
        let fits = |buffer: &Value| object::condition_is_true(buffer, "Provisioning");
        world.count(ResourceId::CAPACITY_BUFFERS, fits) == sizes.len()
    };
    cluster.until("all capacity is in service", 5 * MINUTE, there).await;
    cluster.pass(60 * MINUTE).await;
    assert_eq!((bought(&cluster.world), living(&cluster.world)), (2, 2), "{}", cluster.summary());
}
