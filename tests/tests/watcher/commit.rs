//! Rule 6: a pod counts after its scheduler has marked it, and launches wait for the pods of one owner.

use crate::fixture::Fixture;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_pod_that_kube_scheduler_has_not_judged_buys_nothing() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pod("web", None);
    fixture.pass(30).await;
    assert_eq!(fixture.actuator.executions(), 0);
    fixture.mark_unschedulable("web");
    fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
}

#[tokio::test(start_paused = true)]
async fn launches_wait_until_all_pods_of_the_owner_are_seen() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    fixture.replica_set("web", 3);
    for name in ["web-0", "web-1"] {
        fixture.pending_pod(name, Some("web"));
    }
    fixture.pod("web-2", Some("web"));
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(fixture.actuator.executions(), 0, "one pod is not marked yet");
    assert!(watcher.metrics_say("plimsoll_watcher_waiting_pods 2\n"));
    fixture.mark_unschedulable("web-2");
    let took = fixture.until("launches were requested", || fixture.actuator.executions() > 0).await;
    assert!(took < Duration::from_millis(50), "{took:?}: all are seen, nothing is waited for");
    assert_eq!(fixture.actuator.launches().len(), 3, "all in one plan");
    assert_eq!(fixture.actuator.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn launches_wait_a_second_for_pods_that_never_come() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.replica_set("web", 3);
    fixture.pending_pod("web-0", Some("web"));
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn launches_wait_ten_seconds_at_most() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.replica_set("web", 100);
    let began = tokio::time::Instant::now();
    for index in 0..24 {
        fixture.pending_pod(&format!("web-{index}"), Some("web"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let first = fixture.actuator.with(|state| state.executions[0].0);
    let took = first - began;
    assert!(took >= Duration::from_secs(10) && took < Duration::from_millis(10_600), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_owner_does_not_wait_for_others() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.replica_set("web", 3);
    fixture.pending_pod("web-0", Some("web"));
    fixture.pending_pod("alone", None);
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    assert!(took < Duration::from_millis(50), "{took:?}");
    assert_eq!(fixture.actuator.launches(), ["for-default-alone"]);
}
