//! Metrics of the controllers, under the names that Karpenter's framework gives them.

use plimsoll_runtime::metrics::spec::Meaning;
use plimsoll_runtime::metrics::{DURATION_BUCKETS_SECONDS, Metrics, MetricsError};
use prometheus::{HistogramVec, IntCounterVec};
use std::time::Duration;

/// Metrics of the controllers. Clones share them.
#[derive(Debug, Clone)]
pub struct ReconcileMetrics {
    total: IntCounterVec,
    seconds: HistogramVec,
}

/// How controllers differ from Karpenter's.
const OWN_CONTROLLERS: &str =
    "Plimsoll's own controllers. A controller that does the same as one of Karpenter's has its name.";

impl ReconcileMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let shared = metrics.shared("controller_runtime_", Meaning::Differs(OWN_CONTROLLERS));
        Ok(Self {
            total: shared.counters(
                "reconcile_total",
                "Reconciliations by result: success, requeue_after or error.",
                &["controller", "result"],
            )?,
            seconds: shared.histograms(
                "reconcile_time_seconds",
                "Seconds that a reconciliation took.",
                &["controller"],
                DURATION_BUCKETS_SECONDS,
            )?,
        })
    }

    /// The metrics of a controller.
    #[must_use]
    pub fn of(&self, controller: &'static str) -> ControllerMetrics {
        ControllerMetrics { name: controller, metrics: self.clone() }
    }
}

/// Metrics of one controller.
#[derive(Debug, Clone)]
pub struct ControllerMetrics {
    name: &'static str,
    metrics: ReconcileMetrics,
}

impl ControllerMetrics {
    /// Plimsoll's name of the controller, for logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Observes a reconciliation.
    pub fn observe(&self, result: &'static str, took: Duration) {
        let controller = karpenters_name(self.name);
        self.metrics.total.with_label_values(&[controller, result]).inc();
        self.metrics.seconds.with_label_values(&[controller]).observe(took.as_secs_f64());
    }
}

/// Karpenter's name of a controller that does the same.
fn karpenters_name(controller: &'static str) -> &'static str {
    match controller {
        "lifecycle" => "nodeclaim.lifecycle",
        "termination" => "node.termination",
        "removal" => "disruption.queue",
        "node_claim_status" => "nodeclaim.disruption",
        "node_pool_status" => "nodepool.counter",
        "node_class" => "nodeclass",
        "tagging" => "nodeclaim.tagging",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconciliations_are_counted_under_karpenters_names() {
        let metrics = Metrics::new("actuator");
        let reconciles = ReconcileMetrics::new(&metrics).unwrap();
        reconciles.of("lifecycle").observe("success", Duration::from_millis(30));
        reconciles.of("orphans").observe("error", Duration::from_secs(2));
        let text = metrics.encode().unwrap();
        for line in [
            "controller_runtime_reconcile_total{controller=\"nodeclaim.lifecycle\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"orphans\",result=\"error\"} 1",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"nodeclaim.lifecycle\",le=\"0.025\"} 0",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"nodeclaim.lifecycle\",le=\"0.05\"} 1",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
    }
}
