//! Scraped metrics of the services, combined over all scrapes.

use crate::harness::http;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Job label that docs/metrics.md requires.
pub(super) const JOB: &str = "karpenter";

/// Labels of a series.
pub(super) type Labels = BTreeMap<String, String>;

/// Series that had a sample, by metric name.
#[derive(Debug, Default)]
pub(in crate::e2e) struct Scrapes {
    series: BTreeMap<String, BTreeSet<Labels>>,
}

impl Scrapes {
    /// Scrapes each target. A target that does not respond, because it restarts, is skipped.
    ///
    /// # Errors
    /// If a response is not in the text format.
    pub(in crate::e2e) fn take(&mut self, targets: impl IntoIterator<Item = SocketAddr>) -> Result<()> {
        for target in targets {
            if let Ok(answer) = http::send(target, "GET", "/metrics", &[], "") {
                self.add(&answer.body, target)?;
            }
        }
        Ok(())
    }

    pub(super) fn add(&mut self, text: &str, target: SocketAddr) -> Result<()> {
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let (name, mut labels, value) = sample(line)?;
            // A quantile without observations.
            if value.is_nan() {
                continue;
            }
            // Labels that Prometheus adds.
            labels.insert("job".to_owned(), JOB.to_owned());
            labels.insert("instance".to_owned(), target.to_string());
            self.series.entry(name.to_owned()).or_default().insert(labels);
        }
        Ok(())
    }

    /// Whether a metric, or the series of a histogram or summary, had a sample.
    pub(in crate::e2e) fn has(&self, name: &str) -> bool {
        self.series.contains_key(name)
    }

    /// Series of a metric with these labels.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = &Labels> {
        self.series.get(name).into_iter().flatten()
    }

    /// Number of series.
    pub(super) fn len(&self) -> usize {
        self.series.values().map(BTreeSet::len).sum()
    }

    /// All names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str)
    }
}

/// A line of the text format: `name{label="value"} 1`.
fn sample(line: &str) -> Result<(&str, Labels, f64)> {
    let Some(end) = line.find(['{', ' ']) else { bail!("no sample: {line}") };
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let Some((label, value)) = rest.split_once("=\"") else { bail!("no label: {line}") };
            let Some((value, after)) = quoted(value) else { bail!("no end of a value: {line}") };
            labels.insert(label.to_owned(), value);
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    match rest.split_whitespace().next().map(str::parse) {
        Some(Ok(value)) => Ok((name, labels, value)),
        _ => bail!("no value: {line}"),
    }
}

/// The string up to its closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() -> Result<()> {
        let (name, labels, value) = sample(r#"a_total{x="1,}\"\\",y=""} 2.5e3"#)?;
        assert_eq!((name, value), ("a_total", 2500.0));
        assert_eq!(labels["x"], r#"1,}"\"#);
        assert_eq!(labels["y"], "");
        assert_eq!(sample("b +Inf")?, ("b", Labels::new(), f64::INFINITY));
        for bad in ["b", "b x", r#"b{x="1} 1"#, "b{x} 1"] {
            assert!(sample(bad).is_err(), "{bad}");
        }
        Ok(())
    }

    #[test]
    fn a_quantile_of_nothing_is_no_sample() -> Result<()> {
        let mut scrapes = Scrapes::default();
        scrapes.add("# HELP a b\na{quantile=\"0.5\"} NaN\nb 0\n", SocketAddr::from(([127, 0, 0, 1], 1)))?;
        assert!(!scrapes.has("a") && scrapes.has("b"));
        assert_eq!(scrapes.of("b").next().map(|labels| labels["job"].as_str()), Some(JOB));
        Ok(())
    }
}
