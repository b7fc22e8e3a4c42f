//! Events that say why nodes and NodePools are not disrupted.

use plimsoll_model::names::{annotation, lease};
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn nodes_and_their_pool_say_why_they_are_not_disrupted() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let protected = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "annotations": {annotation::DO_NOT_DISRUPT: "true"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}});
    watcher.world.apply_object(&protected).unwrap();
    watcher.until("the pod runs", MINUTE, |world| world.running_pods() == 1).await;
    for empty in ["a-2", "a-3"] {
        watcher.node(&wanted(empty)).await;
    }
    // Nodes are looked at every five minutes.
    tokio::time::sleep(6 * MINUTE).await;
    let of_node = "DisruptionBlocked: The node cannot be disrupted: pod default/web has the annotation \
                   karpenter.sh/do-not-disrupt";
    for events in [watcher.world.events_of("NodeClaim", &claim), watcher.world.events_of("Node", &node)] {
        assert!(events.iter().any(|event| event == of_node), "{events:?}");
    }
    let events = watcher.world.events_of("NodePool", "default");
    for (reason, nodes) in [("Empty", ": 2"), ("Underutilized", ": 1")] {
        let of_pool = format!("DisruptionBlocked: The budgets allow no disruption for the reason {reason} now. ");
        let is_told = |event: &String| event.starts_with(&of_pool) && event.ends_with(nodes);
        assert!(events.iter().any(is_told), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_says_what_its_pods_and_its_pool_do_not_allow() {
    let spec = json!({"disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty"}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (_, node) = watcher.node(&wanted("a-1")).await;
    let (_, other) = watcher.node(&wanted("a-2")).await;
    for (name, node) in [("web", &node), ("batch", &other)] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.com/app:1"}]}});
        watcher.world.apply_object(&pod).unwrap();
    }
    watcher.until("the pods run", MINUTE, |world| world.running_pods() == 2).await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    watcher.world.apply_object(&budget).unwrap();
    // Nodes are looked at every five minutes.
    tokio::time::sleep(6 * MINUTE).await;
    let blocked = "DisruptionBlocked: The node cannot be disrupted: PodDisruptionBudget default/web allows no eviction \
                   of pod default/web now";
    let not_empty = "Unconsolidatable: The node is not consolidated: NodePool default consolidates only empty nodes";
    for (node, expected) in [(&node, blocked), (&other, not_empty)] {
        let events = watcher.world.events_of("Node", node);
        assert!(events.iter().any(|event| event == expected), "{expected}: {events:?}");
    }
}

/// It decides then which nodes are disrupted.
#[tokio::test(start_paused = true)]
async fn no_node_says_why_it_is_not_disrupted_while_karpenter_leads() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, node) = watcher.node(&wanted("a-1")).await;
    let karpenter = |holder: &str| {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": lease::KARPENTER, "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600}});
        watcher.world.apply_object(&lease).unwrap();
    };
    karpenter("karpenter-0");
    // Its Lease is read every five seconds.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let protected = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: "true"}}});
    watcher.world.patch(ResourceId::NODES, &node, protected).unwrap();
    let is_told =
        || watcher.world.events_of("Node", &node).iter().any(|event| event.starts_with("DisruptionBlocked: "));
    // Nodes are looked at every five minutes.
    tokio::time::sleep(6 * MINUTE).await;
    assert!(!is_told());
    karpenter("");
    // It may return for a minute.
    tokio::time::sleep(7 * MINUTE).await;
    assert!(is_told());
}
