//! Nodes that register and are never initialized, because a startup taint stays; taints that the NodePool forgets.

use plimsoll_sim::apiserver::store::Object;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};

/// A pool whose nodes wait for an agent that the cluster lacks.
async fn with_startup_taint() -> TestCluster {
    let startup_taints = json!([{"key": "example.com/agent", "effect": "NoSchedule"}]);
    TestCluster::begin(Setup::with_pool(json!({"template": {"spec": {"startupTaints": startup_taints}}}))).await
}

fn nodes(world: &World) -> Vec<Object> {
    let mut nodes = world.all(ResourceId::NODES);
    nodes.sort_by_key(|node| object::text(node, &["metadata", "creationTimestamp"]).to_owned());
    nodes
}

/// What the agent does in the end.
fn remove_startup_taint(world: &World, node: &Object) {
    let taints = json!({"spec": {"taints": null}});
    world.patch(ResourceId::NODES, object::name(node), taints).unwrap();
}

fn is_timed_out(claim: &Value) -> bool {
    object::condition_is_true(claim, "InitializationTimedOut")
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_another_node_if_its_first_is_not_initialized_in_time() {
    let cluster = with_startup_taint().await;
    cluster.deploy("web", 1, 500);
    let took = cluster.until("a second node registers", 20 * MINUTE, |world| nodes(world).len() == 2).await;
    assert!(took >= 15 * MINUTE, "after a quarter of an hour, not {took:?}");
    let [first, second] = &nodes(&cluster.world)[..] else { panic!("two nodes") };
    remove_startup_taint(&cluster.world, second);
    cluster.until_running(1, MINUTE).await;
    assert_eq!(cluster.nodes_in_use(), [object::name(second)]);
    let claims = cluster.claims();
    let [late] = &claims.iter().filter(|claim| is_timed_out(claim)).collect::<Vec<_>>()[..] else { panic!("one") };
    assert_eq!(object::text(late, &["status", "nodeName"]), object::name(first));
    let events = cluster.world.events_of("NodeClaim", object::name(late));
    let expected = "Node is not initialized after 15 minutes: startup taint example.com/agent:NoSchedule is still";
    assert!(events.iter().any(|event| event.contains("NodeClaimTimedOut") && event.contains(expected)), "{events:?}");

    // The agent comes late: the node is one like any other, and is not needed any more.
    remove_startup_taint(&cluster.world, first);
    cluster
        .until("no claim is timed out", MINUTE, |world| world.count(ResourceId::NODE_CLAIMS, is_timed_out) == 0)
        .await;
    cluster.until("the empty node is removed", 10 * MINUTE, |world| world.living_instances().len() == 1).await;
    cluster.until_running(1, MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 2, "{}", cluster.summary());
}

/// Nodes register within a minute, so launches fail after 16 minutes. The pauses between are 1 s, 15 and 30 minutes,
/// and then an hour: launches at 0, 16, 47 and 93 minutes, and the fifth after 169.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_never_initialized_are_bought_less_and_less_often() {
    let cluster = with_startup_taint().await;
    cluster.deploy("web", 1, 500);
    let launched = |cluster: &TestCluster| instances_ever_launched(&cluster.world).len();
    cluster.pass(40 * MINUTE).await;
    assert_eq!(launched(&cluster), 2, "{}", cluster.summary());
    cluster.pass(80 * MINUTE).await;
    assert_eq!(launched(&cluster), 4, "{}", cluster.summary());
    assert_eq!(cluster.world.living_instances().len(), 4, "pods may run there, so none is deleted");

    // Any of them may still come into service: nothing more is launched.
    remove_startup_taint(&cluster.world, &nodes(&cluster.world)[0]);
    cluster.until_running(1, MINUTE).await;
    cluster.pass(10 * MINUTE).await;
    assert_eq!(launched(&cluster), 4, "{}", cluster.summary());
}

/// The condition tells a new leader that the node is not waited for.
#[tokio::test(start_paused = true)]
async fn a_new_leader_does_not_wait_for_the_node_again() {
    let mut cluster = with_startup_taint().await;
    cluster.deploy("web", 1, 500);
    cluster
        .until("the node is given up", 20 * MINUTE, |world| world.count(ResourceId::NODE_CLAIMS, is_timed_out) == 1)
        .await;
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    cluster.plimsoll.kill(&leader);
    cluster.until("a second node registers", 3 * MINUTE, |world| nodes(world).len() == 2).await;
    cluster.pass(10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 2, "{}", cluster.summary());
}

/// The taint of an agent that the NodePool does not declare. The agent adds it when the Node registers.
async fn with_undeclared_taint() -> (TestCluster, Object) {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until("a node registers", 5 * MINUTE, |world| nodes(world).len() == 1).await;
    let node = nodes(&cluster.world).remove(0);
    let mut taints = object::items(&node, &["spec", "taints"]).to_vec();
    taints.push(json!({"key": "example.com/agent", "effect": "NoSchedule"}));
    cluster.world.patch(ResourceId::NODES, object::name(&node), json!({"spec": {"taints": taints}})).unwrap();
    (cluster, node)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_bought_while_an_undeclared_taint_is_on_a_new_node() {
    let (cluster, node) = with_undeclared_taint().await;
    cluster.pass(4 * MINUTE).await;
    let claims = cluster.claims();
    let [claim] = &claims[..] else { panic!("one claim: {}", cluster.summary()) };
    assert!(!object::condition_is_true(claim, "Initialized"), "{}", cluster.summary());
    let events = cluster.world.events_of("NodeClaim", object::name(claim));
    assert!(events.iter().any(|event| event.contains("UndeclaredTaint")), "{events:?}");
    remove_startup_taint(&cluster.world, &node);
    cluster.until_running(1, MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn an_undeclared_taint_that_stays_counts_after_five_minutes() {
    let (cluster, _) = with_undeclared_taint().await;
    let launched = |world: &World| instances_ever_launched(world).len();
    let took = cluster.until("a second node is launched", 10 * MINUTE, |world| launched(world) == 2).await;
    assert!(took >= 5 * MINUTE, "{took:?}");
    cluster.until_running(1, 3 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 2, "{}", cluster.summary());
}
