//! Metrics of the actuator: `plimsoll_actuator_*`.

use plimsoll_runtime::metrics::{Metrics, MetricsError};
use prometheus::{HistogramVec, IntCounterVec, IntGauge};

/// All metrics. Clones share the same counters.
#[derive(Debug, Clone)]
pub struct ActuatorMetrics {
    /// 1 while this process is the leader.
    pub leading: IntGauge,
    /// 1 while another autoscaler prevents this one from writing.
    pub paused: IntGauge,
    /// Actions by `kind` (launch, termination) and `outcome`.
    pub actions: IntCounterVec,
    /// NodeClaims created, by `nodepool` and `capacity_type`.
    pub claims_created: IntCounterVec,
    /// NodeClaims that failed before they had an instance, by `nodepool` and `cause`.
    pub claims_failed: IntCounterVec,
    /// Cloud calls by `action` and `result`.
    pub cloud_calls: IntCounterVec,
    /// Duration of cloud calls, by `action`.
    pub cloud_seconds: HistogramVec,
    /// Time from the receipt of a plan to a step of its launch, by `step` (claim, fleet, launched).
    pub launch_seconds: HistogramVec,
    /// Instances terminated because no claim refers to them, by `cause`.
    pub instances_collected: IntCounterVec,
    /// NodeClaims deleted because their instance is gone, by `cause`.
    pub claims_collected: IntCounterVec,
    /// Messages of the interruption queue, by `kind` and `result`.
    pub interruptions: IntCounterVec,
    /// NodeClaims that are gone together with their instance, by `nodepool`.
    pub claims_terminated: IntCounterVec,
    /// Evictions by `result` (evicted, refused, forced).
    pub evictions: IntCounterVec,
    /// Nominations of nodes to pods by `result` (nominated, taken_back, overtaken, forbidden, failed).
    pub nominations: IntCounterVec,
}

impl ActuatorMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// A metric is already registered.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            leading: metrics.gauge("leading", "1 while this process leads.")?,
            paused: metrics.gauge("paused", "1 while another autoscaler keeps this one from writing.")?,
            actions: metrics.counters("actions_total", "Actions of plans.", &["kind", "outcome"])?,
            claims_created: metrics.counters(
                "nodeclaims_created_total",
                "NodeClaims made.",
                &["nodepool", "capacity_type"],
            )?,
            claims_failed: metrics.counters(
                "nodeclaims_failed_total",
                "NodeClaims that failed before they had an instance.",
                &["nodepool", "cause"],
            )?,
            cloud_calls: metrics.counters("cloud_calls_total", "Calls to the cloud.", &["action", "result"])?,
            cloud_seconds: metrics.latencies("cloud_call_seconds", "Length of calls to the cloud.", &["action"])?,
            launch_seconds: metrics.latencies(
                "launch_seconds",
                "From the receipt of a plan to a step of its launch.",
                &["step"],
            )?,
            instances_collected: metrics.counters(
                "instances_collected_total",
                "Instances ended because nobody claimed them.",
                &["cause"],
            )?,
            claims_collected: metrics.counters(
                "nodeclaims_collected_total",
                "NodeClaims deleted because their instance is gone.",
                &["cause"],
            )?,
            interruptions: metrics.counters(
                "interruption_messages_total",
                "Messages of the interruption queue.",
                &["kind", "result"],
            )?,
            claims_terminated: metrics.counters(
                "nodeclaims_terminated_total",
                "NodeClaims that are gone with their instance.",
                &["nodepool"],
            )?,
            evictions: metrics.counters("evictions_total", "Pods sent away from nodes that go.", &["result"])?,
            nominations: metrics.counters(
                "nominations_total",
                "Pods that kube-scheduler was told a node for.",
                &["result"],
            )?,
        })
    }
}
