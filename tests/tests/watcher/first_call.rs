//! Latency from a pod to the Execute call.

use crate::stage::Stage;
use std::time::Duration;

/// Maximum time from the pod's condition to the Execute call on an idle system.
const TARGET: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn a_pending_pod_is_planned_for_and_executed_at_once() {
    let (stage, _watcher) = Stage::with_watcher().await;
    stage.pending_pod("web", None);
    let took = stage.until("a launch was requested", || stage.actuator.executions() > 0).await;
    assert!(took < TARGET, "{took:?}");
    let execution = stage.actuator.with(|state| state.executions[0].1.clone());
    assert_eq!(execution.driver.identity, "watcher-0");
    assert_eq!(execution.plan.launches[0].pods[0].name, "default/web");
    assert_eq!(
        stage.schedulers[0].with(|state| (state.sessions, state.full)),
        (1, 1),
        "one session, one full snapshot"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bought_for_once() {
    let (stage, _watcher) = Stage::with_watcher().await;
    stage.pending_pod("web", None);
    stage.pass(60).await;
    assert_eq!(stage.actuator.launches(), ["for-default-web"]);
    let snapshot = stage.schedulers[0].with(|state| state.planned.last().cloned().unwrap());
    let claims: Vec<_> = snapshot.nodes.iter().filter_map(|node| node.node_claim.as_deref()).collect();
    assert_eq!(claims, ["claim-for-default-web"], "the claim is not in the cluster, but the ledger knows it");
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_nothing() {
    let (stage, _watcher) = Stage::with_watcher().await;
    stage.schedulers[0].with(|state| state.impossible.push("web".to_owned()));
    stage.pending_pod("web", None);
    stage.until("the reason was reported", || stage.actuator.executions() > 0).await;
    let execution = stage.actuator.with(|state| state.executions[0].1.clone());
    assert_eq!(execution.plan.unschedulable[0].pod.name, "default/web");
    let (plans, executions) = (stage.plans(), stage.actuator.executions());
    stage.pass(3600).await;
    assert_eq!((stage.plans(), stage.actuator.executions()), (plans, executions));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_left_out_and_the_rest_goes_on() {
    let (stage, watcher) = Stage::with_watcher().await;
    let metadata = serde_json::json!({"name": "broken", "namespace": "default"});
    let broken = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "lots"}}}]}});
    stage.put(plimsoll_sim::apiserver::ResourceId::PODS, "broken", broken, &serde_json::json!({}));
    stage.mark_unschedulable("broken");
    stage.pending_pod("web", None);
    stage.until("a launch was requested", || stage.actuator.executions() > 0).await;
    assert_eq!(stage.actuator.launches(), ["for-default-web"]);
    assert!(watcher.metrics_say("plimsoll_watcher_snapshot_problems 1\n"));
}
