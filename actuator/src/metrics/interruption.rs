//! Metrics of the interruption queue.

use jiff::Timestamp;
use plimsoll_runtime::metrics::{DURATION_BUCKETS_SECONDS, Metrics, MetricsError};
use prometheus::{Gauge, Histogram, IntCounter, IntCounterVec};

use super::view::seconds_between;

/// Metrics of the interruption queue. Clones share them.
#[derive(Debug, Clone)]
pub struct InterruptionMetrics {
    received: IntCounterVec,
    deleted: IntCounter,
    seconds: Histogram,
    unhealthy: IntCounterVec,
    lag: Gauge,
    last_receive: Gauge,
}

impl InterruptionMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let karpenter = metrics.karpenter();
        Ok(Self {
            received: karpenter.counters(
                "interruption_received_messages_total",
                "Messages received from the interruption queue.",
                &["message_type"],
            )?,
            deleted: karpenter.counter(
                "interruption_deleted_messages_total",
                "Messages deleted from the interruption queue after their effects were durable.",
            )?,
            seconds: karpenter.histogram(
                "interruption_message_queue_duration_seconds",
                "Seconds from an event in EC2 until its message was handled.",
                DURATION_BUCKETS_SECONDS,
            )?,
            unhealthy: karpenter.counters(
                "interruption_instance_status_unhealthy_total",
                "Instances found unhealthy, by the category of the check.",
                &["category"],
            )?,
            lag: metrics.float_gauge(
                "interruption_queue_lag_seconds",
                "Age of the oldest message of the last batch when it was received; 0 after an empty batch.",
            )?,
            last_receive: metrics.float_gauge(
                "interruption_queue_last_receive_timestamp_seconds",
                "Unix time at which the queue was last read or reading began; 0 on standbys and while paused.",
            )?,
        })
    }

    /// Reading begins at `now`. From then on, a queue that cannot be read is noticed.
    pub fn begin(&self, now: Timestamp) {
        self.last_receive.set(now.as_duration().as_secs_f64());
    }

    /// Records a batch that was received at `now`; `oldest` is the earliest time of its events.
    pub fn batch(&self, oldest: Option<Timestamp>, now: Timestamp) {
        self.lag.set(oldest.map_or(0.0, |oldest| seconds_between(oldest, now)));
        self.last_receive.set(now.as_duration().as_secs_f64());
    }

    /// Counts a message.
    pub fn received(&self, kind: &str) {
        self.received.with_label_values(&[kind]).inc();
    }

    /// Counts a handled and deleted message. `sent` is the time of its event, if it tells one.
    pub fn deleted(&self, sent: Option<Timestamp>, now: Timestamp) {
        self.deleted.inc();
        if let Some(sent) = sent {
            self.seconds.observe(seconds_between(sent, now));
        }
    }

    /// Counts an unhealthy instance.
    pub fn unhealthy(&self, category: &str) {
        self.unhealthy.with_label_values(&[category]).inc();
    }

    /// Nothing is read any more.
    pub fn forget(&self) {
        self.lag.set(0.0);
        self.last_receive.set(0.0);
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::tests::{Fixture, NOW, at};

    #[test]
    fn lag_is_that_of_the_last_batch_and_the_duration_that_of_each_message() {
        let fixture = Fixture::new();
        let queue = &fixture.metrics.interruption;
        let gauge = |name: &str| fixture.value(&format!("plimsoll_actuator_interruption_queue_{name}"), &[]).unwrap();
        assert!(gauge("last_receive_timestamp_seconds").abs() < 1e-9, "not read");
        queue.begin(at("2026-01-02T11:59:00Z"));
        assert!((gauge("last_receive_timestamp_seconds") - 1_767_355_140.0).abs() < 1e-9, "reading begins");
        queue.batch(Some(at("2026-01-02T11:59:50Z")), at(NOW));
        assert!((gauge("lag_seconds") - 10.0).abs() < 1e-9);
        assert!((gauge("last_receive_timestamp_seconds") - 1_767_355_200.0).abs() < 1e-9);
        queue.received("spot_interrupted");
        queue.deleted(Some(at("2026-01-02T11:59:50Z")), at("2026-01-02T12:00:02Z"));
        queue.deleted(None, at(NOW));
        queue.batch(None, at(NOW));
        assert!(gauge("lag_seconds").abs() < 1e-9, "nothing waits any more");
        queue.forget();
        assert!(gauge("last_receive_timestamp_seconds").abs() < 1e-9, "not read any more");
        let received = [("message_type", "spot_interrupted")];
        assert_eq!(fixture.value("karpenter_interruption_received_messages_total", &received), Some(1.0));
        assert_eq!(fixture.value("karpenter_interruption_deleted_messages_total", &[]), Some(2.0));
        assert_eq!(fixture.value("karpenter_interruption_message_queue_duration_seconds_sum", &[]), Some(12.0));
    }
}
