use super::*;
use plimsoll_model::plan::{PodRef, Reason, Unschedulable};
use std::time::Duration;

fn stage() -> (Metrics, PlanningMetrics) {
    let metrics = Metrics::new("watcher");
    let planning = PlanningMetrics::new(&metrics).unwrap();
    let source = planning.clone();
    metrics.add_source(move |samples| source.collect(samples));
    planning.lead(true);
    (metrics, planning)
}

fn unschedulable(name: &str, codes: &[ReasonCode]) -> Unschedulable {
    let reason = |code: &ReasonCode| Reason { node_pool: "default".to_owned(), code: *code, message: String::new() };
    Unschedulable {
        pod: PodRef { name: name.to_owned(), uid: name.into() },
        reasons: Arc::new(codes.iter().map(reason).collect()),
    }
}

fn assert_lines(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.encode().unwrap();
    lines.iter().for_each(|line| assert!(text.lines().any(|own| own == *line), "{line}: {text}"));
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_measured_and_what_it_cannot_place_is_counted_by_reason() {
    let (metrics, planning) = stage();
    planning.began(true);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_lines(&metrics, &["karpenter_scheduler_unfinished_work_seconds{controller=\"disruption\"} 2"]);
    use ReasonCode::{LimitReached, OutOfCapacity};
    let plan = Plan {
        unschedulable: vec![
            unschedulable("a", &[LimitReached, LimitReached, OutOfCapacity]),
            unschedulable("b", &[LimitReached]),
        ],
        ..Plan::default()
    };
    planning.ended(Some(&plan));
    assert_lines(
        &metrics,
        &[
            "karpenter_scheduler_unschedulable_pods_count{controller=\"disruption\"} 2",
            "karpenter_scheduler_ignored_pods_count 0",
            "plimsoll_watcher_unschedulable_pods{reason=\"LimitReached\"} 2",
            "plimsoll_watcher_unschedulable_pods{reason=\"OutOfCapacity\"} 1",
            "controller_runtime_reconcile_total{controller=\"disruption\",result=\"success\"} 1",
            "controller_runtime_reconcile_time_seconds_sum{controller=\"disruption\"} 2",
        ],
    );
    assert!(!metrics.encode().unwrap().contains("unfinished_work_seconds{"), "no plan is being made");
    planning.began(true);
    planning.ended(Some(&Plan::default()));
    let text = metrics.encode().unwrap();
    assert!(!text.contains("plimsoll_watcher_unschedulable_pods{"), "the reasons are gone: {text}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_was_not_made_is_an_error_and_keeps_what_is_known() {
    let (metrics, planning) = stage();
    planning.began(false);
    planning.ended(Some(&Plan { unschedulable: vec![unschedulable("a", &[])], ..Plan::default() }));
    planning.began(false);
    planning.ended(None);
    assert_lines(
        &metrics,
        &[
            "controller_runtime_reconcile_total{controller=\"provisioner\",result=\"error\"} 1",
            "controller_runtime_reconcile_total{controller=\"provisioner\",result=\"success\"} 1",
            "karpenter_scheduler_unschedulable_pods_count{controller=\"provisioner\"} 1",
        ],
    );
    assert!(!metrics.encode().unwrap().contains("evaluation_duration_seconds_count{"), "no plan could remove nodes");
    planning.lead(false);
    assert!(!metrics.encode().unwrap().contains("unschedulable_pods_count{"), "the next leader knows");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_plan_is_no_error() {
    let (metrics, planning) = stage();
    planning.began(true);
    planning.abandoned();
    planning.ended(None);
    let text = metrics.encode().unwrap();
    assert!(!text.contains("reconcile_total{") && !text.contains("unfinished_work_seconds{"), "{text}");
}
