//! Metrics of NodeClaims: how many come and go, and why.

use super::view::{label_of, pool_of, seconds_between};
use jiff::Timestamp;
use plimsoll_api::condition::{self, node_claim::DISRUPTION_REASON, node_claim::LAUNCHED};
use plimsoll_api::node_pool::ConsolidationPolicy;
use plimsoll_api::{NodeClaim, NodePool};
use plimsoll_model::names::{annotation, label};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use prometheus::{HistogramVec, IntCounterVec};

/// Metrics of NodeClaims. Clones share them.
#[derive(Debug, Clone)]
pub struct ClaimMetrics {
    created: IntCounterVec,
    terminated: IntCounterVec,
    disrupted: IntCounterVec,
    unhealthy_disrupted: IntCounterVec,
    pods_disrupted: IntCounterVec,
    terminations: HistogramVec,
    instance_terminations: HistogramVec,
    registrations: HistogramVec,
}

/// Upper bounds of registration times in seconds: an ordinary boot takes half a minute, metal types take many minutes,
/// and after 15 minutes a claim is given up.
const REGISTRATION_BUCKETS: [f64; 10] = [15.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 900.0];

/// Labels of a disruption.
const DISRUPTION: [&str; 5] = ["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"];

impl ClaimMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let karpenter = metrics.karpenter();
        let doubling = |count: i32| -> Vec<f64> { (0..count).map(|power| 2.0_f64.powi(power)).collect() };
        Ok(Self {
            created: karpenter.counters(
                "nodeclaims_created_total",
                "NodeClaims created, by the reason: provisioned, or that of the disruption that they replace a node for.",
                &["reason", "nodepool", "min_values_relaxed"],
            )?,
            terminated: karpenter.counters(
                "nodeclaims_terminated_total",
                "NodeClaims that are gone together with their instance.",
                &["nodepool", "capacity_type", "zone"],
            )?,
            disrupted: karpenter.counters("nodeclaims_disrupted_total", "NodeClaims deleted, by reason.", &DISRUPTION)?,
            unhealthy_disrupted: karpenter.counters(
                "nodeclaims_unhealthy_disrupted_total",
                "NodeClaims deleted because a condition of their Node was bad for too long.",
                &["condition", "nodepool", "capacity_type", "image_id"],
            )?,
            pods_disrupted: karpenter.counters(
                "pods_disruption_initiated_total",
                "Pods that had to be rescheduled because of a disruption.",
                &DISRUPTION,
            )?,
            terminations: karpenter.histograms(
                "nodeclaims_termination_duration_seconds",
                "Seconds from the deletion of a NodeClaim until it is gone.",
                &["nodepool"],
                &doubling(12),
            )?,
            instance_terminations: karpenter.histograms(
                "nodeclaims_instance_termination_duration_seconds",
                "Seconds from the call that terminates an instance until it is gone.",
                &["nodepool"],
                &doubling(11),
            )?,
            registrations: metrics.histograms(
                "node_registration_seconds",
                "Seconds from the launch of an instance until its Node registered.",
                &["instance_type"],
                &REGISTRATION_BUCKETS,
            )?,
        })
    }

    /// Counts a created claim. `replaces` is the reason of the removal that waits for it.
    pub fn created(&self, claim: &NodeClaim, replaces: Option<DisruptionReason>) {
        let pool = claim.node_pool();
        let reason = replaces.map_or("provisioned", disruption_name);
        let annotations = claim.metadata.annotations.as_ref();
        let relaxed =
            annotations.and_then(|all| all.get(annotation::MIN_VALUES_RELAXED)).map_or("false", String::as_str);
        self.created.with_label_values(&[reason, pool, relaxed]).inc();
    }

    /// Records how long the instance of a claim took to register as a Node at `now`.
    pub fn registered(&self, claim: &NodeClaim, now: Timestamp) {
        let Some(launched) = claim.true_condition(LAUNCHED) else { return };
        let instance_type = label_of(claim.metadata.labels.as_ref(), label::INSTANCE_TYPE);
        let seconds = seconds_between(launched.last_transition_time.0, now);
        self.registrations.with_label_values(&[instance_type]).observe(seconds);
    }

    /// Counts a claim that is deleted for `reason`, with `pods` pods to reschedule.
    pub fn disrupted(&self, claim: &NodeClaim, reason: &str, pool: Option<&NodePool>, pods: usize) {
        let labels = claim.metadata.labels.as_ref();
        let policy =
            if matches!(reason, "empty" | "underutilized") { pool.map_or("", consolidation_policy) } else { "" };
        let mode = match &claim.spec.termination_grace_period {
            None => "graceful",
            Some(period) if period.value().is_zero() => "forceful",
            Some(_) => "eventual",
        };
        let values = [reason, pool_of(labels), label_of(labels, label::CAPACITY_TYPE), policy, mode];
        self.disrupted.with_label_values(&values).inc();
        self.pods_disrupted.with_label_values(&values).inc_by(pods as u64);
    }

    /// Counts a claim that is deleted because of a `condition` of its Node.
    pub fn unhealthy_disrupted(&self, claim: &NodeClaim, condition: &str) {
        let labels = claim.metadata.labels.as_ref();
        let image = claim.status.as_ref().and_then(|status| status.image_id.as_deref()).unwrap_or_default();
        let condition = snake_case(condition);
        let values = [&*condition, pool_of(labels), label_of(labels, label::CAPACITY_TYPE), image];
        self.unhealthy_disrupted.with_label_values(&values).inc();
    }

    /// Counts a claim that is gone at `now`.
    pub fn terminated(&self, claim: &NodeClaim, now: Timestamp) {
        let labels = claim.metadata.labels.as_ref();
        let pool = pool_of(labels);
        let values = [pool, label_of(labels, label::CAPACITY_TYPE), label_of(labels, label::ZONE)];
        self.terminated.with_label_values(&values).inc();
        if let Some(deleted) = &claim.metadata.deletion_timestamp {
            self.terminations.with_label_values(&[pool]).observe(seconds_between(deleted.0, now));
        }
        if let Some(condition) = claim.true_condition(condition::node_claim::INSTANCE_TERMINATING) {
            let seconds = seconds_between(condition.last_transition_time.0, now);
            self.instance_terminations.with_label_values(&[pool]).observe(seconds);
        }
    }
}

/// Karpenter's name of a reason in metrics.
pub(crate) fn disruption_name(reason: DisruptionReason) -> &'static str {
    match reason {
        DisruptionReason::Empty => "empty",
        DisruptionReason::Underutilized => "underutilized",
        DisruptionReason::Drifted => "drifted",
        DisruptionReason::Expired => "expired",
        DisruptionReason::Interrupted => "interrupted",
    }
}

/// Why a claim is disrupted; empty if its condition does not tell.
pub(crate) fn disruption_reason(claim: &NodeClaim) -> &'static str {
    let found = claim.true_condition(DISRUPTION_REASON);
    let known = |reason: &DisruptionReason| found.is_some_and(|condition| condition.reason == reason.as_str());
    DisruptionReason::ALL.into_iter().find(known).map_or("", disruption_name)
}

/// Karpenter's spelling of a condition in metrics: `StorageReady` is `storage_ready`.
fn snake_case(condition: &str) -> String {
    let mut name = String::new();
    for letter in condition.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn consolidation_policy(pool: &NodePool) -> &'static str {
    match pool.spec.consolidation_policy() {
        ConsolidationPolicy::WhenEmpty => "when_empty",
        ConsolidationPolicy::WhenEmptyOrUnderutilized => "when_empty_or_underutilized",
        ConsolidationPolicy::Balanced => "balanced",
    }
}

#[cfg(test)]
mod tests;
