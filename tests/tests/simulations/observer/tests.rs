//! The observer sees what actuators must not do. Here, a test acts as one.

use super::{Budget, Observer};
use crate::oracle;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams};
use plimsoll_actuator::ports::Compute;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::{annotation, lease, taint};
use plimsoll_sim::apiserver::store::{DeleteOptions, Part, Write};
use plimsoll_sim::apiserver::{Patch as StorePatch, ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instance_of, limit_disruptions};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

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

/// Two nodes whose pods have a PodDisruptionBudget since `age`, and no actuators.
async fn two_nodes_with_budget(field: &str, pods: usize, age: Duration) -> (TestCluster, Observer) {
    let (mut cluster, mut observer) = two_nodes(None).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    limit_disruptions(&cluster.world, field, pods);
    cluster.pass(Duration::from_secs(1)).await;
    observer.look(&cluster);
    cluster.pass(age).await;
    (cluster, observer)
}

/// The first node is removed for pods that move to these nodes.
async fn remove_first(cluster: &TestCluster, rooms: &Value) {
    let (api, names) = claims(cluster);
    let node = object::text(&cluster.claims()[0], &["status", "nodeName"]).to_owned();
    let mark = json!([{"key": taint::DISRUPTED, "effect": "NoSchedule"}]);
    cluster.world.patch(ResourceId::NODES, &node, json!({"spec": {"taints": mark}})).unwrap();
    let command = json!({"reason": "Underutilized", "admitted": 0, "rooms": rooms}).to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::REMOVAL: command}}}));
    api.patch(&names[0], &PatchParams::default(), &patch).await.unwrap();
    api.delete(&names[0], &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_is_removed_although_a_pod_disruption_budget_allows_nothing() {
    let (cluster, mut observer) = two_nodes_with_budget("minAvailable", 2, 2 * MINUTE).await;
    remove_first(&cluster, &json!({"elsewhere": {"cpu": 3000}})).await;
    let fault = fault(&mut observer, &cluster);
    assert!(fault.contains("although PodDisruptionBudget default/web"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_disruption_budget_allows_a_removal_or_is_not_known_yet() {
    for (field, pods, age) in [("maxUnavailable", 1, 2 * MINUTE), ("minAvailable", 2, MINUTE / 2)] {
        let (cluster, mut observer) = two_nodes_with_budget(field, pods, age).await;
        remove_first(&cluster, &json!({"elsewhere": {"cpu": 3000}})).await;
        observer.look(&cluster);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_removed_whose_pod_has_no_place() {
    let (cluster, mut observer) = two_nodes_with_budget("maxUnavailable", 1, 2 * MINUTE).await;
    remove_first(&cluster, &json!({})).await;
    let fault = fault(&mut observer, &cluster);
    assert!(fault.contains("has no place"), "{fault}");
}

/// A pod of 30 s of grace is deleted this long after its NodeClaim, whose deadline is ten minutes after that.
async fn pod_is_deleted_after(time: Duration) -> (TestCluster, Observer) {
    let mut setup = Setup::one_to_a_node();
    json_patch::merge(&mut setup.pool, &json!({"template": {"spec": {"terminationGracePeriod": "10m"}}}));
    let mut cluster = TestCluster::begin(setup).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    let (_, names) = claims(&cluster);
    cluster.world.delete(ResourceId::NODE_CLAIMS, &names[0]).unwrap();
    cluster.pass(time).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.world.server().client(ACTUATOR));
    let pod = cluster.world.all(ResourceId::PODS).remove(0);
    pods.delete(object::name(&pod), &DeleteParams::default()).await.unwrap();
    (cluster, Observer::new(MINUTE, None))
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_long_before_the_deadline() {
    let (cluster, mut observer) = pod_is_deleted_after(9 * MINUTE).await;
    let fault = fault(&mut observer, &cluster);
    assert!(fault.contains("before its grace period had to begin"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_so_that_it_ends_before_the_deadline() {
    let (cluster, mut observer) = pod_is_deleted_after(9 * MINUTE + Duration::from_secs(31)).await;
    observer.look(&cluster);
}

/// A user deletes the NodeClaim of a node, an actuator terminates the instance, and the Node goes. The pod has been
/// evicted if the node is drained.
async fn instance_ends(is_drained: bool) -> (TestCluster, Observer) {
    let (mut cluster, observer) = two_nodes(None).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    let claim = cluster.claims().remove(0);
    let node = object::text(&claim, &["status", "nodeName"]);
    cluster.world.delete(ResourceId::NODE_CLAIMS, object::name(&claim)).unwrap();
    if is_drained {
        let all = cluster.world.all(ResourceId::PODS);
        let pod = all.iter().find(|pod| object::text(pod, &["spec", "nodeName"]) == node).unwrap();
        let pods: Api<Pod> = Api::default_namespaced(cluster.world.server().client(ACTUATOR));
        pods.evict(object::name(pod), &EvictParams::default()).await.unwrap();
    }
    cluster.pass(Duration::from_secs(10)).await;
    let instance = instance_of(&cluster.world, node);
    cluster.world.ec2.as_client(ACTUATOR).terminate_instances(&[instance]).await.unwrap();
    cluster.world.patch(ResourceId::NODES, node, json!({"metadata": {"finalizers": null}})).unwrap();
    cluster.world.delete(ResourceId::NODES, node).unwrap();
    (cluster, observer)
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_terminated_while_a_pod_runs() {
    let (cluster, mut observer) = instance_ends(false).await;
    let fault = fault(&mut observer, &cluster);
    assert!(fault.contains("was terminated at"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_terminated_after_its_drain() {
    let (cluster, mut observer) = instance_ends(true).await;
    observer.look(&cluster);
}

#[tokio::test(start_paused = true)]
async fn two_claims_have_the_same_instance() {
    let (mut cluster, _) = two_nodes(None).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    let claim = cluster.claims().remove(0);
    let copy = json!({"apiVersion": claim["apiVersion"], "kind": claim["kind"], "metadata": {"name": "copy"},
                      "spec": claim["spec"]});
    cluster.world.apply_object(&copy).unwrap();
    let status = StorePatch::Merge(json!({"status": {"providerID": claim["status"]["providerID"]}}));
    let server = cluster.world.server();
    let write = Write::new(server.now(), ACTUATOR);
    let written = server.write(|store| store.patch(ResourceId::NODE_CLAIMS, "", "copy", Part::Status, &status, &write));
    written.unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| oracle::at_the_end(&cluster, 0))).unwrap_err();
    let fault = panic.downcast::<String>().unwrap();
    assert!(fault.contains("two claims had the same instance"), "{fault}");
}
