//! Restarted pods: the node of a pod is kept for its successor.

use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::kube::STOP_AFTER;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::json;
use std::time::Duration;

/// A cluster whose nodes are consolidated as soon as possible.
async fn without_delay() -> TestCluster {
    TestCluster::begin(Setup::with_pool(json!({"disruption": {"consolidateAfter": "0s"}}))).await
}

/// Such a cluster with a StatefulSet of one pod, which takes so long to stop. The pod has run for a minute.
async fn with_stateful_set(stop: &str) -> TestCluster {
    let cluster = without_delay().await;
    let container = json!({"name": "main", "image": "example.com/db:1", "resources": {"requests": {"cpu": "1"}}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}, "annotations": {STOP_AFTER: stop}},
            "spec": {"terminationGracePeriodSeconds": 60, "containers": [container]}}}});
    cluster.world.apply_object(&set).unwrap();
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.pass(MINUTE).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_stateful_sets_pod_that_restarts_finds_its_node_again() {
    let cluster = with_stateful_set("60s").await;
    let uid = |world: &World| world.get(ResourceId::PODS, "db-0").map(|pod| object::uid(&pod).to_owned());
    let before = uid(&cluster.world);
    cluster.world.delete(ResourceId::PODS, "db-0").unwrap();
    let back = move |world: &World| uid(world).is_some_and(|now| Some(now) != before) && world.running_pods() == 1;
    cluster.until("its successor runs", 5 * MINUTE, back).await;
    let bought = instances_ever_launched(&cluster.world).len();
    assert_eq!(bought, 1, "{}", cluster.summary());
}

/// Time until the pod is gone, and from then to its successor, which a busy controller creates late.
#[tokio::test(start_paused = true)]
async fn a_stateful_sets_pod_that_is_created_late_finds_its_node_again() {
    for (stop, gap) in [("1s", 100), ("5s", 400), ("60s", 1500)] {
        let cluster = with_stateful_set(stop).await;
        let scale = |replicas: u32| {
            let patch = json!({"spec": {"replicas": replicas}});
            cluster.world.patch(ResourceId::STATEFUL_SETS, "db", patch).unwrap();
        };
        scale(0);
        cluster.until("the pod is gone", 2 * MINUTE, |world| world.all(ResourceId::PODS).is_empty()).await;
        cluster.pass(Duration::from_millis(gap)).await;
        scale(1);
        cluster.until_running(1, 3 * MINUTE).await;
        let bought = instances_ever_launched(&cluster.world).len();
        assert_eq!(bought, 1, "{gap} ms, stopped in {stop}: {}", cluster.summary());
    }
}

/// In a rollout with `maxSurge: 0`, the successor is created once the controllers have seen that the pod is being
/// deleted.
#[tokio::test(start_paused = true)]
async fn a_deployments_pod_that_is_created_late_finds_the_node_of_the_former_one() {
    for gap in [100, 400, 1500] {
        let cluster = without_delay().await;
        cluster.deploy("web", 1, 500);
        cluster.until_running(1, 3 * MINUTE).await;
        cluster.pass(MINUTE).await;
        cluster.scale("web", 0);
        cluster.pass(Duration::from_millis(gap)).await;
        cluster.scale("web", 1);
        cluster.until_running(1, 3 * MINUTE).await;
        let bought = instances_ever_launched(&cluster.world).len();
        assert_eq!(bought, 1, "{gap} ms: {}", cluster.summary());
    }
}
