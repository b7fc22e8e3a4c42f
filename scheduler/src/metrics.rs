//! What a replica counts.

use plimsoll_runtime::metrics::{Metrics, MetricsError};
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};

/// The scheduler's own metrics; calls are counted by `plimsoll_runtime::rpc`.
#[derive(Debug, Clone)]
pub struct SchedulerMetrics {
    /// Sessions that are open.
    pub sessions: IntGauge,
    /// Plans made, by who asked: `session` or `outside`.
    pub plans: IntCounterVec,
    /// Time to solve and check, whoever asked.
    pub solve_seconds: Histogram,
    /// How far plans of sessions that launch may be from the optimum, as a share of their lower bound.
    pub plan_gap_ratio: Histogram,
    /// Plans that failed their check and were given to nobody.
    pub invalid_plans: IntCounter,
    /// Full snapshots that had to be asked for, by cause: `gap`, `checksum`, `overflow`, `sequence`.
    pub resyncs: IntCounterVec,
    /// Requests of outside callers that were refused because there were too many.
    pub refused: IntCounter,
    /// Catalogs in the shared cache.
    pub catalogs: IntGauge,
}

impl SchedulerMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            sessions: metrics.gauge("sessions", "Sessions that are open.")?,
            plans: metrics.counters("plans_total", "Plans made, by who asked.", &["caller"])?,
            solve_seconds: metrics.latency("solve_seconds", "Time to solve and to check the plan.")?,
            plan_gap_ratio: metrics
                .ratio("plan_gap_ratio", "How far the cost of plans that launch may be above the optimum.")?,
            invalid_plans: metrics.counter("invalid_plans_total", "Plans that failed their check.")?,
            resyncs: metrics.counters("resyncs_total", "Full snapshots asked for, by cause.", &["cause"])?,
            refused: metrics.counter("outside_refused_total", "Requests refused because there were too many.")?,
            catalogs: metrics.gauge("catalogs", "Catalogs kept for all sessions.")?,
        })
    }
}
