//! Metrics of voluntary disruption: which removals were admitted and how they ended.

use super::node_claims::disruption_name;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use prometheus::IntCounterVec;

/// Metrics of voluntary disruption. Clones share them.
#[derive(Debug, Clone)]
pub struct DisruptionMetrics {
    decisions: IntCounterVec,
    by_pool: IntCounterVec,
    failures: IntCounterVec,
    rejections: IntCounterVec,
}

/// Reasons that the planner chooses; expiry and interruption are not voluntary.
const VOLUNTARY: [DisruptionReason; 3] =
    [DisruptionReason::Empty, DisruptionReason::Underutilized, DisruptionReason::Drifted];

/// How decisions differ from Karpenter's.
const ONE_NODE: &str = "Counts admitted removals, one per node. Karpenter counts commands, which may remove several nodes; consolidation \
     of several nodes at once is not told apart, so consolidation_type is never multi.";

impl DisruptionMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let karpenter = metrics.karpenter_but(ONE_NODE);
        let labels = ["decision", "reason", "consolidation_type"];
        let created = Self {
            decisions: karpenter.counters(
                "voluntary_disruption_decisions_total",
                "Nodes whose removal was admitted.",
                &labels,
            )?,
            by_pool: karpenter.counters(
                "voluntary_disruption_decisions_by_nodepool_total",
                "Nodes whose removal was admitted, by NodePool.",
                &["nodepool", "decision", "reason", "consolidation_type"],
            )?,
            failures: karpenter.counters(
                "voluntary_disruption_queue_failures_total",
                "Admitted removals that were undone.",
                &labels,
            )?,
            rejections: karpenter.counters(
                "voluntary_disruption_failed_validations_total",
                "Planned removals that were rejected at admission.",
                &["consolidation_type"],
            )?,
        };
        // Series that exist from the start, so that the first removal shows as an increase.
        for reason in VOLUNTARY {
            for decision in ["delete", "replace"] {
                let values = [decision, disruption_name(reason), consolidation_type(reason)];
                created.decisions.with_label_values(&values);
                created.failures.with_label_values(&values);
            }
            created.rejections.with_label_values(&[consolidation_type(reason)]);
        }
        Ok(created)
    }

    /// Counts an admitted removal, with or without replacement.
    pub fn admitted(&self, pool: &str, reason: DisruptionReason, replaced: bool) {
        if reason.is_forced() {
            return;
        }
        let values = labels(reason, replaced);
        self.decisions.with_label_values(&values).inc();
        let [decision, reason, kind] = values;
        self.by_pool.with_label_values(&[pool, decision, reason, kind]).inc();
    }

    /// Counts a removal that was undone.
    pub fn undone(&self, reason: DisruptionReason, replaced: bool) {
        if !reason.is_forced() {
            self.failures.with_label_values(&labels(reason, replaced)).inc();
        }
    }

    /// Counts a removal that was rejected at admission.
    pub fn rejected(&self, reason: DisruptionReason) {
        if !reason.is_forced() {
            self.rejections.with_label_values(&[consolidation_type(reason)]).inc();
        }
    }
}

fn labels(reason: DisruptionReason, replaced: bool) -> [&'static str; 3] {
    [if replaced { "replace" } else { "delete" }, disruption_name(reason), consolidation_type(reason)]
}

fn consolidation_type(reason: DisruptionReason) -> &'static str {
    match reason {
        DisruptionReason::Empty => "empty",
        DisruptionReason::Underutilized => "single",
        DisruptionReason::Drifted | DisruptionReason::Expired | DisruptionReason::Interrupted => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voluntary_removals_are_counted_by_decision_and_forced_ones_are_not() {
        let metrics = Metrics::new("actuator");
        let disruption = DisruptionMetrics::new(&metrics).unwrap();
        disruption.admitted("default", DisruptionReason::Underutilized, true);
        disruption.admitted("default", DisruptionReason::Empty, false);
        disruption.admitted("default", DisruptionReason::Expired, false);
        disruption.undone(DisruptionReason::Underutilized, true);
        disruption.rejected(DisruptionReason::Drifted);
        let text = metrics.encode().unwrap();
        let name = "karpenter_voluntary_disruption";
        for line in [
            "_decisions_total{consolidation_type=\"single\",decision=\"replace\",reason=\"underutilized\"} 1",
            "_decisions_total{consolidation_type=\"empty\",decision=\"delete\",reason=\"empty\"} 1",
            "_decisions_total{consolidation_type=\"\",decision=\"delete\",reason=\"drifted\"} 0",
            "_queue_failures_total{consolidation_type=\"single\",decision=\"replace\",reason=\"underutilized\"} 1",
            "_failed_validations_total{consolidation_type=\"\"} 1",
        ] {
            assert!(text.contains(&format!("\n{name}{line}\n")), "{line}: {text}");
        }
        assert!(!text.contains("expired"), "{text}");
        assert_eq!(text.matches("decisions_by_nodepool_total{").count(), 2, "no pool is counted before its first");
    }
}
