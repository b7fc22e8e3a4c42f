//! Restarted pods: the node of a StatefulSet's pod is kept for its successor.

use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::kube::STOP_AFTER;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_stateful_sets_pod_that_restarts_finds_its_node_again() {
    let cluster = TestCluster::begin(Setup::with_pool(json!({"disruption": {"consolidateAfter": "0s"}}))).await;
    let container = json!({"name": "main", "image": "example.com/db:1", "resources": {"requests": {"cpu": "1"}}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}, "annotations": {STOP_AFTER: "60s"}},
            "spec": {"terminationGracePeriodSeconds": 60, "containers": [container]}}}});
    cluster.world.apply_object(&set).unwrap();
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.pass(MINUTE).await;
    let uid = |world: &World| world.get(ResourceId::PODS, "db-0").map(|pod| object::uid(&pod).to_owned());
    let before = uid(&cluster.world);
    cluster.world.delete(ResourceId::PODS, "db-0").unwrap();
    let back = move |world: &World| uid(world).is_some_and(|now| Some(now) != before) && world.running_pods() == 1;
    cluster.until("its successor runs", 5 * MINUTE, back).await;
    let bought = instances_ever_launched(&cluster.world).len();
    assert_eq!(bought, 1, "{}", cluster.summary());
}
