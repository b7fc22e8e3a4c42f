//! Latency from a pod to the Execute call.

use crate::fixture::Fixture;
use plimsoll_sim::apiserver::ResourceId;
use std::time::Duration;

/// Maximum time from the pod's condition to the Execute call on an idle system.
const TARGET: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn a_pending_pod_is_planned_for_and_executed_at_once() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pending_pod("web", None);
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    assert!(took < TARGET, "{took:?}");
    let execution = fixture.actuator.with(|state| state.executions[0].1.clone());
    assert_eq!(execution.driver.identity, "watcher-0");
    assert_eq!(execution.plan.launches[0].pods[0].name, "default/web");
    assert_eq!(
        fixture.schedulers[0].with(|state| (state.sessions, state.full)),
        (1, 1),
        "one session, one full snapshot"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bought_for_once() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pending_pod("web", None);
    fixture.pass(60).await;
    assert_eq!(fixture.actuator.launches(), ["for-default-web"]);
    let snapshot = fixture.schedulers[0].with(|state| state.planned.last().cloned().unwrap());
    let claims: Vec<_> = snapshot.nodes.iter().filter_map(|node| node.node_claim.as_deref()).collect();
    assert_eq!(claims, ["claim-for-default-web"], "the claim is not in the cluster, but the ledger knows it");
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_nothing() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.schedulers[0].with(|state| state.impossible.push("web".to_owned()));
    fixture.pending_pod("web", None);
    fixture.until("the reason was reported", || fixture.actuator.executions() > 0).await;
    let execution = fixture.actuator.with(|state| state.executions[0].1.clone());
    assert_eq!(execution.plan.unschedulable[0].pod.name, "default/web");
    let (plans, executions) = (fixture.plans(), fixture.actuator.executions());
    fixture.pass(3600).await;
    assert_eq!((fixture.plans(), fixture.actuator.executions()), (plans, executions));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_left_out_and_the_rest_goes_on() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    let metadata = serde_json::json!({"name": "broken", "namespace": "default"});
    let broken = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "lots"}}}]}});
    fixture.put(ResourceId::PODS, "broken", broken, &serde_json::json!({}));
    fixture.mark_unschedulable("broken");
    fixture.pending_pod("web", None);
    fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    assert_eq!(fixture.actuator.launches(), ["for-default-web"]);
    assert!(watcher.metrics_say("plimsoll_watcher_snapshot_problems 1\n"));
}

/// Plans must not rest on what it said before.
#[tokio::test(start_paused = true)]
async fn an_object_that_can_no_longer_be_read_is_left_out() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    let says = |line: &str| watcher.metrics_say(&format!("\nplimsoll_watcher_{line}\n"));
    assert!(says(r#"objects{kind="nodepools"} 1"#));
    // More than a number of nanoseconds can say.
    let unreadable = serde_json::json!({"spec": {"template": {"spec": {"expireAfter": "2562048h"}}}});
    fixture.patch(ResourceId::NODE_POOLS, "default", unreadable);
    fixture.until("it cannot be read", || !says(r#"invalid_objects_total{kind="nodepools"} 0"#)).await;
    assert!(says(r#"objects{kind="nodepools"} 0"#));
}

/// The API server accepts them, and a scheduler refuses the whole of an invalid snapshot.
#[tokio::test(start_paused = true)]
async fn empty_names_do_not_end_the_plans() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"karpenter.sh/nodepool": ""}}});
    fixture.put(ResourceId::NODES, "n1", node, &serde_json::json!({"capacity": {"cpu": "4"}}));
    let overlay = serde_json::json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
        "metadata": {"name": "fuse"}, "spec": {"capacity": {"": "1"},
            "requirements": [{"key": "team", "operator": "In", "values": ["a"]}]}});
    fixture.put(ResourceId::NODE_OVERLAYS, "fuse", overlay, &serde_json::json!({}));
    let is_reported = || watcher.metrics_say("plimsoll_watcher_snapshot_problems 1\n");
    fixture.until("the overlay is left out", is_reported).await;
    fixture.pending_pod("web", None);
    fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    assert_eq!(fixture.actuator.launches(), ["for-default-web"]);
}
