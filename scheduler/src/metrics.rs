//! Metrics of a scheduler replica.

use crate::solve::PlanFailure;
use plimsoll_runtime::metrics::{DURATION_BUCKETS_SECONDS, Metrics, MetricsError};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge};

/// The scheduler's own metrics. `plimsoll_runtime::rpc` counts calls.
#[derive(Debug, Clone)]
pub struct SchedulerMetrics {
    /// Open sessions.
    pub sessions: IntGauge,
    /// Plans made, by caller: `session` or `outside`.
    pub plans: IntCounterVec,
    /// Time to solve and check a plan.
    pub solve_seconds: Histogram,
    /// Time to solve a plan of a session, by what it may do, under the names of Karpenter's controllers.
    pub scheduling_seconds: HistogramVec,
    /// Upper bound on the cost of launch plans above the optimum, as a fraction of the lower bound. Only plans of
    /// sessions.
    pub plan_gap_ratio: Histogram,
    /// Plans that failed validation and were withheld.
    pub invalid_plans: IntCounter,
    /// Plans of sessions that were abandoned for a newer snapshot.
    pub abandoned_plans: IntCounter,
    /// Pods that plans of sessions left out because the planner fails for them, by cause: [`PlanFailure::CAUSES`].
    pub left_out: IntCounterVec,
    /// Requested full snapshots, by cause: `RESYNC_CAUSES`.
    pub resyncs: IntCounterVec,
    /// Requests of outside callers that were rejected because of too many requests.
    pub refused: IntCounter,
    /// Catalogs in the shared cache.
    pub catalogs: IntGauge,
}

/// Why a full snapshot is asked for.
const RESYNC_CAUSES: [&str; 4] = ["gap", "checksum", "overflow", "sequence"];

/// How the durations differ from Karpenter's.
const ONE_LOOP: &str = "controller is disruption for a plan that may also remove nodes, and provisioner for a plan that \
    may not. Both place pending pods.";

impl SchedulerMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If a metric is already registered.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        metrics.build_info(env!("CARGO_PKG_VERSION"))?;
        let own = Self {
            sessions: metrics.gauge("sessions", "Sessions that are open.")?,
            plans: metrics.counters("plans_total", "Plans made, by who asked.", &["caller"])?,
            solve_seconds: metrics.latency("solve_seconds", "Time to solve and to check the plan.")?,
            scheduling_seconds: metrics.karpenter_but(ONE_LOOP).histograms(
                "scheduler_scheduling_duration_seconds",
                "Seconds to solve and to check a plan of a session.",
                &["controller"],
                DURATION_BUCKETS_SECONDS,
            )?,
            plan_gap_ratio: metrics.ratio(
                "plan_gap_ratio",
                "How far the cost of plans that launch may be above the optimum. Plans without a lower bound do not count.",
            )?,
            invalid_plans: metrics.counter("invalid_plans_total", "Plans that failed their check.")?,
            abandoned_plans: metrics
                .counter("abandoned_plans_total", "Plans that were not completed because a newer snapshot came.")?,
            left_out: metrics.counters(
                "left_out_pods_total",
                "Pods that plans left out because the planner fails for them, by cause. Counted in each plan.",
                &["cause"],
            )?,
            resyncs: metrics.counters("resyncs_total", "Full snapshots asked for, by cause.", &["cause"])?,
            refused: metrics.counter("outside_refused_total", "Requests refused because there were too many.")?,
            catalogs: metrics.gauge("catalogs", "Catalogs kept for all sessions.")?,
        };
        // Exported before the first event: `increase` does not see the one that makes a series.
        for cause in RESYNC_CAUSES {
            own.resyncs.with_label_values(&[cause]);
        }
        for cause in PlanFailure::CAUSES {
            own.left_out.with_label_values(&[cause]);
        }
        Ok(own)
    }

    /// Counts a plan that failed its check. Panics and time-outs are not counted here.
    pub(crate) fn count_failure(&self, failure: &PlanFailure) {
        if let PlanFailure::Invalid(_) = failure {
            self.invalid_plans.inc();
        }
    }
}
