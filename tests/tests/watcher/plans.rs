//! Requests for plans: their early launches, their failures, and what else waits for them.

use crate::fixture::Fixture;
use crate::scheduler::State;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::plan::PlanOptions;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_watcher::service::Settings;
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

impl Fixture {
    /// Sets the state of all schedulers.
    fn set_schedulers(&self, set: impl Fn(&mut State)) {
        self.schedulers.iter().for_each(|scheduler| scheduler.with(&set));
    }

    /// Options of the plans that were asked for. All schedulers have the same list.
    fn asked(&self) -> Vec<PlanOptions> {
        self.schedulers[0].with(|state| state.asked.lock().clone())
    }

    /// Number of requests for plans with removals.
    fn searches(&self) -> usize {
        self.asked().iter().filter(|options| options.disruption).count()
    }
}

#[tokio::test(start_paused = true)]
async fn early_launches_are_executed_once_while_the_rest_of_the_plan_is_made() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    fixture.set_schedulers(|state| (state.early, state.delay) = (true, 5 * SECOND));
    let took = fixture.launch_for("web", 1).await;
    assert!(took < SECOND / 10, "{took:?}");
    fixture.pass(30).await;
    assert_eq!(fixture.actuator.launches(), ["for-default-web"]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_arrives_while_a_plan_is_made_counts_before_its_time_is_over() {
    let fixture = Fixture::new();
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    let settings = Settings { options, ..Settings::default() };
    let watcher = fixture.watcher_with("watcher-0", &["actuator-0"], settings);
    fixture.until("it leads", || watcher.metrics_say("plimsoll_watcher_leading 1\n")).await;
    fixture.until("it has planned", || fixture.plans() > 0).await;
    // Longer than the actuator may take to report an admission.
    fixture.set_schedulers(|state| (state.early, state.delay) = (true, 12 * SECOND));
    fixture.actuator.with(|state| state.reject = Some(OutcomeReason::LimitReached));
    fixture.pending_pod("web", None);
    let took = fixture.until("the launch was requested twice", || fixture.actuator.executions() == 2).await;
    assert!(took < 13 * SECOND, "{took:?}: it failed once, so the next plan repeats it without a pause");
}

#[tokio::test(start_paused = true)]
async fn a_plan_for_pending_pods_is_completed_although_more_pods_arrive() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    fixture.set_schedulers(|state| state.delay = 5 * SECOND);
    for count in 0..5 {
        fixture.pending_pod(&format!("web-{count}"), None);
        fixture.pass(1).await;
    }
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() == 1).await;
    assert!(took < SECOND, "{took:?} after the first five seconds");
    assert_eq!(fixture.actuator.launches(), ["for-default-web-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_scheduler_is_waited_for_if_the_one_that_is_asked_beside_it_fails() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    fixture.schedulers[0].with(|state| state.delay = 2 * SECOND);
    fixture.schedulers[1].with(|state| state.fail = true);
    fixture.pending_pod("web", None);
    let took = fixture.until("a launch was requested", || fixture.actuator.executions() == 1).await;
    assert!(took > 19 * SECOND / 10 && took < 22 * SECOND / 10, "{took:?}");
    assert_eq!(fixture.schedulers[0].with(|state| state.sessions), 1, "its session goes on");
}

/// A scheduler may send it before it reads that nobody needs it.
#[tokio::test(start_paused = true)]
async fn the_end_of_an_abandoned_plan_is_not_taken_for_the_next_plan() {
    let fixture = Fixture::new();
    fixture.schedulers[0].with(|state| state.delay = 3 * SECOND);
    // It is asked because the first one takes long.
    fixture.schedulers[1].with(|state| state.stalled = true);
    let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    fixture.until("removals are searched for", || fixture.searches() == 1).await;
    fixture.pending_pod("web", None);
    fixture.until("a launch was requested", || fixture.actuator.executions() == 1).await;
    for (result, count) in [("abandoned", 1), ("planned", 1)] {
        let line = format!("plimsoll_watcher_plans_total{{result=\"{result}\"}} {count}\n");
        assert!(watcher.metrics_say(&line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_plan_with_removals_delays_no_other_one() {
    let fixture = Fixture::new();
    fixture.set_schedulers(|state| state.delay = 25 * SECOND);
    let _watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    fixture.until("a plan with removals is made", || fixture.plans() > 0).await;
    fixture.set_schedulers(|state| state.delay = Duration::ZERO);
    let before = fixture.searches();
    fixture.pending_pod("web", None);
    let took = fixture.until("removals are planned again", || fixture.searches() > before).await;
    assert!(took < 10 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_with_removals_that_fails_at_once_is_asked_for_again() {
    let fixture = Fixture::new();
    fixture.set_schedulers(|state| state.fail = true);
    let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    let failed = || watcher.metrics_say("plimsoll_watcher_plans_total{result=\"failed\"} 1\n");
    fixture.until("no scheduler has made a plan", failed).await;
    let tries: usize = fixture.schedulers.iter().map(|scheduler| scheduler.with(|state| state.sessions)).sum();
    assert_eq!(tries, 4, "then the next snapshot is planned for");
    fixture.set_schedulers(|state| state.fail = false);
    fixture.until("a plan is made", || fixture.plans() > 0).await;
    assert!(fixture.asked().iter().all(|options| options.disruption));
}

#[tokio::test(start_paused = true)]
async fn a_plan_for_pending_pods_that_times_out_delays_no_removals() {
    let (fixture, watcher) = Fixture::with_watcher().await;
    fixture.pass(1).await;
    fixture.set_schedulers(|state| state.stalled = true);
    fixture.pending_pod("web", None);
    let failed = || watcher.metrics_say("plimsoll_watcher_plans_total{result=\"failed\"} 1\n");
    fixture.until("the plan has timed out", failed).await;
    fixture.set_schedulers(|state| state.stalled = false);
    let before = fixture.searches();
    let took = fixture.until("removals are planned", || fixture.searches() > before).await;
    assert!(took < 10 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_plan_keeps_a_node_whose_removal_was_undone() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    let taint = json!({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": [taint]}});
    fixture.put(ResourceId::NODES, "n1", node, &json!({"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}));
    let is_leaving = |state: &mut State| {
        state.planned.last().is_some_and(|snapshot| snapshot.nodes.iter().any(|node| node.deleting))
    };
    fixture.until("a plan knows of the removal", || fixture.schedulers.iter().any(|one| one.with(is_leaving))).await;
    fixture.patch(ResourceId::NODES, "n1", json!({"spec": {"taints": null}}));
    let is_kept =
        || fixture.asked().last().is_some_and(|options| options.kept_nodes.iter().any(|node| node.as_str() == "n1"));
    let took = fixture.until("the node is kept", is_kept).await;
    assert!(took < SECOND, "{took:?}");
}
