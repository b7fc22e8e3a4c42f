//! A Lease is deleted by `kubectl delete lease`, a restored namespace, or a GitOps prune. The next Lease has another
//! UID and may count its transitions from 0 again. Scaling continues and nothing is launched twice (rules 16 and 17).

use plimsoll_model::names::{annotation, lease};
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::Key;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, Scene, instances_ever_launched};
use std::collections::BTreeSet;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Deletes the Lease of a service.
async fn delete(scene: &Scene, name: &str) {
    let client = scene.world.server().client("kubectl");
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> = kube::Api::namespaced(client, NAMESPACE);
    leases.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
}

/// Transitions of a Lease, if it exists and is held.
fn transitions(scene: &Scene, name: &str) -> Option<i64> {
    let lease = scene.world.server().read(|store| store.find(ResourceId::LEASES, &Key::new(NAMESPACE, name)))?;
    let held = !object::text(&lease, &["spec", "holderIdentity"]).is_empty();
    held.then(|| lease.pointer("/spec/leaseTransitions").and_then(serde_json::Value::as_i64).unwrap_or(0))
}

/// Kills the leader and starts a replacement, and waits until another process holds the Lease.
async fn change_leader(scene: &mut Scene, role: Role, name: &str) {
    let before = transitions(scene, name);
    let leader = scene.plimsoll.leader(role).unwrap();
    scene.plimsoll.replace(&leader).unwrap();
    let end = tokio::time::Instant::now() + 2 * MINUTE;
    while transitions(scene, name) <= before {
        assert!(tokio::time::Instant::now() < end, "the Lease {name} did not change hands");
        scene.pass(Duration::from_secs(1)).await;
    }
}

/// Waits until the Lease exists again and is held.
async fn until_held(scene: &Scene, name: &str) {
    let end = tokio::time::Instant::now() + MINUTE;
    while transitions(scene, name).is_none() {
        assert!(tokio::time::Instant::now() < end, "the Lease {name} has no holder");
        scene.pass(Duration::from_millis(500)).await;
    }
}

/// Pods that fill one node each: as many instances as pods.
async fn more_pods_get_nodes(scene: &Scene, pods: usize, limit: Duration) {
    scene.scale("web", u32::try_from(pods).unwrap());
    scene.until_running(pods, limit).await;
    scene.pass(5 * MINUTE).await;
    assert_eq!(instances_ever_launched(&scene.world).len(), pods, "{}", scene.summary());
}

/// A scene with one pod that fills a node.
async fn one_full_node() -> Scene {
    let requirements = serde_json::json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}
    ]);
    let pool = serde_json::json!({"template": {"spec": {"requirements": requirements}}});
    let scene = Scene::begin(plimsoll_tests::Setup::with_pool(pool)).await;
    scene.deploy("web", 1, 3000);
    scene.until_running(1, 5 * MINUTE).await;
    scene
}

#[tokio::test(start_paused = true)]
async fn the_watchers_lease_is_deleted_while_pods_arrive() {
    let mut scene = one_full_node().await;
    // The deleted Lease has a higher count than the next one.
    change_leader(&mut scene, Role::Watcher, lease::WATCHER).await;
    // No remaining watcher knows the count of the deleted Lease.
    for process in scene.plimsoll.processes(Role::Watcher) {
        scene.plimsoll.replace(&process).unwrap();
    }
    delete(&scene, lease::WATCHER).await;
    scene.scale("web", 2);
    more_pods_get_nodes(&scene, 3, 3 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn the_watchers_lease_is_deleted_under_running_watchers() {
    let mut scene = one_full_node().await;
    change_leader(&mut scene, Role::Watcher, lease::WATCHER).await;
    // Time for all watchers to see the leader.
    scene.pass(10 * SECOND).await;
    scene.scale("web", 2);
    delete(&scene, lease::WATCHER).await;
    until_held(&scene, lease::WATCHER).await;
    // Time for the former holder to notice.
    scene.pass(10 * SECOND).await;
    more_pods_get_nodes(&scene, 3, 2 * MINUTE).await;
}

/// The first Lease and the second count 0 transitions; only the holder differs.
#[tokio::test(start_paused = true)]
async fn the_watchers_first_lease_is_deleted_and_another_watcher_takes_the_next() {
    let mut scene = one_full_node().await;
    let leader = scene.plimsoll.leader(Role::Watcher).unwrap();
    for process in scene.plimsoll.processes(Role::Watcher).iter().filter(|process| **process != leader) {
        scene.plimsoll.replace(process).unwrap();
    }
    scene.plimsoll.replace(&leader).unwrap();
    delete(&scene, lease::WATCHER).await;
    more_pods_get_nodes(&scene, 2, 3 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn the_actuators_lease_is_deleted_while_pods_arrive() {
    let scene = one_full_node().await;
    scene.scale("web", 2);
    scene.pass(Duration::from_millis(700)).await;
    delete(&scene, lease::ACTUATOR).await;
    more_pods_get_nodes(&scene, 4, 3 * MINUTE).await;
}

/// The former leader of the deleted Lease has a call in flight: it takes effect while the next process leads.
#[tokio::test(start_paused = true)]
async fn a_claim_of_the_former_leader_that_arrives_after_its_lease_was_deleted_is_not_bought_twice() {
    let mut scene = Scene::usual().await;
    // Time for the standby to see the leader.
    scene.pass(10 * SECOND).await;
    let old = scene.plimsoll.leader(Role::Actuator).unwrap();
    let create = Matcher { client: Some(old.clone()), ..Matcher::of(Verb::Create, "nodeclaims") };
    scene.world.server().faults().always(create, Effect::Late(Duration::from_secs(15)));
    scene.deploy("web", 1, 3000);
    // The call is made within one second.
    scene.pass(Duration::from_secs(1)).await;
    scene.plimsoll.kill(&old);
    delete(&scene, lease::ACTUATOR).await;
    scene.until_running(1, 5 * MINUTE).await;
    scene.pass(5 * MINUTE).await;
    assert_eq!(instances_ever_launched(&scene.world).len(), 1, "{}", scene.summary());
    assert_eq!(epochs(&scene), [0], "the new leader waited for the claim of the former leader, and created none");
}

/// Epochs of claims, oldest claim first, each once.
fn epochs(scene: &Scene) -> Vec<u64> {
    let mut claims = scene.claims();
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
    let mut scene = one_full_node().await;
    change_leader(&mut scene, Role::Actuator, lease::ACTUATOR).await;
    scene.scale("web", 2);
    scene.until_running(2, 5 * MINUTE).await;
    for process in scene.plimsoll.processes(Role::Actuator) {
        scene.plimsoll.kill(&process);
    }
    delete(&scene, lease::ACTUATOR).await;
    while scene.plimsoll.start_another(Role::Actuator).is_some() {}
    more_pods_get_nodes(&scene, 3, 5 * MINUTE).await;
    let epochs = epochs(&scene);
    assert!(epochs.len() == 3 && epochs.is_sorted(), "each leader's claims have a higher epoch: {epochs:?}");
}
