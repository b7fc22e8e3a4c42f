//! Metrics that are computed when they are scraped.
//!
//! A source writes the series of all objects that exist at that moment, so series of deleted objects disappear, and
//! nothing is computed or stored between scrapes. The series are written as text: at 100,000 pods, a copy of every
//! label in memory would cost more than the objects themselves.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use super::spec::MetricKind;

/// Least and greatest size of a part of a text, unless a single word is longer.
const PART_BYTES: (usize, usize) = (1024, 64 * 1024);

/// A metric whose series are written during a scrape. Clones are the same metric.
#[derive(Clone, Debug)]
pub struct Scraped {
    name: Arc<str>,
    /// HELP and TYPE lines.
    header: Arc<str>,
}

impl Scraped {
    pub(super) fn new(name: &str, help: &str, kind: MetricKind) -> Self {
        let mut header = String::new();
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _written = write!(header, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Self { name: name.into(), header: header.into() }
    }

    /// Full name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Labels of a series, in the text format. Labels without a value are omitted: Prometheus does not distinguish them
/// from missing labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(String);

impl Labels {
    /// Labels from names and values.
    #[must_use]
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        let mut labels = Self::default();
        pairs.iter().for_each(|(name, value)| labels.push(name, value));
        labels
    }

    /// Adds a label.
    pub fn push(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    /// These labels and an additional one.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut labels = self.clone();
        labels.push(name, value);
        labels
    }
}

/// A text in parts, which are not moved: a string of a hundred megabytes is copied whenever it grows, and there are two
/// of it meanwhile.
#[derive(Debug, Default)]
struct Text(Vec<String>);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (least, most) = PART_BYTES;
        match self.0.last_mut() {
            Some(part) if part.len() + text.len() <= part.capacity() => part.push_str(text),
            last => {
                let size = last.map_or(0, |part| 2 * part.capacity()).clamp(least, most);
                let mut part = String::with_capacity(size.max(text.len()));
                part.push_str(text);
                self.0.push(part);
            }
        }
        Ok(())
    }
}

/// The series of one scrape.
#[derive(Debug, Default)]
pub struct Samples {
    /// Lines by metric name, because the text format requires the series of a metric in one block.
    families: BTreeMap<Arc<str>, Text>,
}

impl Samples {
    /// Writes a series.
    pub fn put(&mut self, metric: &Scraped, labels: &Labels, value: f64) {
        self.put_part(metric, "", labels, value);
    }

    /// Writes a series of a metric that consists of several, such as `_sum`.
    pub(super) fn put_part(&mut self, metric: &Scraped, suffix: &str, labels: &Labels, value: f64) {
        let header = || Text(vec![(*metric.header).to_owned()]);
        let lines = self.families.entry(Arc::clone(&metric.name)).or_insert_with(header);
        let name = &metric.name;
        let _written = if labels.0.is_empty() {
            writeln!(lines, "{name}{suffix} {value}")
        } else {
            writeln!(lines, "{name}{suffix}{{{}}} {value}", labels.0)
        };
    }

    /// The text in parts.
    pub(super) fn into_parts(self) -> impl Iterator<Item = String> {
        self.families.into_values().flat_map(|lines| lines.0)
    }
}

/// Converts a count to the value of a series.
#[must_use]
pub fn count(count: usize) -> f64 {
    // Counts of objects are far below 2^52.
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_metric_are_in_one_block_and_values_are_escaped() {
        let (first, second) =
            (Scraped::new("b", "About b.", MetricKind::Gauge), Scraped::new("a", "Back\\slash.", MetricKind::Gauge));
        let mut samples = Samples::default();
        let node = Labels::of(&[("node", "n\"1\\\n"), ("zone", "")]);
        samples.put(&first, &node, 1.5);
        samples.put(&second, &Labels::default(), 2.0);
        samples.put(&first, &node.with("type", "cpu"), 17_179_869_184.0);
        let text: String = samples.into_parts().collect();
        let expected = "# HELP a Back\\\\slash.\n# TYPE a gauge\na 2\n# HELP b About b.\n# TYPE b gauge\n\
            b{node=\"n\\\"1\\\\\\n\"} 1.5\nb{node=\"n\\\"1\\\\\\n\",type=\"cpu\"} 17179869184\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_text_is_in_parts_that_are_not_moved() {
        let metric = Scraped::new("a", "About a.", MetricKind::Gauge);
        let mut samples = Samples::default();
        let labels = Labels::of(&[("node", &"n".repeat(100))]);
        for _ in 0..10_000 {
            samples.put(&metric, &labels, 1.0);
        }
        let parts: Vec<String> = samples.into_parts().collect();
        assert!(parts.len() > 10 && parts.iter().all(|part| part.capacity() <= PART_BYTES.1), "{}", parts.len());
        let text = parts.concat();
        assert_eq!((text.lines().count(), text.lines().next_back()), (10_002, text.lines().nth(2)));
    }
}
