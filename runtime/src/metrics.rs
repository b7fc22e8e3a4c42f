//! Metrics of one service: a registry with naming rules.
//!
//! Own metrics are named `plimsoll_<service>_<name>`. Metrics that Karpenter also has keep Karpenter's names, so that
//! its dashboards work; [`Metrics::shared`] declares them with their relation to Karpenter's metrics.

pub mod scrape;
pub mod spec;
pub mod summary;

use parking_lot::Mutex;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};
use scrape::{Labels, Part, Samples, Scraped};
use spec::{Meaning, MetricKind, MetricSpec};
use std::fmt;
use std::sync::Arc;
use summary::Summaries;

/// Upper bounds of all latency histograms, in seconds: from one gRPC hop in the cluster (1 ms) to the longest relevant
/// wait for a launch (1 min).
pub const LATENCY_BUCKETS_SECONDS: &[f64] =
    &[0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Upper bounds of Karpenter's histograms of durations, in seconds.
pub const DURATION_BUCKETS_SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    150.0, 300.0, 450.0, 600.0,
];

/// Upper bounds of all ratio histograms: from nearly zero to twice as much.
pub const RATIO_BUCKETS: &[f64] = &[0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0];

/// A metric could not be registered, because its name is malformed or taken. This is a programming error, found at
/// startup.
#[derive(Debug, thiserror::Error)]
#[error("metric {name}: {source}")]
pub struct MetricsError {
    /// The metric's full name.
    name: String,
    /// The cause.
    source: prometheus::Error,
}

/// Writes series during a scrape.
type Source = Box<dyn Fn(&mut Samples) + Send + Sync>;

/// Registers the metrics of one service. Clones share one registry.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    specs: Arc<Mutex<Vec<MetricSpec>>>,
    sources: Arc<Mutex<Vec<Source>>>,
    service: &'static str,
    prefix: String,
    meaning: Meaning,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Metrics {
    /// An empty registry for `service`, such as `watcher`.
    #[must_use]
    pub fn new(service: &'static str) -> Self {
        Self {
            registry: Registry::new(),
            specs: Arc::default(),
            sources: Arc::default(),
            service,
            prefix: format!("plimsoll_{service}_"),
            meaning: Meaning::Own,
        }
    }

    /// The same registry, with another name part, such as `solver`.
    #[must_use]
    pub fn part(&self, part: &'static str) -> Self {
        Self { prefix: format!("plimsoll_{part}_"), meaning: Meaning::Own, ..self.clone() }
    }

    /// The same registry, for metrics that Karpenter exports under the same name. `prefix` is `karpenter_`, or that of
    /// a library that Karpenter uses, such as `operator_`.
    #[must_use]
    pub fn shared(&self, prefix: &str, meaning: Meaning) -> Self {
        Self { prefix: prefix.to_owned(), meaning, ..self.clone() }
    }

    /// [`Metrics::shared`] with the prefix `karpenter_` and Karpenter's meaning.
    #[must_use]
    pub fn karpenter(&self) -> Self {
        self.shared("karpenter_", Meaning::Same)
    }

    /// [`Metrics::shared`] with the prefix `karpenter_` and a different meaning; `difference` describes how and why.
    #[must_use]
    pub fn karpenter_but(&self, difference: &'static str) -> Self {
        self.shared("karpenter_", Meaning::Differs(difference))
    }

    /// Name of the service.
    #[must_use]
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// All registered metrics, by name.
    #[must_use]
    pub fn specs(&self) -> Vec<MetricSpec> {
        let mut specs = self.specs.lock().clone();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs
    }

    /// A counter; its name should end in `_total`.
    ///
    /// # Errors
    /// If the name is malformed or taken.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
        self.register((name, help, MetricKind::Counter, &[]), |full| IntCounter::new(full, help))
    }

    /// A counter by labels; its name should end in `_total`.
    ///
    /// # Errors
    /// If the name or a label is malformed, or the name is taken.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, MetricsError> {
        self.register((name, help, MetricKind::Counter, labels), |full| {
            IntCounterVec::new(Opts::new(full, help), labels)
        })
    }

    /// A gauge.
    ///
    /// # Errors
    /// If the name is malformed or taken.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        self.register((name, help, MetricKind::Gauge, &[]), |full| IntGauge::new(full, help))
    }

    /// A gauge by labels.
    ///
    /// # Errors
    /// If the name or a label is malformed, or the name is taken.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
        self.register((name, help, MetricKind::Gauge, labels), |full| IntGaugeVec::new(Opts::new(full, help), labels))
    }

    /// A histogram of seconds over [`LATENCY_BUCKETS_SECONDS`]; its name should end in `_seconds`.
    ///
    /// # Errors
    /// If the name is malformed or taken.
    pub fn latency(&self, name: &str, help: &str) -> Result<Histogram, MetricsError> {
        self.register((name, help, MetricKind::Histogram, &[]), |full| {
            Histogram::with_opts(latency_options(full, help))
        })
    }

    /// As [`Metrics::latency`], by labels.
    ///
    /// # Errors
    /// If the name or a label is malformed, or the name is taken.
    pub fn latencies(&self, name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec, MetricsError> {
        self.histograms(name, help, labels, LATENCY_BUCKETS_SECONDS)
    }

    /// A histogram of ratios over [`RATIO_BUCKETS`]; its name should end in `_ratio`.
    ///
    /// # Errors
    /// If the name is malformed or taken.
    pub fn ratio(&self, name: &str, help: &str) -> Result<Histogram, MetricsError> {
        let options = |full| HistogramOpts::new(full, help).buckets(RATIO_BUCKETS.to_vec());
        self.register((name, help, MetricKind::Histogram, &[]), |full| Histogram::with_opts(options(full)))
    }

    /// A histogram by labels over `buckets`.
    ///
    /// # Errors
    /// If the name or a label is malformed, or the name is taken.
    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, MetricsError> {
        let options = |full| HistogramOpts::new(full, help).buckets(buckets.to_vec());
        self.register((name, help, MetricKind::Histogram, labels), |full| HistogramVec::new(options(full), labels))
    }

    /// A histogram over `buckets`.
    ///
    /// # Errors
    /// If the name is malformed or taken.
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, MetricsError> {
        let options = |full| HistogramOpts::new(full, help).buckets(buckets.to_vec());
        self.register((name, help, MetricKind::Histogram, &[]), |full| Histogram::with_opts(options(full)))
    }

    /// A floating-point gauge.
    ///
    /// # Errors
    /// If the name is malformed or taken.
    pub fn float_gauge(&self, name: &str, help: &str) -> Result<Gauge, MetricsError> {
        self.register((name, help, MetricKind::Gauge, &[]), |full| Gauge::new(full, help))
    }

    /// A summary of seconds by labels, see [`Summaries`].
    ///
    /// # Errors
    /// If the name is taken.
    pub fn summaries(&self, name: &str, help: &str, labels: &[&str]) -> Result<Summaries, MetricsError> {
        let metric = self.declare(name, help, MetricKind::Summary, labels)?;
        let summaries = Summaries::new(metric, labels);
        let source = summaries.clone();
        self.add_source(move |samples| source.collect(samples));
        Ok(summaries)
    }

    /// Declares the gauge `build_info`, whose value is always 1.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn build_info(&self, version: &str) -> Result<(), MetricsError> {
        let info = self.scraped("build_info", "1, with the version of the program.", &["version"])?;
        let labels = Labels::of(&[("version", version)]);
        self.add_source(move |samples| samples.put(&info, &labels, 1.0));
        Ok(())
    }

    /// A gauge by labels whose series a source writes during a scrape, see [`Metrics::add_source`].
    ///
    /// # Errors
    /// If the name is taken.
    pub fn scraped(&self, name: &str, help: &str, labels: &[&str]) -> Result<Scraped, MetricsError> {
        self.declare(name, help, MetricKind::Gauge, labels)
    }

    /// Adds a source that is called during each scrape, one scrape at a time, on a thread that may block.
    pub fn add_source(&self, source: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.sources.lock().push(Box::new(source));
    }

    /// All metrics in the Prometheus text format.
    ///
    /// # Errors
    /// If a collector is inconsistent.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        self.encode_parts().map(|parts| parts.iter().map(Part::text).collect())
    }

    /// Like [`Metrics::encode`], in compressed parts that follow each other: the text of a large cluster has a hundred
    /// megabytes.
    ///
    /// # Errors
    /// If a collector is inconsistent.
    pub fn encode_parts(&self) -> Result<Vec<Part>, prometheus::Error> {
        let registered = TextEncoder::new().encode_to_string(&self.registry.gather())?;
        let mut samples = Samples::default();
        // The lock also limits concurrent scrapes to one.
        self.sources.lock().iter().for_each(|source| source(&mut samples));
        Ok(std::iter::once(Part::of(&registered)).chain(samples.into_parts()).collect())
    }

    fn declare(&self, name: &str, help: &str, kind: MetricKind, labels: &[&str]) -> Result<Scraped, MetricsError> {
        let full = format!("{}{name}", self.prefix);
        let mut specs = self.specs.lock();
        if specs.iter().any(|spec| spec.name == full) {
            return Err(MetricsError { name: full, source: prometheus::Error::AlreadyReg });
        }
        specs.push(MetricSpec {
            service: self.service,
            name: full.clone(),
            kind,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            help: help.to_owned(),
            meaning: self.meaning,
        });
        Ok(Scraped::new(&full, help, kind))
    }

    fn register<C: Collector + Clone + 'static>(
        &self,
        (name, help, kind, labels): (&str, &str, MetricKind, &[&str]),
        make: impl FnOnce(String) -> prometheus::Result<C>,
    ) -> Result<C, MetricsError> {
        let full = format!("{}{name}", self.prefix);
        let metric = make(full.clone()).map_err(|source| MetricsError { name: full.clone(), source })?;
        self.declare(name, help, kind, labels)?;
        let registered = self.registry.register(Box::new(metric.clone()));
        registered.map(|()| metric).map_err(|source| MetricsError { name: full, source })
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

    #[test]
    fn shared_metrics_keep_their_names_and_say_how_they_differ() {
        let metrics = Metrics::new("actuator");
        metrics.karpenter().counter("pods_drained_total", "Drained.").unwrap().inc();
        let age = metrics.karpenter_but("no scheduling_id").scraped("queue_age_seconds", "Age.", &["queue"]).unwrap();
        metrics.add_source(move |samples| {
            samples.put(&age, &Labels::of(&[("queue", "x")]), 1.5);
        });
        let text = metrics.encode().unwrap();
        assert!(text.contains("\nkarpenter_pods_drained_total 1\n"), "{text}");
        assert!(
            text.ends_with("# TYPE karpenter_queue_age_seconds gauge\nkarpenter_queue_age_seconds{queue=\"x\"} 1.5\n")
        );
        let specs = metrics.specs();
        let meanings: Vec<(&str, Meaning)> = specs.iter().map(|spec| (spec.name.as_str(), spec.meaning)).collect();
        let differs = Meaning::Differs("no scheduling_id");
        let expected = [("karpenter_pods_drained_total", Meaning::Same), ("karpenter_queue_age_seconds", differs)];
        assert_eq!(meanings, expected);
        assert!(metrics.karpenter().gauge("queue_age_seconds", "Taken.").is_err());
    }
}
