//! A Lease is deleted by `kubectl delete lease`, a restored namespace, or a GitOps prune. The next Lease has another
//! UID and may count its transitions from 0 again. Scaling continues and nothing is launched twice (rules 16 and 17).

use plimsoll_model::names::{annotation, lease};
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::Key;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, TestCluster, instances_ever_launched};
use std::collections::BTreeSet;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Deletes the Lease of a service.
async fn delete(cluster: &TestCluster, name: &str) {
    let client = cluster.world.server().client("kubectl");
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> = kube::Api::namespaced(client, NAMESPACE);
    leases.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
}

/// Transitions of a Lease, if it exists and is held.
fn transitions(cluster: &TestCluster, name: &str) -> Option<i64> {
    let lease = cluster.world.server().read(|store| store.find(ResourceId::LEASES, &Key::new(NAMESPACE, name)))?;
    let held = !object::text(&lease, &["spec", "holderIdentity"]).is_empty();
    held.then(|| lease.pointer("/spec/leaseTransitions").and_then(serde_json::Value::as_i64).unwrap_or(0))
}

/// Kills the leader and starts a replacement, and waits until another process holds the Lease.
async fn change_leader(cluster: &mut TestCluster, role: Role, name: &str) {
    let before = transitions(cluster, name);
    let leader = cluster.plimsoll.leader(role).unwrap();
    cluster.plimsoll.replace(&leader).unwrap();
    let end = tokio::time::Instant::now() + 2 * MINUTE;
    while transitions(cluster, name) <= before {
        assert!(tokio::time::Instant::now() < end, "the Lease {name} did not change hands");
        cluster.pass(Duration::from_secs(1)).await;
    }
}

/// Waits until the Lease exists again and is held.
async fn until_held(cluster: &TestCluster, name: &str) {
    let end = tokio::time::Instant::now() + MINUTE;
    while transitions(cluster, name).is_none() {
        assert!(tokio::time::Instant::now() < end, "the Lease {name} has no holder");
        cluster.pass(Duration::from_millis(500)).await;
    }
}

/// Pods that fill one node each: as many instances as pods.
async fn more_pods_get_nodes(cluster: &TestCluster, pods: usize, limit: Duration) {
    cluster.scale("web", u32::try_from(pods).unwrap());
    cluster.until_running(pods, limit).await;
    cluster.pass(5 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), pods, "{}", cluster.summary());
}

/// A cluster with one pod that fills a node.
async fn one_full_node() -> TestCluster {
    let requirements = serde_json::json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}
    ]);
    let pool = serde_json::json!({"template": {"spec": {"requirements": requirements}}});
    let cluster = TestCluster::begin(plimsoll_tests::Setup::with_pool(pool)).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 5 * MINUTE).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn the_watchers_lease_is_deleted_while_pods_arrive() {
    let mut cluster = one_full_node().await;
    // The deleted Lease has a higher count than the next one.
    change_leader(&mut cluster, Role::Watcher, lease::WATCHER).await;
    // No remaining watcher knows the count of the deleted Lease.
    cluster.plimsoll.replace_all(Role::Watcher);
    delete(&cluster, lease::WATCHER).await;
    cluster.scale("web", 2);
    more_pods_get_nodes(&cluster, 3, 3 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn the_watchers_lease_is_deleted_under_running_watchers() {
    let mut cluster = one_full_node().await;
    change_leader(&mut cluster, Role::Watcher, lease::WATCHER).await;
    // Time for all watchers to see the leader.
    cluster.pass(10 * SECOND).await;
    cluster.scale("web", 2);
    delete(&cluster, lease::WATCHER).await;
    until_held(&cluster, lease::WATCHER).await;
    // Time for the former holder to notice.
    cluster.pass(10 * SECOND).await;
    more_pods_get_nodes(&cluster, 3, 2 * MINUTE).await;
}

/// The first Lease and the second count 0 transitions; only the holder differs.
#[tokio::test(start_paused = true)]
async fn the_watchers_first_lease_is_deleted_and_another_watcher_takes_the_next() {
    let mut cluster = one_full_node().await;
    let leader = cluster.plimsoll.leader(Role::Watcher).unwrap();
    for process in cluster.plimsoll.processes(Role::Watcher).iter().filter(|process| **process != leader) {
        cluster.plimsoll.replace(process).unwrap();
    }
    cluster.plimsoll.replace(&leader).unwrap();
    delete(&cluster, lease::WATCHER).await;
    more_pods_get_nodes(&cluster, 2, 3 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn the_actuators_lease_is_deleted_while_pods_arrive() {
    let cluster = one_full_node().await;
    cluster.scale("web", 2);
    cluster.pass(Duration::from_millis(700)).await;
    delete(&cluster, lease::ACTUATOR).await;
    more_pods_get_nodes(&cluster, 4, 3 * MINUTE).await;
}

/// The former leader of the deleted Lease has a call in flight: it takes effect while the next process leads.
#[tokio::test(start_paused = true)]
async fn a_claim_of_the_former_leader_that_arrives_after_its_lease_was_deleted_is_not_bought_twice() {
    let mut cluster = TestCluster::usual().await;
    // Time for the standby to see the leader.
    cluster.pass(10 * SECOND).await;
    let old = cluster.plimsoll.leader(Role::Actuator).unwrap();
    let create = Matcher { client: Some(old.clone()), ..Matcher::of(Verb::Create, "nodeclaims") };
    cluster.world.server().faults().always(create, Effect::Late(Duration::from_secs(15)));
    cluster.deploy("web", 1, 3000);
    // The call is made within one second.
    cluster.pass(Duration::from_secs(1)).await;
    cluster.plimsoll.kill(&old);
    delete(&cluster, lease::ACTUATOR).await;
    cluster.until_running(1, 5 * MINUTE).await;
    cluster.pass(5 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
    assert_eq!(epochs(&cluster), [0], "the new leader waited for the claim of the former leader, and created none");
}

/// Epochs of claims, oldest claim first, each once.
fn epochs(cluster: &TestCluster) -> Vec<u64> {
    let mut claims = cluster.claims();
    claims.sort_by_key(|claim| object::text(claim, &["metadata", "creationTimestamp"]).to_owned());
    let epoch = |claim: &serde_json::Value| {
        let text = claim.pointer("/metadata/annotations")?.get(annotation::EPOCH)?.as_str()?;
        text.parse().ok()
    };
    let mut seen = BTreeSet::new();
    claims.iter().filter_map(|claim| epoch(claim)).filter(|epoch| seen.insert(*epoch)).collect()
}

/// No remaining actuator knows the deleted Lease: the claims carry its epoch.
#[tokio::test(start_paused = true)]
async fn epochs_grow_over_a_deleted_lease_and_new_actuators() {
    let mut cluster = one_full_node().await;
    change_leader(&mut cluster, Role::Actuator, lease::ACTUATOR).await;
    cluster.scale("web", 2);
    cluster.until_running(2, 5 * MINUTE).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    delete(&cluster, lease::ACTUATOR).await;
    while cluster.plimsoll.start_another(Role::Actuator).is_some() {}
    more_pods_get_nodes(&cluster, 3, 5 * MINUTE).await;
    let epochs = epochs(&cluster);
    assert!(epochs.len() == 3 && epochs.is_sorted(), "each leader's claims have a higher epoch: {epochs:?}");
}

/// The first leader after the deletion creates no claim: only its Lease tells the next one about its epoch.
#[tokio::test(start_paused = true)]
async fn epochs_grow_after_a_leader_without_claims() {
    let mut cluster = one_full_node().await;
    cluster.plimsoll.kill_all(Role::Actuator);
    delete(&cluster, lease::ACTUATOR).await;
    while cluster.plimsoll.start_another(Role::Actuator).is_some() {}
    until_held(&cluster, lease::ACTUATOR).await;
    // Time to take over.
    cluster.pass(MINUTE).await;
    assert_eq!(transitions(&cluster, lease::ACTUATOR), Some(1), "the Lease began at 0, the claim has the epoch 0");
    change_leader(&mut cluster, Role::Actuator, lease::ACTUATOR).await;
    more_pods_get_nodes(&cluster, 2, 5 * MINUTE).await;
    assert_eq!(epochs(&cluster), [0, 2]);
}

/// Nobody remembers the former leader, but the claims show that there was one.
#[tokio::test(start_paused = true)]
async fn new_actuators_wait_for_the_leader_of_a_lease_that_was_deleted() {
    let mut cluster = one_full_node().await;
    let old = cluster.plimsoll.leader(Role::Actuator).unwrap();
    let create = Matcher { client: Some(old), ..Matcher::of(Verb::Create, "nodeclaims") };
    cluster.world.server().faults().always(create, Effect::Late(15 * SECOND));
    cluster.scale("web", 2);
    // The call is made within one second.
    cluster.pass(SECOND).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    delete(&cluster, lease::ACTUATOR).await;
    while cluster.plimsoll.start_another(Role::Actuator).is_some() {}
    more_pods_get_nodes(&cluster, 2, 5 * MINUTE).await;
    assert_eq!(epochs(&cluster), [0], "the new leader waited for the claim of the former leader, and created none");
}
