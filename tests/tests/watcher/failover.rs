//! Replicas crash, stall and restart.

use crate::actuator::{FakeActuator, Then};
use crate::fixture::Fixture;
use crate::scheduler::catalogs_of;
use crate::stream::read_once;
use plimsoll_model::time::Millis;
use plimsoll_proto::protocol::PROTOCOL;
use plimsoll_sim::apiserver::ResourceId;
use serde_json::json;
use std::time::Duration;
use tonic::Code;

/// Maximum delay of a plan by a crashed or stalled scheduler.
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_dead_scheduler_costs_less_than_a_second() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.launch_for("a", 1).await;
    assert_eq!(fixture.schedulers[1].plans(), 0, "the session is sticky");
    fixture.network.kill("scheduler-0");
    let took = fixture.launch_for("b", 2).await;
    assert!(took < SECOND, "{took:?}");
    assert_eq!(fixture.schedulers[1].with(|state| (state.sessions, state.full)), (1, 1), "it got a full snapshot");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_scheduler_costs_less_than_a_second() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.schedulers[0].with(|state| state.stalled = true);
    let took = fixture.launch_for("a", 1).await;
    assert!(took < SECOND, "{took:?}");
    let took = fixture.launch_for("b", 2).await;
    assert!(took < SECOND / 10, "{took:?}: the watcher stays with the replica that responds");
}

#[tokio::test(start_paused = true)]
async fn after_slow_plans_another_scheduler_is_asked_before_the_first_leaves_pods_out() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    fixture.schedulers.iter().for_each(|scheduler| scheduler.with(|state| state.delay = 20 * SECOND));
    fixture.launch_for("a", 1).await;
    fixture.pass(60).await;
    fixture.schedulers[1].with(|state| state.delay = Duration::ZERO);
    let took = fixture.launch_for("b", 2).await;
    assert!(took > 14 * SECOND && took < 16 * SECOND, "{took:?}: the first one may be as slow as before");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_stalled_and_still_answered_first_keeps_its_session() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    fixture.schedulers[0].with(|state| state.delay = 2 * SECOND);
    fixture.schedulers[1].with(|state| state.stalled = true);
    for (count, name) in ["a", "b"].into_iter().enumerate() {
        fixture.launch_for(name, count + 1).await;
        fixture.pass(30).await;
    }
    assert_eq!(fixture.schedulers[0].with(|state| (state.sessions, state.full)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_another_scheduler_goes_on_if_the_one_that_stalled_fails() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    fixture.schedulers.iter().for_each(|scheduler| scheduler.with(|state| state.delay = 20 * SECOND));
    fixture.pending_pod("a", None);
    fixture.pass(10).await;
    fixture.network.kill("scheduler-0");
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() == 1).await;
    assert!(took < 12 * SECOND, "{took:?}");
    assert_eq!(fixture.schedulers[1].with(|state| state.sessions), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_search_for_removals_that_all_schedulers_are_too_slow_for_the_next_one_waits_a_minute() {
    let fixture = Fixture::new();
    fixture.schedulers.iter().for_each(|scheduler| scheduler.with(|state| state.slow_removals = true));
    let _watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    let searches = || fixture.schedulers.iter().map(|one| one.with(|state| state.unanswered_removals)).sum::<usize>();
    fixture.until("both search for removals", || searches() == 2).await;
    fixture.until("a plan without removals is made", || fixture.plans() == 1).await;
    fixture.pass(55).await;
    assert_eq!(searches(), 2);
    fixture.until("removals are searched for again", || searches() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_pending_pod_does_not_wait_for_a_search_for_removals() {
    let fixture = Fixture::new();
    let replica = &fixture.schedulers[0];
    replica.with(|state| state.slow_removals = true);
    // No pod waits, so the first plan is only about removals.
    let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    fixture.until("removals are searched for", || replica.with(|state| state.unanswered_removals) == 1).await;
    let took = fixture.launch_for("a", 1).await;
    assert!(took < SECOND / 5, "{took:?}");
    assert_eq!(replica.with(|state| (state.sessions, state.full)), (1, 1), "the session goes on");
    assert_eq!(fixture.schedulers[1].with(|state| state.sessions), 0);
    let failed = "controller_runtime_reconcile_total{controller=\"disruption\",result=\"error\"}";
    assert!(!watcher.metrics_say(failed), "an abandoned plan is no error");
    assert!(watcher.metrics_say("plimsoll_watcher_plans_total{result=\"abandoned\"} 1\n"));
}

/// Otherwise, pods that keep arriving would prevent removals.
#[tokio::test(start_paused = true)]
async fn a_search_for_removals_that_is_wanted_for_long_goes_on_although_a_pod_arrives() {
    let fixture = Fixture::new();
    let replica = &fixture.schedulers[0];
    replica.with(|state| state.slow_removals = true);
    let _watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    let searches = || replica.with(|state| state.unanswered_removals);
    // In the first 10 s, each pod ends a search, and another one follows.
    for count in 1..=5 {
        fixture.until("removals are searched for", || searches() == count).await;
        fixture.pass(2).await;
        fixture.pending_pod(&format!("web-{count}"), None);
    }
    fixture.until("removals are searched for", || searches() == 6).await;
    fixture.pending_pod("late", None);
    fixture.pass(1).await;
    assert_eq!(searches(), 6, "the search goes on");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_forgot_gets_a_full_snapshot() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    let before = fixture.schedulers[0].with(|state| {
        state.forget = 1;
        state.full
    });
    fixture.launch_for("a", 1).await;
    assert_eq!(fixture.schedulers[0].with(|state| (state.sessions, state.full)), (1, before + 1));
}

/// It cannot keep what it is sent.
#[tokio::test(start_paused = true)]
async fn a_scheduler_that_forgets_every_snapshot_is_given_up() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    fixture.schedulers[0].with(|state| state.forget = u32::MAX);
    let took = fixture.launch_for("a", 1).await;
    assert!(took < SECOND / 5, "{took:?}");
    assert_eq!(fixture.schedulers[1].with(|state| state.sessions), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_of_unknown_kinds_are_expected_only_of_later_versions() {
    for (protocol, sessions_of_the_other) in [(PROTOCOL, 1), (PROTOCOL + 1, 0)] {
        let fixture = Fixture::new();
        fixture.schedulers[0].with(|state| (state.protocol, state.unknown_message) = (protocol, true));
        let _watcher = fixture.watcher("watcher-0", &["actuator-0"]);
        fixture.launch_for("a", 1).await;
        assert_eq!(fixture.schedulers[1].with(|state| state.sessions), sessions_of_the_other, "{protocol}");
    }
}

/// It drops what it does not know, and computes the checksum of the rest.
#[tokio::test(start_paused = true)]
async fn the_checksums_for_a_scheduler_are_of_what_its_version_knows() {
    for protocol in [0, 2, PROTOCOL, PROTOCOL + 1] {
        let fixture = Fixture::new();
        let (scheduler, other) = (&fixture.schedulers[0], &fixture.schedulers[1]);
        scheduler.with(|state| state.protocol = protocol);
        let quota = |name: &str| {
            let object = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityQuota",
                "metadata": {"name": name}, "spec": {"limits": {"resources": {"nodes": 9}}}});
            fixture.put(ResourceId::CAPACITY_QUOTAS, name, object, &json!({}));
        };
        quota("first");
        let _watcher = fixture.watcher("watcher-0", &["actuator-0"]);
        fixture.until("a plan was made", || scheduler.plans() > 0).await;
        quota("second");
        fixture.pending_pod("a", None);
        fixture.until("a launch was requested", || fixture.actuator.executions() == 1).await;
        fixture.pass(1).await;
        assert_eq!(scheduler.with(|state| (state.sessions, state.full)), (1, 1), "{protocol}: the rest are deltas");
        assert_eq!(other.with(|state| state.sessions), 0, "{protocol}");
        let known = scheduler.with(|state| state.planned.last().map(|snapshot| snapshot.capacity_quotas.len()));
        assert_eq!(known, Some(if protocol < 3 { 0 } else { 2 }), "{protocol}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_catalog_is_sent_only_to_a_scheduler_that_lacks_it() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    let (first, second) = (&fixture.schedulers[0], &fixture.schedulers[1]);
    assert_eq!(first.with(|state| state.catalogs), 1);
    fixture.launch_for("a", 1).await;
    assert_eq!(first.with(|state| state.catalogs), 1, "it has the catalog");
    first.with(|state| state.forget_catalogs = true);
    fixture.pending_pod("b", None);
    fixture.until("the catalog is sent again", || first.with(|state| state.catalogs) == 2).await;
    fixture.until("a launch was requested", || fixture.actuator.executions() == 2).await;
    // The second replica has the catalog from another client.
    let known = first.with(|state| catalogs_of(&state.planned[0]));
    assert_eq!(known.len(), 1);
    second.with(|state| state.known_catalogs = known);
    fixture.network.kill("scheduler-0");
    fixture.launch_for("c", 3).await;
    assert_eq!(second.with(|state| (state.sessions, state.full, state.catalogs)), (1, 1, 0));
}

/// During a plan, a scheduler reads only the next message: a catalog would keep an abandoned plan from ending.
#[tokio::test(start_paused = true)]
async fn a_catalog_comes_after_the_snapshot_that_needs_it() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.launch_for("a", 1).await;
    assert_eq!(fixture.schedulers[0].with(|state| (state.catalogs, state.early_catalogs)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_standby_is_warm_and_drives_only_once_it_leads() {
    let (fixture, first) = Fixture::with_watcher().await;
    let second = fixture.watcher("watcher-1", &["actuator-0"]);
    fixture.until("the standby is ready", || second.readiness.is_ready()).await;
    fixture.pending_pod("a", None);
    fixture.pass(5).await;
    assert_eq!(fixture.actuator.executions(), 1);
    assert!(second.metrics_say("\nplimsoll_watcher_snapshots_total 0\n"), "nobody reads them");
    let read = tokio::time::timeout(10 * SECOND, read_once(&fixture, "watcher-1")).await.unwrap();
    assert_eq!(read.snapshot().unwrap().node_pools.len(), 1);
    assert!(second.metrics_say("\nplimsoll_watcher_snapshots_total 1\n"), "made for its client");
    first.kill(&fixture.network);
    fixture.pending_pod("b", None);
    // The lease has to expire first.
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() == 2).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    let drivers: Vec<_> = fixture.actuator.with(|state| {
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
    let (fixture, first) = Fixture::with_watcher().await;
    let second = fixture.watcher("watcher-1", &["actuator-0"]);
    fixture.until("the standby is ready", || second.readiness.is_ready()).await;
    first.shutdown.start();
    first.task.await.unwrap().unwrap();
    let took = fixture.launch_for("a", 1).await;
    assert!(took < Duration::from_secs(4), "{took:?}: the lease need not run out");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_lost_its_lease_stops_driving() {
    use plimsoll_sim::apiserver::faults::{Effect, Matcher};
    let (fixture, first) = Fixture::with_watcher().await;
    let mut lease = Matcher::client("watcher-0");
    lease.resource = Some("leases");
    fixture.server.faults().always(lease, Effect::Drop);
    fixture.until("it no longer leads", || first.metrics_say("plimsoll_watcher_leading 0\n")).await;
    fixture.pending_pod("a", None);
    fixture.pass(30).await;
    assert_eq!(fixture.actuator.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_lost_its_lease_ends_its_session() {
    use plimsoll_sim::apiserver::faults::{Effect, Matcher};
    let (fixture, first) = Fixture::with_watcher().await;
    fixture.launch_for("a", 1).await;
    let open = || fixture.schedulers.iter().map(|scheduler| scheduler.with(|state| state.open)).sum::<usize>();
    assert_eq!(open(), 1);
    let mut lease = Matcher::client("watcher-0");
    lease.resource = Some("leases");
    fixture.server.faults().always(lease, Effect::Drop);
    fixture.until("it no longer leads", || first.metrics_say("plimsoll_watcher_leading 0\n")).await;
    fixture.until("the session has ended", || open() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn the_actuator_that_leads_is_followed() {
    let fixture = Fixture::new();
    let other = FakeActuator::start(&fixture.network, "actuator-1");
    fixture.actuator.with(|state| state.standby_of = Some("actuator-1".to_owned()));
    let watcher = fixture.watcher("watcher-0", &["actuator-0", "actuator-1"]);
    fixture.until("it is ready", || watcher.readiness.is_ready()).await;
    fixture.pending_pod("a", None);
    fixture.until("a launch was requested", || other.executions() == 1).await;
    // The same with the roles exchanged.
    fixture.actuator.with(|state| {
        state.standby_of = None;
        state.position.epoch = 2;
    });
    fixture.network.kill("actuator-1");
    fixture.pass(1).await;
    fixture.delete_pod("a");
    fixture.pending_pod("b", None);
    fixture.until("a launch was requested", || fixture.actuator.launches().contains(&"for-default-b".to_owned())).await;
}

/// Otherwise a claim that is gone would take pods and count against limits for ever.
#[tokio::test(start_paused = true)]
async fn the_ledger_of_a_new_leader_replaces_that_of_the_former_one() {
    let fixture = Fixture::new();
    let former = FakeActuator::start(&fixture.network, "actuator-1");
    fixture.actuator.with(|state| state.standby_of = Some("actuator-1".to_owned()));
    let watcher = fixture.watcher("watcher-0", &["actuator-0", "actuator-1"]);
    fixture.until("it is ready", || watcher.readiness.is_ready()).await;
    fixture.pending_pod("a", None);
    fixture.until("a launch was requested", || former.executions() == 1).await;
    fixture.delete_pod("a");
    fixture.pass(1).await;
    let claims = || {
        let snapshot = fixture.schedulers[0].with(|state| state.planned.last().cloned().unwrap());
        snapshot.nodes.into_iter().filter_map(|node| node.node_claim).collect::<Vec<_>>()
    };
    assert_eq!(claims(), ["claim-for-default-a"]);
    fixture.actuator.with(|state| {
        state.standby_of = None;
        state.position.epoch = 2;
    });
    fixture.network.kill("actuator-1");
    fixture.pass(5).await;
    assert_eq!(claims(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn where_a_plan_is_withheld_one_without_removals_is_asked_for() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    fixture.schedulers.iter().for_each(|scheduler| scheduler.with(|state| state.withhold = true));
    let took = fixture.launch_for("a", 1).await;
    assert!(took < SECOND / 10, "{took:?}");
    assert_eq!(fixture.schedulers[1].plans(), 0, "another replica would say the same");
    // Removals are asked for again, although nothing changes.
    fixture.pass(2).await;
    assert!(!watcher.metrics_say("plimsoll_watcher_plans_total{result=\"withheld\"} 0\n"));
    let plans = fixture.plans();
    fixture.schedulers.iter().for_each(|scheduler| scheduler.with(|state| state.withhold = false));
    fixture.pass(70).await;
    assert_eq!(fixture.plans(), plans + 1);
}

/// The plan without removals knows an earlier time at which it changes.
#[tokio::test(start_paused = true)]
async fn after_a_withheld_plan_the_next_one_is_asked_for_when_the_plan_changes() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.schedulers.iter().for_each(|scheduler| {
        scheduler.with(|state| (state.withhold, state.next_time) = (true, Some(Millis::from_seconds(10))));
    });
    fixture.launch_for("a", 1).await;
    fixture.pass(2).await;
    let plans = fixture.plans();
    fixture.pass(15).await;
    assert!(fixture.plans() > plans);
}

/// Snapshots show what becomes of the actions.
#[tokio::test(start_paused = true)]
async fn an_execution_that_takes_longer_than_its_outcomes_are_reported_has_not_failed() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    fixture.actuator.with(|state| state.then = Then::Fail(Code::DeadlineExceeded));
    fixture.launch_for("a", 1).await;
    fixture.pass(60).await;
    assert_eq!(fixture.actuator.executions(), 1, "nothing is sent again");
    for line in ["executions_total{result=\"failed\"} 0\n", "executions_total{result=\"sent\"} 1\n"] {
        assert!(watcher.metrics_say(line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_too_many_open_executions_the_oldest_is_given_up() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.actuator.with(|state| state.then = Then::StayOpen);
    for count in 1..=66 {
        fixture.launch_for(&format!("web-{count}"), count).await;
    }
    fixture.pass(1).await;
    assert_eq!(fixture.actuator.with(|state| state.open), 64);
}
