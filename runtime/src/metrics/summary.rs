//! Summaries: quantiles of the observations of the last ten minutes.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::scrape::{Labels, Samples, Scraped};

/// Exported quantiles with their label values.
pub const QUANTILES: [(f64, &str); 5] = [(0.0, "0"), (0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (1.0, "1")];

/// Maximum age of observations in quantiles; the default of Prometheus' Go client.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Granularity in which observations expire.
const STEP: Duration = Duration::from_secs(120);
/// Ratio of adjacent bins: the error of quantiles is at most 1 %.
const GAMMA: f64 = 1.02;
/// Minimum value of an observation, in seconds.
const SMALLEST: f64 = 0.001;
/// Number of bins per window: from [`SMALLEST`] to over ten years. Limits the memory.
const MAX_BIN: i32 = 1400;

/// A summary by labels. Clones share it.
#[derive(Clone, Debug)]
pub struct Summaries {
    metric: Scraped,
    labels: Arc<[String]>,
    series: Arc<Mutex<BTreeMap<Vec<String>, Series>>>,
}

#[derive(Debug, Default)]
struct Series {
    count: u64,
    sum: f64,
    /// Oldest first.
    windows: VecDeque<Window>,
}

/// Observations of one [`STEP`].
#[derive(Debug)]
struct Window {
    started: Instant,
    bins: BTreeMap<i32, u64>,
    smallest: f64,
    largest: f64,
}

impl Summaries {
    pub(super) fn new(metric: Scraped, labels: &[&str]) -> Self {
        let series: BTreeMap<_, _> =
            if labels.is_empty() { [(Vec::new(), Series::default())].into() } else { BTreeMap::new() };
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Self { metric, labels, series: Arc::new(Mutex::new(series)) }
    }

    /// Adds an observation. `values` are the values of the labels, in order.
    pub fn observe(&self, values: &[&str], observed: f64) {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        self.series.lock().entry(values).or_default().observe(observed, Instant::now());
    }

    /// Drops the observations for quantiles, for example when another process takes over; sums and counts are kept.
    pub fn forget(&self) {
        self.series.lock().values_mut().for_each(|series| series.windows.clear());
    }

    /// Writes all series.
    pub(super) fn collect(&self, samples: &mut Samples) {
        let now = Instant::now();
        for (values, series) in &mut *self.series.lock() {
            series.expire(now);
            let mut labels = Labels::default();
            self.labels.iter().zip(values).for_each(|(name, value)| labels.push(name, value));
            for (quantile, name) in QUANTILES {
                let value = series.quantile(quantile).unwrap_or(f64::NAN);
                samples.put(&self.metric, &labels.with("quantile", name), value);
            }
            samples.put_part(&self.metric, "_sum", &labels, series.sum);
            #[allow(clippy::cast_precision_loss, reason = "more than 2^52 observations do not occur")]
            samples.put_part(&self.metric, "_count", &labels, series.count as f64);
        }
    }
}

impl Series {
    fn observe(&mut self, observed: f64, now: Instant) {
        self.expire(now);
        self.count += 1;
        self.sum += observed;
        if self.windows.back().is_none_or(|window| now.saturating_duration_since(window.started) >= STEP) {
            let bins = BTreeMap::new();
            self.windows.push_back(Window { started: now, bins, smallest: f64::INFINITY, largest: f64::NEG_INFINITY });
        }
        if let Some(window) = self.windows.back_mut() {
            *window.bins.entry(bin(observed)).or_default() += 1;
            window.smallest = window.smallest.min(observed);
            window.largest = window.largest.max(observed);
        }
    }

    fn expire(&mut self, now: Instant) {
        self.windows.retain(|window| now.saturating_duration_since(window.started) < MAX_AGE);
    }

    /// `None` without observations.
    fn quantile(&self, quantile: f64) -> Option<f64> {
        let mut bins: BTreeMap<i32, u64> = BTreeMap::new();
        for (bin, count) in self.windows.iter().flat_map(|window| &window.bins) {
            *bins.entry(*bin).or_default() += count;
        }
        let smallest = self.windows.iter().map(|window| window.smallest).reduce(f64::min)?;
        let largest = self.windows.iter().map(|window| window.largest).reduce(f64::max)?;
        if quantile <= 0.0 || quantile >= 1.0 {
            // The minimum and maximum are exact.
            return Some(if quantile <= 0.0 { smallest } else { largest });
        }
        let total: u64 = bins.values().sum();
        #[allow(clippy::cast_precision_loss, reason = "more than 2^52 observations do not occur")]
        let wanted = (quantile * total as f64).ceil().max(1.0);
        let mut seen = 0.0;
        for (bin, count) in bins {
            #[allow(clippy::cast_precision_loss, reason = "more than 2^52 observations do not occur")]
            let of_bin = count as f64;
            seen += of_bin;
            if seen >= wanted {
                let value = SMALLEST * GAMMA.powi(bin) * 2.0 / (1.0 + GAMMA);
                return Some(value.clamp(smallest, largest));
            }
        }
        Some(largest)
    }
}

/// Bin of a value: bin `n` contains the values up to `SMALLEST * GAMMA^n`.
fn bin(value: f64) -> i32 {
    if value.is_nan() || value <= SMALLEST {
        return 0;
    }
    let bin = (value / SMALLEST).ln() / GAMMA.ln();
    #[allow(clippy::cast_possible_truncation, reason = "clamped to the number of bins")]
    let bin = bin.ceil().clamp(0.0, f64::from(MAX_BIN)) as i32;
    bin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::spec::MetricKind;

    fn text(summaries: &Summaries) -> String {
        let mut samples = Samples::default();
        summaries.collect(&mut samples);
        samples.into_text()
    }

    fn value(summaries: &Summaries, series: &str) -> f64 {
        let text = text(summaries);
        let line =
            text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or_else(|| panic!("{series}: {text}"));
        line.trim().parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn quantiles_are_of_the_last_ten_minutes() {
        let summaries = Summaries::new(Scraped::new("a_seconds", "A.", MetricKind::Summary), &[]);
        assert!(value(&summaries, "a_seconds{quantile=\"0.5\"}").is_nan(), "nothing observed");
        (1..=1000).for_each(|n| summaries.observe(&[], f64::from(n) / 10.0));
        for (quantile, expected) in [("0", 0.1), ("0.5", 50.0), ("0.9", 90.0), ("0.99", 99.0), ("1", 100.0)] {
            let got = value(&summaries, &format!("a_seconds{{quantile=\"{quantile}\"}}"));
            assert!((got / expected - 1.0).abs() < 0.011, "{quantile}: {got}");
        }
        tokio::time::advance(Duration::from_secs(400)).await;
        summaries.observe(&[], 500.0);
        assert!((value(&summaries, "a_seconds{quantile=\"1\"}") - 500.0).abs() < 1e-9);
        tokio::time::advance(Duration::from_secs(300)).await;
        let smallest = value(&summaries, "a_seconds{quantile=\"0\"}");
        assert!((smallest - 500.0).abs() < 1e-9, "the first thousand are too old: {smallest}");
        assert!((value(&summaries, "a_seconds_count") - 1001.0).abs() < 1e-9, "the count never falls");
    }

    #[tokio::test(start_paused = true)]
    async fn labels_have_series_of_their_own_and_a_former_leader_has_no_quantiles() {
        let summaries = Summaries::new(Scraped::new("a_seconds", "A.", MetricKind::Summary), &["nodepool"]);
        assert_eq!(text(&summaries), "", "no series without a label value");
        summaries.observe(&["x"], 4.0);
        summaries.observe(&["y"], 6.0);
        assert!((value(&summaries, "a_seconds{nodepool=\"y\",quantile=\"1\"}") - 6.0).abs() < 1e-9);
        summaries.forget();
        assert!(value(&summaries, "a_seconds{nodepool=\"y\",quantile=\"1\"}").is_nan());
        assert!((value(&summaries, "a_seconds_sum{nodepool=\"x\"}") - 4.0).abs() < 1e-9);
    }
}
