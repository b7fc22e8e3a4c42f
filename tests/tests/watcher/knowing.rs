//! Rules 8, 18, 21 and 23: state that is required before a plan, and the time of plans.

use crate::fixture::Fixture;
use crate::scheduler::times;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_sim::apiserver::ApiError;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::clock::START_SECONDS;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn there_is_no_plan_on_half_an_index() {
    let fixture = Fixture::new();
    let gate = Gate::default();
    fixture.server.faults().always(Matcher::of(Verb::List, "nodeclaims"), Effect::HoldBefore(gate.clone()));
    fixture.pending_pod("web", None);
    let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    fixture.until("it leads", || watcher.metrics_say("plimsoll_watcher_leading 1\n")).await;
    fixture.pass(3).await;
    assert!(!watcher.readiness.is_ready());
    let waiting = watcher.readiness.waiting_for();
    assert!(waiting.contains(&"nodeclaims") && waiting.contains(&"pods"), "{waiting:?}: pods are listed last");
    assert_eq!((fixture.plans(), fixture.actuator.executions()), (0, 0));
    gate.open();
    fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    assert!(watcher.readiness.is_ready());
}

/// As after the API server's host has vanished: nothing ends the connection, and its watches show nothing.
#[tokio::test(start_paused = true)]
async fn a_watch_that_went_silent_is_opened_again() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.server.faults().lag_watches("watcher-0", Duration::from_secs(3600));
    fixture.pending_pod("web", None);
    fixture.pass(1).await;
    // The open watch still waits for the hour to pass. A new one shows the pod at once.
    fixture.server.faults().lag_watches("watcher-0", Duration::ZERO);
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    assert!((50..=66).contains(&took.as_secs()), "the time limit of an idle watch, not {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_the_optional_kinds_has_none() {
    let fixture = Fixture::new();
    let missing = Effect::Refuse(ApiError::no_such_path());
    for kind in ["capacitybuffers", "capacityquotas"] {
        fixture.server.faults().always(Matcher::of(Verb::List, kind), missing.clone());
    }
    fixture.pending_pod("web", None);
    let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    assert!(watcher.readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn the_next_plan_waits_for_the_ledger_to_know_the_last_outcome() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.actuator.hold_ledger(true);
    fixture.pending_pod("a", None);
    fixture.until("a launch was requested", || fixture.actuator.executions() > 0).await;
    let plans = fixture.plans();
    fixture.pending_pod("b", None);
    fixture.pass(5).await;
    assert_eq!(
        (fixture.plans(), fixture.actuator.executions()),
        (plans, 1),
        "the ledger does not know of the first launch"
    );
    fixture.actuator.hold_ledger(false);
    fixture.until("the second launch was requested", || fixture.actuator.executions() > 1).await;
    assert_eq!(fixture.actuator.launches(), ["for-default-a", "for-default-b"]);
    let position = fixture.actuator.with(|state| state.executions[1].1.plan.ledger);
    assert!(position.sequence >= 1, "{position:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_launch_is_planned_again_at_once() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.actuator.with(|state| state.fail = 1);
    fixture.pending_pod("web", None);
    fixture.until("a second launch was requested", || fixture.actuator.executions() > 1).await;
    let times: Vec<_> = fixture.actuator.with(|state| state.executions.iter().map(|(at, _)| *at).collect());
    assert!(times[1] - times[0] < Duration::from_millis(100), "{:?}", times[1] - times[0]);
    fixture.pass(30).await;
    assert_eq!(fixture.actuator.executions(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_rejected_for_ever_is_asked_for_less_and_less() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.actuator.with(|state| state.reject = Some(OutcomeReason::LimitReached));
    fixture.pending_pod("web", None);
    fixture.pass(120).await;
    let executions = fixture.actuator.executions();
    assert!((8..=14).contains(&executions), "{executions}: 0, 0.2, 0.4 ... 25.6, then every 30 s");
    // Other pods are not affected.
    fixture.actuator.with(|state| state.reject = None);
    fixture.pending_pod("other", None);
    let before = fixture.actuator.launches().len();
    let took = fixture.until("the other launch is requested", || fixture.actuator.launches().len() > before).await;
    assert!(took < Duration::from_millis(50), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_is_told_in_seconds_and_time_alone_causes_a_plan() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    let before = fixture.plans();
    fixture.schedulers[0].with(|state| state.next_time = Some(Millis(2500)));
    fixture.pending_pod("web", None);
    fixture.pass(10).await;
    let planned = fixture.schedulers[0].with(|state| state.planned.split_off(before));
    assert!(planned.iter().all(|snapshot| snapshot.now.0 % 1000 == 0), "coarsely");
    let times = times(&planned, Timestamp(START_SECONDS * 1000));
    let later: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0).collect();
    assert_eq!(later, [3, 3, 3], "2.5 s later is seen in the third second: {times:?}");
}
