//! Objects that a watch does not show, or shows as they were, and Nodes that cannot be read.

use super::drain::{hide, run_pod, until_drained_and_gone};
use k8s_openapi::api::core::v1::Node;
use plimsoll_model::names::label;
use plimsoll_sim::apiserver::faults::RuleId;
use plimsoll_sim::apiserver::store::{Part, Store, Write};
use plimsoll_sim::apiserver::{Patch, ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::{Value, json};
use std::time::Duration;

/// A node that the leader's watch does not show, or whose NodeClaim it does not show, until the rule is removed. The
/// leader was a standby, whose watch of this resource lags while the others do not. Also returns the names of claim and
/// Node.
pub(super) async fn with_hidden(setup: Setup, resource: &'static str) -> (FakeWatcher, RuleId, String, String) {
    let mut watcher = FakeWatcher::begin(setup).await;
    let standby = watcher.plimsoll.start_at(Role::Actuator, "actuator-1");
    // It has listed all kinds by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let rule = hide(&watcher, &standby, resource);
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let leader = watcher.plimsoll.leader(Role::Actuator).unwrap();
    assert_ne!(leader, standby);
    watcher.plimsoll.kill(&leader);
    let leads = |_: &World| watcher.plimsoll.leader(Role::Actuator).is_some_and(|leader| leader == standby);
    watcher.until("the standby leads", MINUTE, leads).await;
    (watcher, rule, claim, node)
}

/// Whether the claim is gone, and its instance ends.
fn is_over(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_none() && world.living_instances().is_empty()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_does_not_show_is_drained_before_its_instance_ends() {
    let (watcher, rule, claim, node) = with_hidden(Setup::default(), "nodes").await;
    run_pod(&watcher, "web", &node, &json!({}), 30).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(watcher.world.living_instances().len(), 1, "a pod runs there");
    watcher.world.server().faults().remove(rule);
    until_drained_and_gone(&watcher, &claim).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_does_not_show_is_not_waited_for_after_its_time_is_over() {
    let spec = json!({"template": {"spec": {"terminationGracePeriod": "2m"}}});
    let (watcher, _, claim, _) = with_hidden(Setup::with_pool(spec), "nodes").await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    // The instance takes 30 s to end.
    let limit = 2 * MINUTE + Duration::from_secs(40);
    let took = watcher.until("the claim is deleted", limit, |world| is_over(world, &claim)).await;
    assert!(took >= 2 * MINUTE - Duration::from_secs(1), "pods may run there, but it took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_does_not_show_is_waited_for_only_while_it_exists() {
    let (watcher, _, claim, node) = with_hidden(Setup::default(), "nodes").await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(watcher.world.living_instances().len(), 1, "the Node exists");
    watcher.world.patch(ResourceId::NODES, &node, json!({"metadata": {"finalizers": null}})).unwrap();
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    watcher.until("the claim is deleted", MINUTE, |world| is_over(world, &claim)).await;
}

/// Its own Node is gone.
#[tokio::test(start_paused = true)]
async fn a_node_of_another_instance_that_has_the_name_is_not_waited_for() {
    let (watcher, _, claim, node) = with_hidden(Setup::default(), "nodes").await;
    watcher.world.patch(ResourceId::NODES, &node, json!({"metadata": {"finalizers": null}})).unwrap();
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    let other = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node, "labels": {label::REGISTERED: "true"}},
        "spec": {"providerID": "aws:///us-west-2a/i-00000000000000000"}});
    watcher.world.apply_object(&other).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("the claim is deleted", MINUTE, |world| is_over(world, &claim)).await;
}

/// It is deleted with its claim, and not as if there were none.
#[tokio::test(start_paused = true)]
async fn a_deleted_node_whose_claim_the_watch_does_not_show_waits_for_the_claim() {
    let (watcher, rule, claim, node) = with_hidden(Setup::default(), "nodeclaims").await;
    run_pod(&watcher, "web", &node, &json!({}), 30).await;
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let pod = watcher.world.get(ResourceId::PODS, "web");
    assert!(pod.is_some_and(|pod| !object::is_deleting(&pod)));
    watcher.world.server().faults().remove(rule);
    until_drained_and_gone(&watcher, &claim).await;
}

/// As if its kubelet had created it again.
#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_shows_as_it_was_before_its_registration_does_not_register_again() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    watcher.delay_watch("nodes", Duration::from_secs(20));
    watcher.node(&wanted("a-1")).await;
    tokio::time::sleep(MINUTE).await;
    let is_reset = |claim: &Value| {
        object::condition(claim, "Registered").is_some_and(|condition| condition["reason"] == "NodeRecreated")
    };
    let was_reset = watcher.world.server().read(|store| {
        let mut events = store.events_after(ResourceId::NODE_CLAIMS, 0).unwrap();
        events.any(|event| is_reset(&event.object))
    });
    assert!(!was_reset);
}

/// The watch cache leaves it out.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_read_keeps_its_claim_and_does_not_delay_its_end() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let port = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 3_000_000_000_u32}}}});
    let write = Write::new(watcher.world.server().now(), "test");
    let patch = Patch::Merge(port);
    let change = |store: &mut Store| store.patch(ResourceId::NODES, "", &node, Part::Status, &patch, &write).map(drop);
    watcher.world.server().write(change).unwrap();
    let stored = watcher.world.get(ResourceId::NODES, &node).unwrap();
    assert!(serde_json::from_value::<Node>((*stored).clone()).is_err(), "it is unreadable");
    tokio::time::sleep(40 * MINUTE).await;
    assert!(watcher.is_kept(&claim));
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("the claim is deleted", 3 * MINUTE, |world| is_over(world, &claim)).await;
}
