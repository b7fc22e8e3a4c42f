//! Rollouts of pools whose limits or replicas leave no room for another node, and of static pools with room.

use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::{HOUR, MINUTE, Setup, TestCluster, instances_ever_launched, limit_disruptions};
use serde_json::{Value, json};
use std::cell::Cell;

/// Nodes of the pool. Each runs one pod.
const NODES: usize = 4;
/// Nodes, and pods, that the budgets let go at the same time.
const BUDGET: usize = 2;

/// A pool in which all nodes are in use.
async fn pool_of(mut spec: Value) -> TestCluster {
    let types = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}]);
    spec["template"] = json!({"spec": {"requirements": types}});
    spec["disruption"] = json!({"consolidateAfter": "Never", "budgets": [{"nodes": BUDGET.to_string()}]});
    let cluster = TestCluster::begin(Setup::with_pool(spec)).await;
    limit_disruptions(&cluster.world, "maxUnavailable", BUDGET);
    cluster.deploy("web", u32::try_from(NODES).unwrap(), 3000);
    cluster.until_running(NODES, 5 * MINUTE).await;
    cluster
}

/// What the most and the fewest were during a rollout.
struct Course {
    most_instances: usize,
    fewest_pods: usize,
}

/// Changes the template, and waits until all nodes have the new one and run all pods.
async fn roll(cluster: &TestCluster) -> Course {
    let template = json!({"spec": {"template": {"metadata": {"labels": {"revision": "b"}}}}});
    cluster.world.patch(ResourceId::NODE_POOLS, "default", template).unwrap();
    let (most, fewest) = (Cell::new(0), Cell::new(NODES));
    let is_replaced = |world: &World| {
        most.set(most.get().max(world.living_instances().len()));
        fewest.set(fewest.get().min(world.running_pods()));
        let is_new = |claim: &Value| object::label(claim, "revision") == Some("b");
        let (all, new) = (world.count(ResourceId::NODE_CLAIMS, |_| true), world.count(ResourceId::NODE_CLAIMS, is_new));
        all == NODES && new == NODES && world.running_pods() == NODES
    };
    cluster.until("all nodes have the new template", HOUR, is_replaced).await;
    cluster.pass(10 * MINUTE).await;
    assert_eq!(
        instances_ever_launched(&cluster.world).len(),
        2 * NODES,
        "one successor per node: {}",
        cluster.summary()
    );
    assert_eq!(cluster.world.running_pods(), NODES);
    Course { most_instances: most.get(), fewest_pods: fewest.get() }
}

#[tokio::test(start_paused = true)]
async fn a_pool_at_its_limits_removes_drifted_nodes_first() {
    let cluster = pool_of(json!({"limits": {"cpu": (4 * NODES).to_string()}})).await;
    let course = roll(&cluster).await;
    assert_eq!(course.most_instances, NODES, "the limit holds");
    assert!(course.fewest_pods >= NODES - BUDGET, "{} pods ran", course.fewest_pods);
}

#[tokio::test(start_paused = true)]
async fn a_static_pool_gets_the_successor_first() {
    let cluster = pool_of(json!({"replicas": NODES})).await;
    let course = roll(&cluster).await;
    assert!((NODES + 1..=NODES + BUDGET).contains(&course.most_instances), "{} instances", course.most_instances);
    assert!(course.fewest_pods >= NODES - BUDGET, "{} pods ran", course.fewest_pods);
}

#[tokio::test(start_paused = true)]
async fn a_static_pool_at_its_limit_of_nodes_removes_drifted_nodes_first() {
    let cluster = pool_of(json!({"replicas": NODES, "limits": {"nodes": NODES.to_string()}})).await;
    let course = roll(&cluster).await;
    assert_eq!(course.most_instances, NODES, "the limit holds");
    assert!(course.fewest_pods >= NODES - BUDGET, "{} pods ran", course.fewest_pods);
}
