//! The observer sees what actuators must not do. Here, a test acts as one.

use super::{Budget, Observer};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams};
use plimsoll_api::NodeClaim;
use plimsoll_model::names::{annotation, lease, taint};
use plimsoll_sim::apiserver::store::{DeleteOptions, Write};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, Setup, TestCluster};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

const ACTUATOR: &str = "actuator-9-1";

/// Two nodes with a pod each, in service for long enough, and an observer that has seen how they came.
async fn two_nodes(budget: Option<Budget>) -> (TestCluster, Observer) {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    cluster.deploy("web", 2, 3000);
    cluster.until_running(2, 3 * MINUTE).await;
    cluster.pass(3 * MINUTE).await;
    let mut observer = Observer::new(MINUTE, budget);
    observer.look(&cluster);
    (cluster, observer)
}

fn claims(cluster: &TestCluster) -> (Api<NodeClaim>, Vec<String>) {
    let names = cluster.claims().iter().map(|claim| object::name(claim).to_owned()).collect();
    (Api::all(cluster.world.server().client(ACTUATOR)), names)
}

/// What the observer says of the changes since its last look, which it must not accept.
fn fault(observer: &mut Observer, cluster: &TestCluster) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| observer.look(cluster))).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_node_in_service_is_removed_without_the_taint() {
    let (cluster, mut observer) = two_nodes(None).await;
    let (api, names) = claims(&cluster);
    api.delete(&names[0], &DeleteParams::default()).await.unwrap();
    let fault = fault(&mut observer, &cluster);
    assert!(fault.contains("without its taint"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_user_may_delete_what_an_actuator_deletes_again() {
    let (cluster, mut observer) = two_nodes(None).await;
    let (api, names) = claims(&cluster);
    cluster.world.delete(ResourceId::NODE_CLAIMS, &names[0]).unwrap();
    api.delete(&names[0], &DeleteParams::default()).await.unwrap();
    observer.look(&cluster);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_checked_once_a_user_has_deleted_the_lease() {
    let (cluster, mut observer) = two_nodes(None).await;
    let (api, names) = claims(&cluster);
    let (server, options) = (cluster.world.server(), DeleteOptions::default());
    let write = Write::new(server.now(), "kubectl");
    let deleted =
        server.write(|store| store.delete(ResourceId::LEASES, "plimsoll-system", lease::ACTUATOR, &options, &write));
    deleted.unwrap();
    api.delete(&names[0], &DeleteParams::default()).await.unwrap();
    observer.look(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_was_taken_away_late_is_no_fault() {
    let (cluster, mut observer) = two_nodes(None).await;
    let (api, names) = claims(&cluster);
    let node = object::text(&cluster.claims()[0], &["status", "nodeName"]).to_owned();
    let mark = json!([{"key": taint::DISRUPTED, "effect": "NoSchedule"}]);
    for taints in [mark, Value::Null] {
        cluster.world.patch(ResourceId::NODES, &node, json!({"spec": {"taints": taints}})).unwrap();
    }
    api.delete(&names[0], &DeleteParams::default()).await.unwrap();
    observer.look(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_evicted_from_a_node_that_stays() {
    let (cluster, mut observer) = two_nodes(None).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.world.server().client(ACTUATOR));
    let pod = cluster.world.all(ResourceId::PODS).remove(0);
    pods.evict(object::name(&pod), &EvictParams::default()).await.unwrap();
    let fault = fault(&mut observer, &cluster);
    assert!(fault.contains("although its node"), "{fault}");
}

async fn two_removals_begin(budget: &str) -> (TestCluster, Observer) {
    let (mut cluster, observer) = two_nodes(Budget::parse(budget)).await;
    // They would undo the removals.
    cluster.plimsoll.kill_all(Role::Actuator);
    let (api, names) = claims(&cluster);
    for name in &names {
        let command = json!({"reason": "Empty", "admitted": 0}).to_string();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::REMOVAL: command}}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
    (cluster, observer)
}

#[tokio::test(start_paused = true)]
async fn removals_exceed_a_budget() {
    let (cluster, mut observer) = two_removals_begin("50%").await;
    let fault = fault(&mut observer, &cluster);
    assert!(fault.contains("2 removals are in progress, the budget allows 1"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn removals_are_within_a_budget() {
    let (cluster, mut observer) = two_removals_begin("51%").await;
    observer.look(&cluster);
}
