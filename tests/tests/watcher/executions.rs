//! Plans are sent to the actuator that leads, and only while the watcher does.

use crate::actuator::{FakeActuator, Then};
use crate::fixture::{Fixture, NAMESPACE};
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::names::lease;
use plimsoll_runtime::lease::LeaseConfig;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_watcher::service::Settings;
use serde_json::json;
use std::time::Duration;
use tonic::Code;

const NONE_FAILED: &str = "plimsoll_watcher_executions_total{result=\"failed\"} 0\n";

#[tokio::test(start_paused = true)]
async fn a_plan_follows_a_standby_to_its_leader_without_a_pause() {
    let fixture = Fixture::new();
    let leader = FakeActuator::start(&fixture.network, "actuator-1");
    let watcher = fixture.watcher("watcher-0", &["actuator-0", "actuator-1"]);
    fixture.until("it is ready", || watcher.readiness.is_ready()).await;
    fixture.until("it leads", || watcher.metrics_say("plimsoll_watcher_leading 1\n")).await;
    // The streams that are open stay open.
    fixture.actuator.with(|state| state.standby_of = Some("actuator-1".to_owned()));
    fixture.pending_pod("a", None);
    let took = fixture.until("a launch was requested", || leader.executions() == 1).await;
    assert!(took < Duration::from_millis(50), "{took:?}");
    assert!(watcher.metrics_say(NONE_FAILED));
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_gets_no_answer_for_four_seconds_is_sent_again() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    fixture.actuator.with(|state| state.stalled = true);
    fixture.pending_pod("a", None);
    fixture.pass(1).await;
    fixture.actuator.with(|state| state.stalled = false);
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() == 1).await;
    assert!(took > Duration::from_millis(2900) && took < Duration::from_millis(3500), "{took:?}");
    assert!(!watcher.metrics_say(NONE_FAILED));
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_does_not_answer_is_not_followed() {
    let fixture = Fixture::new();
    let _leader = FakeActuator::start(&fixture.network, "actuator-1");
    fixture.actuator.with(|state| state.stalled = true);
    let watcher = fixture.watcher("watcher-0", &["actuator-0", "actuator-1"]);
    let took = fixture.until("it is ready", || watcher.readiness.is_ready()).await;
    assert!(took < Duration::from_secs(7), "{took:?}: a stream is opened within five seconds");
}

#[tokio::test(start_paused = true)]
async fn what_was_reported_in_an_execution_that_failed_is_reported_again() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    for scheduler in &fixture.schedulers {
        scheduler.with(|state| state.impossible.push("web".to_owned()));
    }
    fixture.actuator.with(|state| state.then = Then::Fail(Code::Unavailable));
    fixture.pending_pod("web", None);
    fixture.until("it was reported again", || fixture.actuator.executions() == 3).await;
    let names: Vec<String> = fixture.actuator.with(|state| {
        let unschedulable = state.executions.iter().flat_map(|(_, execution)| &execution.plan.unschedulable);
        unschedulable.map(|one| one.pod.name.clone()).collect()
    });
    assert_eq!(names, ["default/web"; 3]);
}

#[tokio::test(start_paused = true)]
async fn an_open_execution_does_not_give_way_to_those_that_have_ended() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    for count in 1..=66 {
        fixture.actuator.with(|state| state.then = if count == 1 { Then::StayOpen } else { Then::End });
        fixture.launch_for(&format!("web-{count}"), count).await;
    }
    fixture.pass(1).await;
    assert_eq!(fixture.actuator.with(|state| state.open), 1);
}

/// Rule 16: each side effect must end before the lease does.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_that_the_lease_may_not_outlive() {
    let fixture = Fixture::new();
    // The lease of 15 s is given up after 14 s. A call takes up to 4 s, so none may begin in its last 4 s.
    let usual = LeaseConfig::new(NAMESPACE, lease::WATCHER, "watcher-0");
    let config = LeaseConfig { renew_deadline: Duration::from_secs(14), ..usual };
    let watcher = fixture.watcher_with_lease(config, &["actuator-0"], Settings::default());
    fixture.until("it is ready", || watcher.readiness.is_ready()).await;
    fixture.until("it leads", || watcher.metrics_say("plimsoll_watcher_leading 1\n")).await;
    let mut leases = Matcher::client("watcher-0");
    leases.resource = Some("leases");
    fixture.server.faults().always(leases, Effect::Drop);
    // The last renewal was at most 2 s ago.
    tokio::time::sleep(Duration::from_millis(11_500)).await;
    fixture.pending_pod("a", None);
    fixture.until("a plan was not sent", || !watcher.metrics_say(NONE_FAILED)).await;
    assert!(watcher.metrics_say("plimsoll_watcher_leading 1\n"), "the lease is still held");
    fixture.until("it no longer leads", || watcher.metrics_say("plimsoll_watcher_leading 0\n")).await;
    assert_eq!(fixture.actuator.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_watcher_sees_and_sends_is_counted() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    let says = |line: &str| watcher.metrics_say(&format!("\nplimsoll_watcher_{line}\n"));
    fixture.pending_pod("a", None);
    let outcome = |labels: &str| watcher.metrics_say(&format!("\nplimsoll_watcher_outcomes_total{labels} "));
    fixture.until("a launch was admitted", || outcome(r#"{reason="",status="Accepted"}"#)).await;
    fixture.actuator.with(|state| state.reject = Some(OutcomeReason::LimitReached));
    fixture.pending_pod("b", None);
    fixture.until("one was rejected", || outcome(r#"{reason="LimitReached",status="Rejected"}"#)).await;
    let planned = "controller_runtime_reconcile_total{controller=\"provisioner\",result=\"success\"} ";
    assert!(watcher.metrics_say(planned));
    for line in ["sessions_total 1", "full_snapshots_total 1", r#"objects{kind="pods"} 2"#] {
        assert!(says(line), "{line}");
    }
    for never in [
        "snapshots_total 0",
        "snapshot_seconds_count 0",
        "plan_seconds_count 0",
        "snapshot_to_execute_seconds_count 0",
        r#"plans_total{result="planned"} 0"#,
    ] {
        assert!(!says(never), "{never}");
    }
    let port = json!({"containerPort": 3_000_000_000_u32});
    let odd = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd"},
        "spec": {"containers": [{"name": "app", "image": "app", "ports": [port]}]}});
    fixture.put(ResourceId::PODS, "odd", odd, &json!({}));
    fixture.until("it cannot be read", || !says(r#"invalid_objects_total{kind="pods"} 0"#)).await;
    assert!(says(r#"objects{kind="pods"} 2"#), "it is left out");
    fixture.network.kill("actuator-0");
    let broken = |stream: &str| !says(&format!(r#"stream_breaks_total{{stream="{stream}"}} 0"#));
    fixture.until("the streams are broken", || broken("ledger") && broken("catalogs")).await;
}
