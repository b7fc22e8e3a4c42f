//! Metrics of the planning loop. Only the replica that drives it exports the gauges.

use parking_lot::Mutex;
use plimsoll_model::plan::{Plan, ReasonCode};
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped, count};
use plimsoll_runtime::metrics::spec::Meaning;
use plimsoll_runtime::metrics::{DURATION_BUCKETS_SECONDS, Metrics, MetricsError};
use prometheus::{HistogramVec, IntCounterVec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// A plan for pending pods only, under the name of Karpenter's controller for these.
const PROVISIONER: &str = "provisioner";
/// A plan that may also remove nodes.
const DISRUPTION: &str = "disruption";

/// Metrics of the planning loop. Clones share them.
#[derive(Debug, Clone)]
pub struct PlanningMetrics {
    state: Arc<Mutex<PlanningState>>,
    pub(super) queue_depth: Scraped,
    unfinished: Scraped,
    unschedulable: Scraped,
    ignored: Scraped,
    reasons: Scraped,
    reconciles: IntCounterVec,
    reconcile_seconds: HistogramVec,
    evaluation: HistogramVec,
}

#[derive(Debug, Default)]
pub(super) struct PlanningState {
    /// Since when this replica drives the loop, if it does.
    pub(super) leading: Option<Instant>,
    /// The current plan request, and its start.
    pub(super) current: Option<(&'static str, Instant)>,
    last: Option<LastPlan>,
}

/// Pods that the last plan could not place.
#[derive(Debug)]
struct LastPlan {
    controller: &'static str,
    unschedulable: usize,
    ignored: usize,
    reasons: BTreeMap<&'static str, usize>,
}

/// How the loop differs from Karpenter's two loops.
const ONE_LOOP: &str = "Plimsoll has one loop. controller is disruption for a plan that may also remove nodes, and \
    provisioner for a plan that may not.";
const NO_RUN_ID: &str = "Without scheduling_id, which would be a new series for each plan. controller is disruption \
    for a plan that may also remove nodes, and provisioner for a plan that may not.";
const ALL_REASONS: &str = "One plan covers all reasons and kinds of consolidation, so both labels are empty. The time \
    includes the placing of pending pods.";

impl PlanningMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let (no_id, one_loop) = (metrics.karpenter_but(NO_RUN_ID), metrics.karpenter_but(ONE_LOOP));
        let framework = metrics.shared("controller_runtime_", Meaning::Differs(ONE_LOOP));
        let controller = ["controller"];
        Ok(Self {
            state: Arc::default(),
            queue_depth: no_id.scraped(
                "scheduler_queue_depth",
                "Pods that the plan in progress has to place.",
                &controller,
            )?,
            unfinished: no_id.scraped(
                "scheduler_unfinished_work_seconds",
                "Seconds since the plan in progress was asked for.",
                &controller,
            )?,
            unschedulable: one_loop.scraped(
                "scheduler_unschedulable_pods_count",
                "Pods that the last plan could not place.",
                &controller,
            )?,
            ignored: metrics.karpenter().scraped(
                "scheduler_ignored_pods_count",
                "Pending pods that are not planned because they are invalid or use something unsupported.",
                &[],
            )?,
            reasons: metrics.scraped(
                "unschedulable_pods",
                "Pods that the last plan could not place, by reason code. A pod counts once for each of its codes.",
                &["reason"],
            )?,
            reconciles: framework.counters(
                "reconcile_total",
                "Plans, by result: success or error.",
                &["controller", "result"],
            )?,
            reconcile_seconds: framework.histograms(
                "reconcile_time_seconds",
                "Seconds from asking for a plan to having it.",
                &controller,
                DURATION_BUCKETS_SECONDS,
            )?,
            evaluation: metrics.karpenter_but(ALL_REASONS).histograms(
                "voluntary_disruption_decision_evaluation_duration_seconds",
                "Seconds that a plan that may remove nodes took.",
                &["reason", "consolidation_type"],
                DURATION_BUCKETS_SECONDS,
            )?,
        })
    }

    /// Begins or ends driving. At the end, all state about plans is dropped.
    pub fn lead(&self, leading: bool) {
        *self.state.lock() = PlanningState { leading: leading.then(Instant::now), ..PlanningState::default() };
    }

    /// Records the start of a plan request.
    pub fn began(&self, disruption: bool) {
        self.state.lock().current = Some((controller(disruption), Instant::now()));
    }

    /// Records the result of a plan request.
    pub fn ended(&self, plan: Option<&Plan>) {
        let mut state = self.state.lock();
        let Some((controller, began)) = state.current.take() else { return };
        let seconds = began.elapsed().as_secs_f64();
        self.reconciles.with_label_values(&[controller, if plan.is_some() { "success" } else { "error" }]).inc();
        self.reconcile_seconds.with_label_values(&[controller]).observe(seconds);
        let Some(plan) = plan else { return };
        if controller == DISRUPTION {
            self.evaluation.with_label_values(&["", ""]).observe(seconds);
        }
        let mut reasons: BTreeMap<&'static str, usize> = BTreeMap::new();
        for pod in &plan.unschedulable {
            let codes: BTreeSet<ReasonCode> = pod.reasons.iter().map(|reason| reason.code).collect();
            codes.into_iter().for_each(|code| *reasons.entry(code.as_str()).or_default() += 1);
        }
        let (unschedulable, ignored) = (plan.unschedulable.len(), plan.ignored.len());
        state.last = Some(LastPlan { controller, unschedulable, ignored, reasons });
    }

    /// Records that a plan request was abandoned, which is neither a success nor an error.
    pub fn abandoned(&self) {
        self.state.lock().current = None;
    }

    /// Reads the state.
    pub(super) fn read<T>(&self, read: impl FnOnce(&PlanningState) -> T) -> T {
        read(&self.state.lock())
    }

    /// Writes the gauges that need no snapshot.
    pub(super) fn collect(&self, samples: &mut Samples) {
        let state = self.state.lock();
        if let Some((controller, began)) = state.current {
            let labels = Labels::of(&[("controller", controller)]);
            samples.put(&self.unfinished, &labels, began.elapsed().as_secs_f64());
        }
        let Some(last) = &state.last else { return };
        let labels = Labels::of(&[("controller", last.controller)]);
        samples.put(&self.unschedulable, &labels, count(last.unschedulable));
        samples.put(&self.ignored, &Labels::default(), count(last.ignored));
        for (reason, pods) in &last.reasons {
            samples.put(&self.reasons, &Labels::of(&[("reason", reason)]), count(*pods));
        }
    }
}

fn controller(disruption: bool) -> &'static str {
    if disruption { DISRUPTION } else { PROVISIONER }
}

#[cfg(test)]
mod tests;
