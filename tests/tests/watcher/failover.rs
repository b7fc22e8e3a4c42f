//! Replicas crash, stall and restart.

use crate::actuator::{FakeActuator, Then};
use crate::stage::Stage;
use std::time::Duration;
use tonic::Code;

/// Maximum delay of a plan by a crashed or stalled scheduler.
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_dead_scheduler_costs_less_than_a_second() {
    let (stage, _watcher) = Stage::with_watcher().await;
    stage.pending_pod("a", None);
    stage.until("a launch was requested", || stage.actuator.executions() == 1).await;
    assert_eq!(stage.schedulers[1].plans(), 0, "the session is sticky");
    stage.network.kill("scheduler-0");
    stage.pending_pod("b", None);
    let took = stage.until("a launch was requested", || stage.actuator.executions() == 2).await;
    assert!(took < SECOND, "{took:?}");
    assert_eq!(stage.schedulers[1].with(|state| (state.sessions, state.full)), (1, 1), "it got a full snapshot");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_scheduler_costs_less_than_a_second() {
    let (stage, _watcher) = Stage::with_watcher().await;
    stage.schedulers[0].with(|state| state.stalled = true);
    stage.pending_pod("a", None);
    let took = stage.until("a launch was requested", || stage.actuator.executions() == 1).await;
    assert!(took < SECOND, "{took:?}");
    stage.pending_pod("b", None);
    let took = stage.until("a launch was requested", || stage.actuator.executions() == 2).await;
    assert!(took < SECOND / 10, "{took:?}: the watcher stays with the replica that responds");
}

#[tokio::test(start_paused = true)]
async fn a_pending_pod_does_not_wait_for_a_search_for_removals() {
    let stage = Stage::new();
    let replica = &stage.schedulers[0];
    replica.with(|state| state.slow_removals = true);
    // No pod waits, so the first plan is only about removals.
    let _watcher = stage.watcher("watcher-0", &["actuator-0"]);
    stage.until("removals are searched for", || replica.with(|state| state.unanswered_removals) == 1).await;
    stage.pending_pod("a", None);
    let took = stage.until("a launch was requested", || stage.actuator.executions() == 1).await;
    assert!(took < SECOND / 5, "{took:?}");
    assert_eq!(replica.with(|state| (state.sessions, state.full)), (1, 1), "the session goes on");
    assert_eq!(stage.schedulers[1].with(|state| state.sessions), 0);
}

/// Otherwise, pods that keep arriving would prevent removals.
#[tokio::test(start_paused = true)]
async fn a_search_for_removals_that_is_wanted_for_long_goes_on_although_a_pod_arrives() {
    let stage = Stage::new();
    let replica = &stage.schedulers[0];
    replica.with(|state| state.slow_removals = true);
    let _watcher = stage.watcher("watcher-0", &["actuator-0"]);
    let searches = || replica.with(|state| state.unanswered_removals);
    // In the first 10 s, each pod ends a search, and another one follows.
    for count in 1..=5 {
        stage.until("removals are searched for", || searches() == count).await;
        stage.pass(2).await;
        stage.pending_pod(&format!("web-{count}"), None);
    }
    stage.until("removals are searched for", || searches() == 6).await;
    stage.pending_pod("late", None);
    stage.pass(1).await;
    assert_eq!(searches(), 6, "the search goes on");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_forgot_gets_a_full_snapshot() {
    let (stage, _watcher) = Stage::with_watcher().await;
    let before = stage.schedulers[0].with(|state| {
        state.forget = true;
        state.full
    });
    stage.pending_pod("a", None);
    stage.until("a launch was requested", || stage.actuator.executions() == 1).await;
    assert_eq!(stage.schedulers[0].with(|state| (state.sessions, state.full)), (1, before + 1));
}

#[tokio::test(start_paused = true)]
async fn the_standby_is_warm_and_drives_only_once_it_leads() {
    let (stage, first) = Stage::with_watcher().await;
    let second = stage.watcher("watcher-1", &["actuator-0"]);
    stage.until("the standby is ready", || second.readiness.is_ready()).await;
    stage.pending_pod("a", None);
    stage.pass(5).await;
    assert_eq!(stage.actuator.executions(), 1);
    first.kill(&stage.network);
    stage.pending_pod("b", None);
    // The lease has to expire first.
    let took = stage.until("a launch was requested", || stage.actuator.executions() == 2).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    let drivers: Vec<_> = stage.actuator.with(|state| {
        state
            .executions
            .iter()
            .map(|(_, execution)| (execution.driver.identity.clone(), execution.driver.transitions))
            .collect()
    });
    assert_eq!((drivers[0].0.as_str(), drivers[1].0.as_str()), ("watcher-0", "watcher-1"));
    assert!(drivers[1].1 > drivers[0].1, "{drivers:?}: the newer driver has more transitions");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_stops_gives_its_lease_up() {
    let (stage, first) = Stage::with_watcher().await;
    let second = stage.watcher("watcher-1", &["actuator-0"]);
    stage.until("the standby is ready", || second.readiness.is_ready()).await;
    first.shutdown.start();
    first.task.await.unwrap().unwrap();
    stage.pending_pod("a", None);
    let took = stage.until("a launch was requested", || stage.actuator.executions() == 1).await;
    assert!(took < Duration::from_secs(4), "{took:?}: the lease need not run out");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_lost_its_lease_stops_driving() {
    use plimsoll_sim::apiserver::faults::{Effect, Matcher};
    let (stage, first) = Stage::with_watcher().await;
    let mut lease = Matcher::client("watcher-0");
    lease.resource = Some("leases");
    stage.server.faults().always(lease, Effect::Drop);
    stage.until("it no longer leads", || first.metrics_say("plimsoll_watcher_leading 0\n")).await;
    stage.pending_pod("a", None);
    stage.pass(30).await;
    assert_eq!(stage.actuator.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_actuator_that_leads_is_followed() {
    let stage = Stage::new();
    let other = FakeActuator::start(&stage.network, "actuator-1");
    stage.actuator.with(|state| state.standby_of = Some("actuator-1".to_owned()));
    let watcher = stage.watcher("watcher-0", &["actuator-0", "actuator-1"]);
    stage.until("it is ready", || watcher.readiness.is_ready()).await;
    stage.pending_pod("a", None);
    stage.until("a launch was requested", || other.executions() == 1).await;
    // The same with the roles exchanged.
    stage.actuator.with(|state| {
        state.standby_of = None;
        state.position.epoch = 2;
    });
    stage.network.kill("actuator-1");
    stage.pass(1).await;
    stage.delete_pod("a");
    stage.pending_pod("b", None);
    stage.until("a launch was requested", || stage.actuator.launches().contains(&"for-default-b".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn where_a_plan_is_withheld_one_without_removals_is_asked_for() {
    let (stage, watcher) = Stage::with_watcher().await;
    stage.schedulers.iter().for_each(|scheduler| scheduler.with(|state| state.withhold = true));
    stage.pending_pod("a", None);
    let took = stage.until("a launch was requested", || stage.actuator.executions() == 1).await;
    assert!(took < SECOND / 10, "{took:?}");
    assert_eq!(stage.schedulers[1].plans(), 0, "another replica would say the same");
    let withheld = |line: &str| line.starts_with("plimsoll_watcher_plans_total{result=\"withheld\"}");
    assert!(watcher.metrics.encode().unwrap().lines().any(withheld));
}

/// Snapshots show what becomes of the actions.
#[tokio::test(start_paused = true)]
async fn an_execution_that_takes_longer_than_its_outcomes_are_reported_has_not_failed() {
    let (stage, watcher) = Stage::with_watcher().await;
    stage.actuator.with(|state| state.then = Then::Fail(Code::DeadlineExceeded));
    stage.pending_pod("a", None);
    stage.until("a launch was requested", || stage.actuator.executions() == 1).await;
    stage.pass(60).await;
    assert_eq!(stage.actuator.executions(), 1, "nothing is sent again");
    for line in ["executions_total{result=\"failed\"} 0\n", "executions_total{result=\"sent\"} 1\n"] {
        assert!(watcher.metrics_say(line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_too_many_open_executions_the_oldest_is_given_up() {
    let (stage, _watcher) = Stage::with_watcher().await;
    stage.actuator.with(|state| state.then = Then::StayOpen);
    for count in 1..=66 {
        stage.pending_pod(&format!("web-{count}"), None);
        stage.until("a launch was requested", || stage.actuator.executions() == count).await;
    }
    stage.pass(1).await;
    assert_eq!(stage.actuator.with(|state| state.open), 64);
}
