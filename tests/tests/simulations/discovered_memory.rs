//! Nodes that have less memory than catalogs estimate: their real memory is learnt, so that a pod that fits only the
//! estimate does not cause one useless purchase after another.

use plimsoll_model::names::{DISCOVERED_MEMORY, annotation};
use plimsoll_sim::apiserver::store::{Key, Object, Write};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster};
use serde_json::{Value, json};

/// Memory of the pods. The estimate leaves 6903 MiB of an m6i.large to pods, a machine only 6703.
const REQUEST: &str = "6850Mi";
const MISSING_MIB: i64 = 200;

async fn cluster(missing_memory_mib: i64) -> TestCluster {
    let mut setup = Setup::default();
    setup.world.missing_memory_mib = missing_memory_mib;
    TestCluster::begin(setup).await
}

fn deploy(cluster: &TestCluster) {
    cluster.world.deploy("web", 1, &json!({"cpu": "500m", "memory": REQUEST}), &json!({})).unwrap();
}

/// Types of all instances that were ever launched, in order.
fn bought(world: &World) -> Vec<String> {
    world.ec2.read(|cloud, _| {
        let machines = cloud.machines();
        let ids = cloud.ever_launched().iter();
        ids.map(|id| machines.get(id).map_or_else(String::new, |machine| machine.instance_type.clone())).collect()
    })
}

fn stored(world: &World) -> Option<Object> {
    world.server().read(|store| store.find(ResourceId::CONFIG_MAPS, &Key::new(NAMESPACE, DISCOVERED_MEMORY)))
}

/// Stored entries: instance type and memory.
fn entries(world: &World) -> Vec<(String, i64)> {
    let Some(map) = stored(world) else { return Vec::new() };
    let data = map["data"].as_object().cloned().unwrap_or_default();
    let entry = |(field, text): (String, Value)| {
        let value: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        (field.split('_').next().unwrap_or_default().to_owned(), value["memoryMiB"].as_i64().unwrap())
    };
    data.into_iter().map(entry).collect()
}

/// Creates the ConfigMap as another writer would.
fn store(world: &World, annotations: &Value, data: &Value) {
    let map = json!({"metadata": {"name": DISCOVERED_MEMORY, "annotations": annotations}, "data": data});
    let write = Write::new(world.server().now(), "kubectl");
    world.server().write(|store| store.create(ResourceId::CONFIG_MAPS, NAMESPACE, map, &write)).unwrap();
}

/// Removes the pods and waits until all nodes are gone.
async fn empty(cluster: &TestCluster) {
    cluster.scale("web", 0);
    cluster.until_empty(10 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_only_the_estimate_gets_a_larger_node_at_the_second_purchase() {
    let cluster = cluster(MISSING_MIB).await;
    deploy(&cluster);
    cluster.until_running(1, 10 * MINUTE).await;
    cluster.pass(10 * MINUTE).await;
    assert_eq!(bought(&cluster.world), ["m6i.large", "m6i.xlarge"], "{}", cluster.summary());
    let estimate = |mib: i64, reserved: i64| mib - reserved - MISSING_MIB;
    let expected = [("m6i.large".to_owned(), estimate(8192, 615)), ("m6i.xlarge".to_owned(), estimate(16384, 1229))];
    assert_eq!(entries(&cluster.world), expected);
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_what_was_learnt() {
    let mut cluster = cluster(MISSING_MIB).await;
    deploy(&cluster);
    cluster.until_running(1, 10 * MINUTE).await;
    cluster.pass(2 * MINUTE).await;
    empty(&cluster).await;
    let before = stored(&cluster.world).unwrap();
    cluster.plimsoll.replace_all(Role::Actuator);
    cluster.pass(2 * MINUTE).await;
    cluster.scale("web", 1);
    cluster.until_running(1, 10 * MINUTE).await;
    cluster.pass(10 * MINUTE).await;
    assert_eq!(bought(&cluster.world), ["m6i.large", "m6i.xlarge", "m6i.xlarge"], "{}", cluster.summary());
    assert_eq!(stored(&cluster.world), Some(before), "nothing new was learnt, so nothing is written");
}

#[tokio::test(start_paused = true)]
async fn bad_entries_of_the_config_map_do_no_harm() {
    let cluster = cluster(0).await;
    let node_class = cluster.world.get(ResourceId::EC2_NODE_CLASSES, "default").unwrap();
    let image = |arch: &str| -> String {
        let amis = object::items(&node_class, &["status", "amis"]);
        let runs = |ami: &&Value| ami["requirements"].to_string().contains(arch);
        amis.iter().find(runs).map(|ami| ami["id"].as_str().unwrap().to_owned()).unwrap()
    };
    let entry = |mib: i64| json!({"v": 1, "memoryMiB": mib, "seen": "2999-01-01"}).to_string();
    let image = image("amd64");
    let owner = json!({annotation::OWNER: annotation::OWNER_VALUE});
    let data = json!({
        format!("m6i.large_{image}"): entry(1),
        format!("c6i.large_{image}"): "not JSON",
        "nonsense": entry(7000),
    });
    store(&cluster.world, &owner, &data);
    let mut cluster = cluster;
    cluster.plimsoll.replace_all(Role::Actuator);
    cluster.pass(2 * MINUTE).await;
    deploy(&cluster);
    cluster.until_running(1, 10 * MINUTE).await;
    cluster.pass(2 * MINUTE).await;
    assert_eq!(bought(&cluster.world), ["m6i.large"], "{}", cluster.summary());
    assert_eq!(entries(&cluster.world), [("m6i.large".to_owned(), 8192 - 615)], "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn a_config_map_of_somebody_else_is_not_touched() {
    let cluster = cluster(MISSING_MIB).await;
    store(&cluster.world, &json!({}), &json!({"color": "red"}));
    let theirs = stored(&cluster.world);
    deploy(&cluster);
    cluster.until_running(1, 10 * MINUTE).await;
    cluster.pass(5 * MINUTE).await;
    assert_eq!(bought(&cluster.world), ["m6i.large", "m6i.xlarge"], "{}", cluster.summary());
    assert_eq!(stored(&cluster.world), theirs);
}
