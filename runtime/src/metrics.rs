//! Metrics of one service: a registry and the naming rule `plimsoll_<service>_<name>`.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};

/// Upper bounds of all latency histograms, in seconds: from one gRPC hop in the cluster (1 ms) to the longest wait of a
/// launch that is still worth telling apart (1 min).
pub const LATENCY_BUCKETS_SECONDS: &[f64] =
    &[0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Upper bounds of all histograms of shares: from what is as good as nothing to twice as much.
pub const RATIO_BUCKETS: &[f64] = &[0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0];

/// A metric could not be registered: its name is malformed or taken. A mistake of the programmer, found at the start.
#[derive(Debug, thiserror::Error)]
#[error("metric {name}: {source}")]
pub struct MetricsError {
    /// The metric's full name.
    name: String,
    /// What is wrong.
    source: prometheus::Error,
}

/// Registers the metrics of one service. Clones share one registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    service: &'static str,
}

impl Metrics {
    /// An empty registry for `service`, such as `watcher`.
    #[must_use]
    pub fn new(service: &'static str) -> Self {
        Self { registry: Registry::new(), service }
    }

    /// The same registry, with names of another part, such as `solver`.
    #[must_use]
    pub fn part(&self, service: &'static str) -> Self {
        Self { registry: self.registry.clone(), service }
    }

    /// A counter; its name should end in `_total`.
    ///
    /// # Errors
    /// The name is malformed or taken.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
        self.register(name, |full| IntCounter::new(full, help))
    }

    /// A counter by labels; its name should end in `_total`.
    ///
    /// # Errors
    /// The name or a label is malformed, or the name is taken.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, MetricsError> {
        self.register(name, |full| IntCounterVec::new(Opts::new(full, help), labels))
    }

    /// A gauge.
    ///
    /// # Errors
    /// The name is malformed or taken.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        self.register(name, |full| IntGauge::new(full, help))
    }

    /// A gauge by labels.
    ///
    /// # Errors
    /// The name or a label is malformed, or the name is taken.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
        self.register(name, |full| IntGaugeVec::new(Opts::new(full, help), labels))
    }

    /// A histogram of seconds over [`LATENCY_BUCKETS_SECONDS`]; its name should end in `_seconds`.
    ///
    /// # Errors
    /// The name is malformed or taken.
    pub fn latency(&self, name: &str, help: &str) -> Result<Histogram, MetricsError> {
        self.register(name, |full| Histogram::with_opts(latency_options(full, help)))
    }

    /// As [`Metrics::latency`], by labels.
    ///
    /// # Errors
    /// The name or a label is malformed, or the name is taken.
    pub fn latencies(&self, name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec, MetricsError> {
        self.register(name, |full| HistogramVec::new(latency_options(full, help), labels))
    }

    /// A histogram of shares over [`RATIO_BUCKETS`]; its name should end in `_ratio`.
    ///
    /// # Errors
    /// The name is malformed or taken.
    pub fn ratio(&self, name: &str, help: &str) -> Result<Histogram, MetricsError> {
        self.register(name, |full| Histogram::with_opts(HistogramOpts::new(full, help).buckets(RATIO_BUCKETS.to_vec())))
    }

    /// All metrics in the Prometheus text format.
    ///
    /// # Errors
    /// A collector is inconsistent.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    fn register<C: Collector + Clone + 'static>(
        &self,
        name: &str,
        make: impl FnOnce(String) -> prometheus::Result<C>,
    ) -> Result<C, MetricsError> {
        let full = format!("plimsoll_{}_{name}", self.service);
        make(full.clone())
            .and_then(|metric| self.registry.register(Box::new(metric.clone())).map(|()| metric))
            .map_err(|source| MetricsError { name: full, source })
    }
}

fn latency_options(name: String, help: &str) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(LATENCY_BUCKETS_SECONDS.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_prefixed_and_unique() {
        let metrics = Metrics::new("watcher");
        metrics.counter("plans_total", "Plans received.").unwrap().inc_by(3);
        metrics.part("solver").latency("solve_seconds", "Time to solve.").unwrap().observe(0.3);
        let text = metrics.encode().unwrap();
        assert!(text.contains("\nplimsoll_watcher_plans_total 3\n"), "{text}");
        assert!(text.contains("plimsoll_solver_solve_seconds_bucket{le=\"0.25\"} 0\n"), "{text}");
        assert!(text.contains("plimsoll_solver_solve_seconds_bucket{le=\"0.5\"} 1\n"), "{text}");

        metrics.ratio("gap_ratio", "How far.").unwrap().observe(0.02);
        let text = metrics.encode().unwrap();
        assert!(text.contains("plimsoll_watcher_gap_ratio_bucket{le=\"0.01\"} 0\n"), "{text}");
        assert!(text.contains("plimsoll_watcher_gap_ratio_bucket{le=\"0.02\"} 1\n"), "{text}");

        let taken = metrics.gauge("plans_total", "Twice.").unwrap_err();
        assert!(taken.to_string().contains("plimsoll_watcher_plans_total"), "{taken}");
        assert!(metrics.gauge("no spaces", "Malformed.").is_err());
    }
}
