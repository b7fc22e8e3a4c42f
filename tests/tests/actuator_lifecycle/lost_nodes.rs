//! Nodes whose instance or NodeClaim has vanished, and NodeClaims whose Node has.

use super::drain::hide_pods;
use super::hidden::with_hidden;
use super::{is_gone, with_protected_pod};
use plimsoll_model::names::{TERMINATION_FINALIZER, annotation, label, tag};
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup, instance_of, limit_disruptions, running_on};
use serde_json::json;
use std::time::Duration;

fn lose_instance(world: &World, node: &str) {
    let instance = instance_of(world, node);
    world.ec2.with(|cloud, now| {
        // The queue of interruptions tells nothing, so that no replacement is launched.
        cloud.settings.tells_states = false;
        cloud.terminate_instances(&[instance], now);
    });
}

/// Deletes a claim without the work of its finalizer.
fn lose_claim(watcher: &FakeWatcher, claim: &str) {
    let no_finalizers = json!({"metadata": {"finalizers": null}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, claim, no_finalizers).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, claim).unwrap();
    assert!(watcher.claim(claim).is_none());
}

/// Deletes a Node without the work of its finalizer. Its kubelet runs on and does not create it again.
fn lose_node(watcher: &FakeWatcher, node: &str) {
    watcher.world.patch(ResourceId::NODES, node, json!({"metadata": {"finalizers": null}})).unwrap();
    watcher.world.delete(ResourceId::NODES, node).unwrap();
    assert!(watcher.world.get(ResourceId::NODES, node).is_none());
}

/// Restarts the kubelet of a Node that is gone. It creates the Node again, which is then initialized.
async fn create_again(watcher: &FakeWatcher, node: &str) {
    let kubelets = &watcher.world.cluster.kubelets;
    kubelets.stop(node);
    kubelets.resume(node);
    let is_initialized = |world: &World| {
        let node = world.get(ResourceId::NODES, node);
        node.is_some_and(|node| object::label(&node, label::INITIALIZED) == Some("true"))
    };
    watcher.until("the Node is initialized again", MINUTE, is_initialized).await;
}

/// No pod runs there any more, so that no budget protects one.
#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_is_gone_and_whose_kubelet_is_silent_is_not_drained() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = with_protected_pod(&watcher).await;
    lose_instance(&watcher.world, &node);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    // The instance takes 30 s to end, and the Node becomes NotReady after 50 s.
    watcher.until("claim, node and instance are deleted", 2 * MINUTE, is_gone).await;
}

/// A Ready node is alive, whatever EC2's reads say.
#[tokio::test(start_paused = true)]
async fn a_ready_node_is_drained_although_ec2_does_not_show_its_instance() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = with_protected_pod(&watcher).await;
    let zone = watcher.world.living_instances().into_values().next().unwrap().zone;
    watcher.world.ec2.with(|cloud, _| cloud.hidden_zones.insert(zone));
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(running_on(&watcher.world, &node), 1, "the budget allows no eviction");
    assert!(watcher.claim(&claim).is_some());
}

/// Somebody removes the finalizer of a claim: its Node is drained, and garbage collection terminates the instance.
#[tokio::test(start_paused = true)]
async fn a_node_without_its_claim_is_drained_and_its_instance_terminated() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = with_protected_pod(&watcher).await;
    let uid = object::uid(&watcher.world.get(ResourceId::NODES, &node).unwrap()).to_owned();
    lose_claim(&watcher, &claim);
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(running_on(&watcher.world, &node), 1, "the budget allows no eviction");
    let is_there = |world: &World| world.get(ResourceId::NODES, &node).is_some_and(|node| object::uid(&node) == uid);
    assert!(is_there(&watcher.world), "it is drained first");
    watcher.world.delete(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap();
    watcher
        .until("the pod is evicted and the Node deleted", Duration::from_secs(30), |world| {
            running_on(world, &node) == 0 && !is_there(world)
        })
        .await;
    watcher.until("the instance is terminated", 10 * MINUTE, |world| world.living_instances().is_empty()).await;
}

/// Nothing owns the Node, so it is not deleted with the claim. Garbage collection ends its instance minutes later.
#[tokio::test(start_paused = true)]
async fn a_node_without_its_claim_that_nobody_deletes_is_not_drained() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.patch(ResourceId::NODES, &node, json!({"metadata": {"ownerReferences": null}})).unwrap();
    lose_claim(&watcher, &claim);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let node = watcher.world.get(ResourceId::NODES, &node).unwrap();
    assert!(object::items(&node, &["spec", "taints"]).is_empty() && !object::is_deleting(&node), "{node:#}");
    assert_eq!(object::items(&node, &["metadata", "finalizers"]), [json!(TERMINATION_FINALIZER)]);
}

/// Somebody has created another claim with the name of the lost one.
#[tokio::test(start_paused = true)]
async fn a_node_without_its_claim_does_not_wait_for_another_claim_of_that_name() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let uid = object::uid(&watcher.world.get(ResourceId::NODES, &node).unwrap()).to_owned();
    lose_claim(&watcher, &claim);
    let class = json!({"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"});
    let other = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": claim},
        "spec": {"nodeClassRef": class, "requirements": []}});
    watcher.world.apply_object(&other).unwrap();
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    let is_there = |world: &World| world.get(ResourceId::NODES, &node).is_some_and(|node| object::uid(&node) == uid);
    watcher.until("the Node is deleted", Duration::from_secs(30), |world| !is_there(world)).await;
}

/// The node looks empty in the watch cache.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_watch_does_not_show_keeps_a_node_without_its_claim() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let uid = object::uid(&watcher.world.get(ResourceId::NODES, &node).unwrap()).to_owned();
    hide_pods(&watcher);
    limit_disruptions(&watcher.world, "maxUnavailable", 0);
    watcher.deploy("web", "100m").await;
    lose_claim(&watcher, &claim);
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(running_on(&watcher.world, &node), 1, "the budget allows no eviction");
    let is_there = watcher.world.get(ResourceId::NODES, &node).is_some_and(|node| object::uid(&node) == uid);
    assert!(is_there, "it is drained first");
}

/// The eviction of its pod would wait for a budget that nobody can satisfy.
#[tokio::test(start_paused = true)]
async fn a_node_without_its_claim_whose_instance_is_gone_is_not_drained() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = with_protected_pod(&watcher).await;
    lose_claim(&watcher, &claim);
    lose_instance(&watcher.world, &node);
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    // As above. Its pod would be deleted only after Kubernetes' five minutes for nodes that are not ready.
    watcher.until("the Node is deleted", 2 * MINUTE, |world| world.get(ResourceId::NODES, &node).is_none()).await;
}

/// Claims from Karpenter have no owner annotation, and their instances no owner tag.
#[tokio::test(start_paused = true)]
async fn an_adopted_claim_whose_kubelet_is_silent_stays_while_its_instance_runs() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let adopted = json!({"metadata": {"annotations": {annotation::OWNER: null}}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, adopted).unwrap();
    watcher.world.ec2.with(|cloud, _| cloud.remove_tag_of_all(tag::OWNER));
    watcher.world.cluster.kubelets.stop(&node);
    tokio::time::sleep(10 * MINUTE).await;
    assert!(watcher.is_kept(&claim));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_node_is_gone_for_a_quarter_of_an_hour_is_deleted_with_its_instance() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, node) = watcher.node(&wanted("a-1")).await;
    lose_node(&watcher, &node);
    let took = watcher.until("claim and instance are deleted", 20 * MINUTE, is_gone).await;
    assert!(took >= 15 * MINUTE, "its kubelet may restart, but it took {took:?}");
    assert_eq!(watcher.counted("plimsoll_actuator_nodeclaims_collected_total", &[("cause", "node_gone")]), 1);
}

/// Without the registration, the taint of a new Node keeps pods away for ever.
#[tokio::test(start_paused = true)]
async fn a_node_that_its_kubelet_creates_again_registers_again() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    lose_node(&watcher, &node);
    tokio::time::sleep(10 * MINUTE).await;
    create_again(&watcher, &node).await;
    let again = watcher.world.get(ResourceId::NODES, &node).unwrap();
    assert!(object::items(&again, &["spec", "taints"]).is_empty(), "{again:#}");
    assert_eq!(object::items(&again, &["metadata", "finalizers"]), [json!(TERMINATION_FINALIZER)]);
    // Longer than a claim without a Node is kept.
    tokio::time::sleep(20 * MINUTE).await;
    let registered = watcher.claim(&claim).unwrap();
    assert!(object::condition_is_true(&registered, "Ready") && !object::is_deleting(&registered), "{registered:#}");
    // If it is lost again, the time counts anew.
    lose_node(&watcher, &node);
    tokio::time::sleep(10 * MINUTE).await;
    assert!(!object::is_deleting(&watcher.claim(&claim).unwrap()));
}

/// The API server refuses the deletion once, because somebody has changed the claim.
#[tokio::test(start_paused = true)]
async fn a_claim_that_changes_when_it_is_deleted_without_its_node_is_deleted_later() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.server().faults().next(1, Matcher::of(Verb::Delete, "nodeclaims"), Effect::conflict());
    lose_node(&watcher, &node);
    watcher.until("claim and instance are deleted", 20 * MINUTE, is_gone).await;
    assert_eq!(watcher.counted("plimsoll_actuator_nodeclaims_collected_total", &[("cause", "node_gone")]), 1);
}

/// The deletion of its claim gets no response, and takes effect after that.
#[tokio::test(start_paused = true)]
async fn a_node_that_its_kubelet_creates_again_after_it_was_given_up_stays() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let deletion = Matcher::of(Verb::Delete, "nodeclaims");
    watcher.world.server().faults().always(deletion, Effect::Late(MINUTE));
    lose_node(&watcher, &node);
    let is_given_up = |world: &World| {
        let events = world.events_of("NodeClaim", &claim);
        events.iter().any(|event| event.contains("has not existed for 15 minutes"))
    };
    watcher.until("the claim is given up", 20 * MINUTE, is_given_up).await;
    create_again(&watcher, &node).await;
    tokio::time::sleep(3 * MINUTE).await;
    assert!(watcher.is_kept(&claim));
}

/// The cloud controller may write it later.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_node_has_no_provider_id_stays() {
    for spec in [json!({}), json!({"providerID": ""})] {
        let watcher = FakeWatcher::begin(Setup::default()).await;
        let (claim, node) = watcher.node(&wanted("a-1")).await;
        lose_node(&watcher, &node);
        let again = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": spec});
        watcher.world.apply_object(&again).unwrap();
        tokio::time::sleep(40 * MINUTE).await;
        assert!(watcher.is_kept(&claim));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_does_not_show_keeps_its_claim() {
    let (watcher, _, claim, _) = with_hidden(Setup::default(), "nodes").await;
    tokio::time::sleep(40 * MINUTE).await;
    assert!(watcher.is_kept(&claim));
}
