//! Spot interruptions: pods run until their new node is in service, and the instance is empty before it terminates,
//! also when other services are down (rule 13).

use plimsoll_model::names::label;
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::Object;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instance_of, instances_ever_launched};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

const NOTICE: Duration = Duration::from_secs(120);
/// From the launch of an instance to the start of its kubelet.
const BOOT: Duration = Duration::from_secs(20);

/// A pool of Spot nodes with four pods on two of them.
async fn cluster() -> TestCluster {
    let requirements = json!([{"key": label::CAPACITY_TYPE, "operator": "In", "values": ["spot"]},
                              {"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.large", "c6i.large"]}]);
    let cluster =
        TestCluster::begin(Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}))).await;
    cluster.deploy("web", 4, 800);
    cluster.until_running(4, 3 * MINUTE).await;
    assert_eq!(cluster.world.living_instances().len(), 2);
    cluster
}

struct Interrupted {
    instance: String,
    node: Object,
    at: Instant,
    wall: jiff::Timestamp,
    bought: usize,
}

fn interrupt(cluster: &TestCluster) -> Interrupted {
    let name = cluster.nodes_in_use().remove(0);
    let instance = instance_of(&cluster.world, &name);
    let node = cluster.world.get(ResourceId::NODES, &name).unwrap();
    assert!(cluster.world.ec2.with(|cloud, now| cloud.interrupt_spot(&instance, now)));
    let bought = instances_ever_launched(&cluster.world).len();
    Interrupted { instance, node, at: Instant::now(), wall: cluster.world.server().now(), bought }
}

impl Interrupted {
    /// Checks that the node is drained and its instance terminated before the cloud terminates it, and that all pods
    /// run at the end.
    async fn is_handled_in_time(&self, cluster: &TestCluster) {
        let name = object::name(&self.node).to_owned();
        let drained = move |world: &World| {
            world.count(ResourceId::PODS, |pod| object::text(pod, &["spec", "nodeName"]) == name) == 0
        };
        cluster.until("the node has no pods", NOTICE, drained).await;
        let id = self.instance.clone();
        cluster.until("the instance ends", NOTICE, move |world| !world.living_instances().contains_key(&id)).await;
        assert!(self.at.elapsed() < NOTICE, "{:?}", self.at.elapsed());
        cluster.until_running(4, 3 * MINUTE).await;
        let extra = instances_ever_launched(&cluster.world).len() - self.bought;
        assert_eq!(extra, 1, "exactly one replacement\n{}", cluster.summary());
    }

    /// Time from the notice to the request for the first eviction.
    fn first_eviction(&self, cluster: &TestCluster) -> Option<Duration> {
        let audit = cluster.world.server().audit();
        let evictions = audit.iter().filter(|entry| entry.verb == Verb::Create && entry.subresource == "eviction");
        evictions
            .map(|entry| entry.at)
            .find(|at| *at >= self.wall)
            .map(|at| at.duration_since(self.wall).unsigned_abs())
    }

    /// Time from the notice to the first launch.
    fn first_purchase(&self, cluster: &TestCluster) -> Option<Duration> {
        cluster.world.ec2.read(|cloud, _| {
            let notice = self.wall.as_millisecond();
            let at = cloud.fleets().iter().map(|fleet| fleet.at.0).find(|at| *at >= notice)?;
            u64::try_from(at - notice).ok().map(Duration::from_millis)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_replacement_is_bought_at_once_and_pods_move_when_it_is_in_service() {
    let cluster = cluster().await;
    let interrupted = interrupt(&cluster);
    interrupted.is_handled_in_time(&cluster).await;
    let (purchase, eviction) =
        (interrupted.first_purchase(&cluster).unwrap(), interrupted.first_eviction(&cluster).unwrap());
    assert!(purchase < Duration::from_secs(2), "{purchase:?}");
    assert!(eviction >= purchase + BOOT, "{purchase:?}, {eviction:?}");
}

#[tokio::test(start_paused = true)]
async fn the_leading_actuator_dies_right_after_the_notice() {
    let mut cluster = cluster().await;
    let interrupted = interrupt(&cluster);
    cluster.pass(Duration::from_millis(100)).await;
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    cluster.plimsoll.kill(&leader);
    interrupted.is_handled_in_time(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_notice_buys_nothing_more() {
    let cluster = cluster().await;
    let interrupted = interrupt(&cluster);
    // The queue delivers at least once.
    let body = json!({"version": "0", "id": "again", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
        "account": "123456789012", "time": "2026-01-05T00:00:00Z", "region": "us-west-2", "resources": [],
        "detail": {"instance-id": interrupted.instance, "instance-action": "terminate"}});
    for _ in 0..3 {
        let id = interrupted.instance.clone();
        cluster.world.ec2.with(|cloud, now| cloud.queue.send(&id, &body.to_string(), now));
        cluster.pass(Duration::from_secs(1)).await;
    }
    interrupted.is_handled_in_time(&cluster).await;
    cluster.pass(5 * MINUTE).await;
    assert!(cluster.world.ec2.read(|cloud, _| cloud.queue.is_empty()), "messages are deleted");
}

#[tokio::test(start_paused = true)]
async fn messages_that_are_not_for_us_are_deleted_and_change_nothing() {
    let cluster = cluster().await;
    for body in [
        "not JSON",
        "{}",
        r#"{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"i-unknown"}}"#,
    ] {
        cluster.world.ec2.with(|cloud, now| cloud.queue.send("", body, now));
    }
    cluster.pass(10 * MINUTE).await;
    assert!(cluster.world.ec2.read(|cloud, _| cloud.queue.is_empty()));
    assert_eq!(cluster.world.running_pods(), 4);
    assert_eq!(instances_ever_launched(&cluster.world).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_watchers_the_actuator_buys_one_like_it() {
    let mut cluster = cluster().await;
    cluster.plimsoll.kill_all(Role::Watcher);
    let interrupted = interrupt(&cluster);
    interrupted.is_handled_in_time(&cluster).await;
    let eviction = interrupted.first_eviction(&cluster).unwrap();
    let purchase = interrupted.first_purchase(&cluster).unwrap();
    assert!(purchase < Duration::from_secs(10), "the launch does not wait for a plan: {purchase:?}");
    assert!(eviction >= purchase + BOOT, "the pods wait for the replacement: {purchase:?}, {eviction:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_fit_another_node_move_without_a_replacement() {
    let cluster = cluster().await;
    // Three of five pods are deleted: a node with two pods has capacity for the two pods on another node.
    cluster.scale("web", 6);
    cluster.until_running(6, 3 * MINUTE).await;
    cluster.scale("web", 2);
    cluster.until_running(2, MINUTE).await;
    let nodes = cluster.nodes_in_use();
    let bought = instances_ever_launched(&cluster.world).len();
    let name = nodes.first().unwrap().clone();
    let instance = instance_of(&cluster.world, &name);
    assert!(cluster.world.ec2.with(|cloud, now| cloud.interrupt_spot(&instance, now)));
    let took = cluster
        .until("the pods run elsewhere", NOTICE, move |world| {
            world.running_pods() == 2
                && world.count(ResourceId::PODS, |pod| object::text(pod, &["spec", "nodeName"]) == name) == 0
        })
        .await;
    assert!(took < BOOT, "{took:?}");
    assert_eq!(instances_ever_launched(&cluster.world).len(), bought);
}

#[tokio::test(start_paused = true)]
async fn pods_without_room_run_for_as_long_as_they_can() {
    let cluster = cluster().await;
    cluster.world.patch(ResourceId::NODE_POOLS, "default", json!({"spec": {"limits": {"cpu": "4"}}})).unwrap();
    let interrupted = interrupt(&cluster);
    // Their grace period of 30 s and a margin remain.
    cluster.pass(NOTICE - Duration::from_secs(45)).await;
    assert_eq!(cluster.world.running_pods(), 4, "{}", cluster.summary());
    let name = object::name(&interrupted.node).to_owned();
    let stopped =
        move |world: &World| world.count(ResourceId::PODS, |pod| object::text(pod, &["spec", "nodeName"]) == name) == 0;
    cluster.until("the pods stop in time", Duration::from_secs(40), stopped).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), interrupted.bought);
}
