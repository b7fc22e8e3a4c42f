//! Nodes that get the taint of a postponed removal, and those that do not.

use crate::undone::forbid_deletion;
use crate::{is_postponed, is_tainted, of_node};
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup, instance_of};
use serde_json::json;
use std::time::Duration;

/// Nodes that are written at the same time.
const AT_ONCE: usize = 50;

/// The next plan may not know of its removal yet.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_being_removed_gets_no_taint_of_a_postponed_removal() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, first) = watcher.node(&wanted("a-1")).await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    let (_, third) = watcher.node(&wanted("a-3")).await;
    forbid_deletion(&watcher, &claim);
    watcher.send(watcher.plan(&[], vec![of_node("r-1", &first)]).await).await;
    watcher.until("the first node is tainted", MINUTE, |world| is_tainted(world, &first)).await;
    // The watch shows it by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut plan = watcher.plan(&[], vec![of_node("r-2", &second)]).await;
    plan.postponed_removals = vec![first.as_str().into(), third.as_str().into()];
    watcher.send(plan).await;
    watcher.until("the third node is tainted", MINUTE, |world| is_postponed(world, &third)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!is_postponed(&watcher.world, &first));
}

/// A user deletes the other node. Its pods still come to new nodes.
#[tokio::test(start_paused = true)]
async fn a_node_keeps_the_taint_of_a_postponed_removal_while_another_node_is_deleted() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let (_, next) = watcher.node(&wanted("a-2")).await;
    // The deletion does not end.
    let instance = instance_of(&watcher.world, &node);
    watcher.world.ec2.with(|cloud, _| cloud.protect(&instance, true));
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    // The plan consolidates, although its removal is rejected.
    let mut plan = watcher.plan(&[], vec![of_node("r-1", "unknown")]).await;
    plan.postponed_removals = vec![next.as_str().into()];
    watcher.send(plan).await;
    // All nodes are looked at once a minute.
    watcher.until("the other node is tainted", 2 * MINUTE, |world| is_postponed(world, &next)).await;
    // Without it, the plan counts for two minutes.
    tokio::time::sleep(5 * MINUTE).await;
    assert!(is_postponed(&watcher.world, &next));
}

/// The taints are not urgent, and other writes do not wait for hundreds of them.
#[tokio::test(start_paused = true)]
async fn fifty_nodes_at_most_get_the_taint_of_a_postponed_removal_at_the_same_time() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let nodes: Vec<String> = (0..=AT_ONCE).map(|number| format!("n-{number:02}")).collect();
    for node in &nodes {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {}});
        watcher.world.apply_object(&node).unwrap();
    }
    let (gate, client) = (Gate::default(), Some(watcher.actuator()));
    let writes = Matcher { client, ..Matcher::of(Verb::Patch, "nodes") };
    watcher.world.server().faults().always(writes, Effect::HoldBefore(gate.clone()));
    // The plan consolidates, although its removal is rejected.
    let mut plan = watcher.plan(&[], vec![of_node("r-1", "unknown")]).await;
    plan.postponed_removals = nodes.iter().map(|node| node.as_str().into()).collect();
    watcher.send(plan).await;
    // All nodes are looked at once a minute.
    tokio::time::timeout(2 * MINUTE, gate.reached(AT_ONCE)).await.unwrap();
    let more = tokio::time::timeout(Duration::from_secs(2), gate.reached(AT_ONCE + 1)).await;
    assert!(more.is_err(), "the others wait");
}
