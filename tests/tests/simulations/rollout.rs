//! Rollouts: a canary of a new revision must prove itself before the other drifted nodes of a pool are replaced.

use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Capacity, Pool};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{HOUR, MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A pool of this many nodes with one pod each. The budget is all nodes.
async fn pool_of(nodes: u32) -> TestCluster {
    let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}]);
    let spec =
        json!({"template": {"spec": {"requirements": requirements}}, "disruption": {"budgets": [{"nodes": "100%"}]}});
    let cluster = TestCluster::begin(Setup::with_pool(spec)).await;
    cluster.deploy("web", nodes, 3000);
    cluster.until_running(nodes as usize, 3 * MINUTE).await;
    cluster
}

/// Changes the template, so that all nodes drift.
fn change_template(cluster: &TestCluster, label: &str) {
    let template = json!({"spec": {"template": {"metadata": {"labels": {"revision": label}}}}});
    cluster.world.patch(ResourceId::NODE_POOLS, "default", template).unwrap();
}

fn annotate(cluster: &TestCluster, key: &str, value: &Value) {
    let annotations = json!({"metadata": {"annotations": {key: value}}});
    cluster.world.patch(ResourceId::NODE_POOLS, "default", annotations).unwrap();
}

fn launched(world: &World) -> usize {
    instances_ever_launched(world).len()
}

/// Nodes that have or had the label.
fn of_revision(world: &World, label: &str) -> usize {
    world.count(ResourceId::NODE_CLAIMS, |claim| object::label(claim, "revision") == Some(label))
}

fn all_are(world: &World, label: &str, nodes: usize) -> bool {
    of_revision(world, label) == nodes
        && world.all(ResourceId::NODE_CLAIMS).len() == nodes
        && world.running_pods() == nodes
}

/// Status, reason and message of the pool's condition.
fn progressing(world: &World) -> (String, String, String) {
    let pool = world.get(ResourceId::NODE_POOLS, "default").unwrap();
    let mut conditions = object::items(&pool, &["status", "conditions"]).iter();
    let text = |it: &Value, field| object::text(it, &[field]).to_owned();
    let shown = conditions.find(|it| object::text(it, &["type"]) == "RolloutProgressing");
    shown.map(|it| (text(it, "status"), text(it, "reason"), text(it, "message"))).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn one_node_goes_first_and_the_rest_together() {
    let cluster = pool_of(10).await;
    change_template(&cluster, "b");
    cluster.until("the canary boots", 2 * MINUTE, |world| launched(world) == 11).await;
    let in_service = |world: &World| {
        assert!(launched(world) <= 11, "more than the canary is launched");
        world.count(ResourceId::NODE_CLAIMS, |claim| {
            object::label(claim, "revision") == Some("b") && object::condition_is_true(claim, "Initialized")
        }) == 1
    };
    cluster.until("the canary is in service", 3 * MINUTE, in_service).await;
    assert_eq!(progressing(&cluster.world).1, "CanaryPending", "{:?}", progressing(&cluster.world));
    let took = cluster.until("all nodes are new", HOUR, |world| all_are(world, "b", 10)).await;
    assert!(took < 10 * MINUTE, "the rest is replaced together, not one by one: {took:?}");
    assert_eq!(launched(&cluster.world), 20, "{}", cluster.summary());
    cluster.until("the condition is gone", 2 * MINUTE, |world| progressing(world).1.is_empty()).await;
}

/// A new image whose instances never become Nodes.
#[tokio::test(start_paused = true)]
async fn a_bad_image_costs_no_node_and_halts_the_rollout() {
    let cluster = pool_of(30).await;
    let before: Vec<String> = cluster.world.living_instances().into_keys().collect();
    let images = cluster.world.ec2.with(|cloud, now| {
        let known: Vec<String> = cloud.images.keys().cloned().collect();
        cloud.release_images("v20260101", now);
        cloud.images.keys().filter(|id| !known.contains(id)).cloned().collect::<Vec<_>>()
    });
    cluster.world.ec2.faults(|faults| faults.break_images(images));
    cluster.until("the canary is launched", 20 * MINUTE, |world| launched(world) == 31).await;
    cluster.until("the rollout halts", HOUR, |world| progressing(world).1 == "CanaryFailed").await;
    let (status, _, message) = progressing(&cluster.world);
    assert_eq!(status, "False");
    assert!(message.contains("its instance did not register as a Node in time"), "{message}");
    let events = cluster.world.events_of("NodePool", "default");
    assert!(events.iter().any(|event| event.contains("RolloutHalted")), "{events:?}");
    cluster.pass(2 * HOUR).await;
    let now = cluster.world.living_instances();
    assert_eq!(before.iter().filter(|id| !now.contains_key(*id)).count(), 0, "{}", cluster.summary());
    assert!(launched(&cluster.world) <= 33, "{} instances were launched", launched(&cluster.world));
    assert_eq!(cluster.world.running_pods(), 30);

    // Another image is another revision.
    cluster.world.ec2.with(|cloud, now| cloud.release_images("v20260102", now));
    let replaced = move |world: &World| {
        let now = world.living_instances();
        before.iter().all(|id| !now.contains_key(id)) && world.running_pods() == 30
    };
    cluster.until("the good image is rolled out", 2 * HOUR, replaced).await;
}

/// Ends all instances that are launched from now on.
fn end_instances(cluster: &TestCluster, code: &'static str, message: &'static str) {
    cluster.world.ec2.with(|cloud, _| {
        for zone in ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"] {
            for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
                cloud.limit(Pool::new("m6i.xlarge", zone, capacity_type), Capacity::Ends(code, message));
            }
        }
    });
}

/// For example since the key of its volumes may not be used.
#[tokio::test(start_paused = true)]
async fn a_canary_whose_instance_ends_at_once_halts_the_rollout() {
    let cluster = pool_of(6).await;
    let message = "Client.InternalError: Client error on launch";
    end_instances(&cluster, "Client.InternalError", message);
    change_template(&cluster, "b");
    let is_told = |world: &World| progressing(world).1 == "CanaryFailed" && progressing(world).2.contains(message);
    cluster.until("the rollout halts", 10 * MINUTE, is_told).await;
    cluster.pass(HOUR).await;
    assert_eq!(progressing(&cluster.world).1, "CanaryFailed", "{:?}", progressing(&cluster.world));
    // The next launch may be admitted before the reason of the last end is read.
    let count = launched(&cluster.world);
    assert!((7..=9).contains(&count), "{count} instances were launched");
    assert_eq!(cluster.world.running_pods(), 6, "{}", cluster.summary());

    cluster.world.ec2.with(|cloud, _| cloud.limits.clear());
    annotate(&cluster, annotation::ROLLOUT_HALTED, &Value::Null);
    cluster.until("all nodes are new", HOUR, |world| all_are(world, "b", 6)).await;
}

/// EC2 is at fault, whatever it launches.
#[tokio::test(start_paused = true)]
async fn a_canary_that_ec2_ends_by_an_error_of_its_own_is_launched_again() {
    let cluster = pool_of(2).await;
    end_instances(&cluster, "Server.InternalError", "Server.InternalError: Internal error on launch");
    change_template(&cluster, "b");
    cluster.until("two canaries are launched", 20 * MINUTE, |world| launched(world) >= 4).await;
    assert_eq!(progressing(&cluster.world).1, "CanaryPending", "{:?}", progressing(&cluster.world));
    cluster.world.ec2.with(|cloud, _| cloud.limits.clear());
    cluster.until("all nodes are new", HOUR, |world| all_are(world, "b", 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_the_rollout_and_its_end_resumes_it() {
    let cluster = pool_of(6).await;
    annotate(&cluster, annotation::ROLLOUT_PAUSED, &json!("true"));
    change_template(&cluster, "b");
    cluster.pass(30 * MINUTE).await;
    assert_eq!((of_revision(&cluster.world, "b"), launched(&cluster.world)), (0, 6), "{}", cluster.summary());
    assert_eq!(progressing(&cluster.world).1, "Paused");

    annotate(&cluster, annotation::ROLLOUT_PAUSED, &Value::Null);
    cluster.until("the canary is launched", 2 * MINUTE, |world| launched(world) == 7).await;
    annotate(&cluster, annotation::ROLLOUT_PAUSED, &json!("true"));
    cluster.pass(30 * MINUTE).await;
    assert_eq!(launched(&cluster.world), 7, "{}", cluster.summary());
    annotate(&cluster, annotation::ROLLOUT_PAUSED, &json!("false"));
    cluster.until("all nodes are new", HOUR, |world| all_are(world, "b", 6)).await;
}

/// Replacements that have ever started.
fn started(world: &World) -> usize {
    world.server().read(|store| {
        let events = store.events_after(ResourceId::NODE_CLAIMS, 0).unwrap();
        let commanded = events.filter(|event| object::annotation(&event.object, annotation::REMOVAL).is_some());
        commanded.map(|event| object::uid(&event.object).to_owned()).collect::<BTreeSet<String>>().len()
    })
}

/// Nodes are replaced one after the other, and the pause comes at the moment at which the next one is due.
#[tokio::test(start_paused = true)]
async fn a_pause_holds_within_a_second() {
    let cluster = pool_of(8).await;
    let budgets = json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}});
    cluster.world.patch(ResourceId::NODE_POOLS, "default", budgets).unwrap();
    annotate(&cluster, annotation::ROLLOUT_CANARIES, &json!("0"));
    change_template(&cluster, "b");
    let is_drained = |world: &World| {
        let terminating = |claim: &Value| object::condition_is_true(claim, "InstanceTerminating");
        started(world) == 3 && world.count(ResourceId::NODE_CLAIMS, terminating) > 0
    };
    cluster.until("the third node is drained", 10 * MINUTE, is_drained).await;
    annotate(&cluster, annotation::ROLLOUT_PAUSED, &json!("true"));
    cluster.pass(Duration::from_secs(1)).await;
    let before = started(&cluster.world);
    cluster.pass(5 * MINUTE).await;
    assert_eq!(started(&cluster.world), before, "a replacement started more than a second after the pause");
    annotate(&cluster, annotation::ROLLOUT_PAUSED, &Value::Null);
    cluster.until("all nodes are new", HOUR, |world| all_are(world, "b", 8)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_annotation_holds_the_rollout_and_says_so() {
    let cluster = pool_of(2).await;
    annotate(&cluster, annotation::ROLLOUT_CANARIES, &json!("10%"));
    change_template(&cluster, "b");
    cluster.pass(20 * MINUTE).await;
    assert_eq!(launched(&cluster.world), 2, "{}", cluster.summary());
    let (status, reason, message) = progressing(&cluster.world);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidAnnotation"));
    assert!(message.contains(annotation::ROLLOUT_CANARIES), "{message}");
    annotate(&cluster, annotation::ROLLOUT_CANARIES, &json!("0"));
    cluster.until("all nodes are new", HOUR, |world| all_are(world, "b", 2)).await;
}

/// Each service dies while the canary boots and while the rest is replaced.
#[tokio::test(start_paused = true)]
async fn a_rollout_survives_the_end_of_each_service() {
    let mut cluster = pool_of(6).await;
    change_template(&cluster, "b");
    for role in [Role::Actuator, Role::Watcher, Role::Scheduler] {
        cluster.pass(MINUTE / 2).await;
        cluster.plimsoll.replace_all(role);
    }
    cluster.until("all nodes are new", HOUR, |world| all_are(world, "b", 6)).await;
    assert_eq!(launched(&cluster.world), 12, "{}", cluster.summary());
}
