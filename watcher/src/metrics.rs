//! Metrics of the watcher.

pub mod cluster;
pub(crate) mod outcomes;
pub mod planning;

use crate::index::ObjectKind;
use cluster::ClusterMetrics;
use planning::PlanningMetrics;
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use std::sync::Arc;
use tokio::sync::watch;

/// Streams from the actuator.
const STREAMS: [&str; 2] = ["ledger", "catalogs"];

/// The watcher's metrics. Clones share the same metrics.
#[derive(Debug, Clone)]
pub struct WatcherMetrics {
    /// Objects in the index, by kind.
    pub objects: IntGaugeVec,
    /// Objects that could not be read, by kind.
    pub invalid_objects: IntCounterVec,
    /// Objects missing from the current snapshot.
    pub problems: IntGauge,
    /// Errors of Kubernetes watches, by kind.
    pub watch_errors: IntCounterVec,
    /// Ended streams from the actuator, by stream.
    pub stream_breaks: IntCounterVec,
    /// Snapshots built.
    pub snapshots: IntCounter,
    /// Time to build a snapshot.
    pub snapshot_seconds: Histogram,
    /// Clients that follow snapshots.
    pub subscribers: IntGauge,
    /// 1 if this replica is the leader.
    pub leading: IntGauge,
    /// Plan requests, by result: `planned`, `failed`, `withheld` if a plan with removals failed validation, or
    /// `abandoned` if pods became pending during a search for removals.
    pub plans: IntCounterVec,
    /// Time from plan request to plan.
    pub plan_seconds: Histogram,
    /// Sessions opened with a scheduler.
    pub sessions: IntCounter,
    /// Full snapshots sent to schedulers.
    pub full_snapshots: IntCounter,
    /// Plans sent to the actuator, by result: `sent` or `failed`.
    pub executions: IntCounterVec,
    /// Time from the start of building a snapshot to the Execute call of its plan.
    pub execute_seconds: Histogram,
    /// Action outcomes, by status and reason.
    pub outcomes: IntCounterVec,
    /// Entries of the recording, by result: `queued`, `dropped` if the disk is too slow, or `failed`.
    pub recorded: IntCounterVec,
    /// Pods whose launch waits for other pods of their owner.
    pub waiting_pods: IntGauge,
    /// The planning loop.
    pub planning: PlanningMetrics,
    /// The cluster.
    pub cluster: ClusterMetrics,
}

impl WatcherMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If a metric is already registered.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        metrics.build_info(env!("CARGO_PKG_VERSION"))?;
        let own = Self {
            objects: metrics.gauges("objects", "Objects in the index.", &["kind"])?,
            invalid_objects: metrics.counters("invalid_objects_total", "Objects that could not be read.", &["kind"])?,
            problems: metrics.gauge("snapshot_problems", "Objects left out of the present snapshot.")?,
            watch_errors: metrics.counters("watch_errors_total", "Failures of Kubernetes watches.", &["kind"])?,
            stream_breaks: metrics.counters(
                "stream_breaks_total",
                "Ends of streams from the actuator.",
                &["stream"],
            )?,
            snapshots: metrics.counter("snapshots_total", "Snapshots made.")?,
            snapshot_seconds: metrics.latency("snapshot_seconds", "Time to make a snapshot.")?,
            subscribers: metrics.gauge("subscribers", "Clients that follow snapshots.")?,
            leading: metrics.gauge("leading", "1 while this process leads.")?,
            plans: metrics.counters("plans_total", "Plan requests.", &["result"])?,
            plan_seconds: metrics.latency("plan_seconds", "Time from asking for a plan to having it.")?,
            sessions: metrics.counter("sessions_total", "Sessions opened with a scheduler.")?,
            full_snapshots: metrics.counter("full_snapshots_total", "Full snapshots sent to schedulers.")?,
            executions: metrics.counters("executions_total", "Plans sent to the actuator.", &["result"])?,
            execute_seconds: metrics.latency(
                "snapshot_to_execute_seconds",
                "Time from the making of a snapshot to the Execute call of its plan.",
            )?,
            outcomes: metrics.counters("outcomes_total", "Outcomes of actions.", &["status", "reason"])?,
            recorded: metrics.counters("recorded_total", "Entries of the recording.", &["result"])?,
            waiting_pods: metrics.gauge("waiting_pods", "Pods whose launch waits for others of their owner.")?,
            planning: PlanningMetrics::new(metrics)?,
            cluster: ClusterMetrics::new(metrics)?,
        };
        own.start_at_zero();
        Ok(own)
    }

    /// Exports counters before their first event: `increase` does not include the event that creates a series.
    fn start_at_zero(&self) {
        let kinds: Vec<&str> = ObjectKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let known: [(&IntCounterVec, &[&str]); 6] = [
            (&self.invalid_objects, &kinds),
            (&self.watch_errors, &kinds),
            (&self.stream_breaks, &STREAMS),
            (&self.plans, &["planned", "failed", "withheld", "abandoned"]),
            (&self.executions, &["sent", "failed"]),
            (&self.recorded, &["queued", "dropped", "failed"]),
        ];
        for (counters, values) in known {
            for value in values {
                counters.with_label_values(&[value]);
            }
        }
    }

    /// Writes the gauges of the cluster at each scrape while this replica leads.
    pub fn export<S>(&self, metrics: &Metrics, newest: watch::Receiver<Option<Arc<S>>>, clock: Clock)
    where
        S: AsRef<Snapshot> + Send + Sync + 'static,
    {
        cluster::export(self, metrics, newest, clock);
    }

    /// Begins or ends leading.
    pub fn lead(&self, leading: bool) {
        self.leading.set(i64::from(leading));
        self.waiting_pods.set(0);
        self.planning.lead(leading);
    }

    /// Counts an outcome.
    pub fn outcome(&self, status: OutcomeStatus, reason: Option<OutcomeReason>) {
        self.outcomes.with_label_values(&[outcomes::status(status), outcomes::reason(reason)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_known_events_are_there_before_the_first() {
        let metrics = Metrics::new("watcher");
        WatcherMetrics::new(&metrics).unwrap();
        let text = metrics.encode().unwrap();
        for series in [
            r#"plimsoll_watcher_plans_total{result="withheld"} 0"#,
            r#"plimsoll_watcher_executions_total{result="failed"} 0"#,
            r#"plimsoll_watcher_stream_breaks_total{stream="ledger"} 0"#,
            r#"plimsoll_watcher_watch_errors_total{kind="pods"} 0"#,
        ] {
            assert!(text.lines().any(|line| line == series), "{series} is not in:\n{text}");
        }
    }

    #[test]
    fn outcomes_are_counted_by_status_and_reason() {
        let metrics = WatcherMetrics::new(&Metrics::new("watcher")).unwrap();
        metrics.outcome(OutcomeStatus::Launched, None);
        metrics.outcome(OutcomeStatus::Rejected, Some(OutcomeReason::StaleSnapshot));
        metrics.outcome(OutcomeStatus::Rejected, Some(OutcomeReason::StaleSnapshot));
        let count = |labels: &[&str; 2]| metrics.outcomes.with_label_values(labels).get();
        assert_eq!((count(&["Launched", ""]), count(&["Rejected", "StaleSnapshot"])), (1, 2));
    }
}
