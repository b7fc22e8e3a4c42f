//! Metrics of calls to the cloud.

use crate::ports::{CloudError, OfferingError};
use plimsoll_runtime::metrics::{DURATION_BUCKETS_SECONDS, Metrics, MetricsError};
use prometheus::{HistogramVec, IntCounterVec};
use std::time::Duration;

/// Value of the label `provider`, as in Karpenter's provider for AWS.
const PROVIDER: &str = "aws";
/// Codes of refused offerings that are shown as such; others are `other`. Bounds the label.
const LAUNCH_FAILURES: [&str; 15] = [
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    "RequestLimitExceeded",
    "RequestThrottled",
    "InvalidFleetConfiguration",
    "UnauthorizedOperation",
    "InvalidParameter",
];
const OTHER: &str = "other";

/// What is called, as the controller and method of Karpenter that correspond to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudMethod {
    /// Launches instances.
    Create,
    /// Terminates instances.
    Delete,
    /// Reads instances.
    List,
    /// Reads instance types, offerings and prices.
    GetInstanceTypes,
}

impl CloudMethod {
    /// The labels `controller` and `method`.
    fn labels(self) -> [&'static str; 2] {
        match self {
            Self::Create => ["nodeclaim.lifecycle", "Create"],
            Self::Delete => ["nodeclaim.lifecycle", "Delete"],
            Self::List => ["nodeclaim.garbagecollection", "List"],
            Self::GetInstanceTypes => ["providers.instancetype", "GetInstanceTypes"],
        }
    }
}

/// Metrics of calls to the cloud. Clones share them.
#[derive(Debug, Clone)]
pub struct CloudMetrics {
    seconds: HistogramVec,
    errors: IntCounterVec,
    calls: IntCounterVec,
    call_seconds: HistogramVec,
    launch_failures: IntCounterVec,
    termination_failures: IntCounterVec,
}

/// How the durations and errors differ from Karpenter's.
const ONE_CALL: &str = "One call to AWS for many NodeClaims, not one CloudProvider method for one NodeClaim. controller has the name of \
     the controller that makes the call in Karpenter.";

impl CloudMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let (per_call, same) = (metrics.karpenter_but(ONE_CALL), metrics.karpenter());
        Ok(Self {
            seconds: per_call.histograms(
                "cloudprovider_duration_seconds",
                "Seconds that a call to the cloud took.",
                &["controller", "method", "provider"],
                DURATION_BUCKETS_SECONDS,
            )?,
            errors: per_call.counters(
                "cloudprovider_errors_total",
                "Failed calls to the cloud. error is InsufficientCapacityError, NodeClaimNotFoundError or empty.",
                &["controller", "method", "provider", "error"],
            )?,
            calls: metrics.counters("cloud_calls_total", "Calls to the cloud.", &["action", "result"])?,
            call_seconds: metrics.latencies("cloud_call_seconds", "Length of calls to the cloud.", &["action"])?,
            launch_failures: same.counters(
                "cloudprovider_instance_launch_failures_total",
                "Offerings that CreateFleet refused, by EC2's error code; rare codes are `other`.",
                &["zone", "zone_id", "capacity_type", "reason"],
            )?,
            termination_failures: metrics.karpenter_but("Without zone_id, which the call does not know.").counters(
                "cloudprovider_instance_termination_failures_total",
                "Instances that EC2 refused to terminate.",
                &["zone"],
            )?,
        })
    }

    /// Observes a call of the API `action`.
    pub fn call<T>(&self, method: CloudMethod, action: &str, took: Duration, result: &Result<T, CloudError>) {
        let [controller, name] = method.labels();
        let outcome = if result.is_ok() { "ok" } else { "error" };
        self.calls.with_label_values(&[action, outcome]).inc();
        self.call_seconds.with_label_values(&[action]).observe(took.as_secs_f64());
        self.seconds.with_label_values(&[controller, name, PROVIDER]).observe(took.as_secs_f64());
        if let Err(error) = result {
            let error = if matches!(error, CloudError::NotFound { .. }) { "NodeClaimNotFoundError" } else { "" };
            self.errors.with_label_values(&[controller, name, PROVIDER, error]).inc();
        }
    }

    /// Counts a launch for which no offering had capacity.
    pub fn no_capacity(&self) {
        let [controller, name] = CloudMethod::Create.labels();
        self.errors.with_label_values(&[controller, name, PROVIDER, "InsufficientCapacityError"]).inc();
    }

    /// Counts a refused offering. `zone_id` is empty if unknown.
    pub fn refused(&self, error: &OfferingError, zone_id: &str) {
        let reason = LAUNCH_FAILURES.iter().find(|code| **code == error.code).copied().unwrap_or(OTHER);
        let values = [error.zone.as_str(), zone_id, error.capacity_type.as_str(), reason];
        self.launch_failures.with_label_values(&values).inc();
    }

    /// Counts an instance that was not terminated.
    pub fn not_terminated(&self, zone: &str) {
        self.termination_failures.with_label_values(&[zone]).inc();
    }
}

#[cfg(test)]
mod tests;
