//! Metrics that are computed when they are scraped.
//!
//! A source writes the series of all objects that exist at that moment, so series of deleted objects disappear, and
//! nothing is computed or stored between scrapes. The series are written as text, which is kept compressed: at 100,000
//! pods, it has more than half of the size of the objects in memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};

use super::spec::MetricKind;

/// Size from which on the lines of a metric are compressed.
const PART_BYTES: usize = 64 * 1024;

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

/// A part of a text, compressed: one member of a gzip file. Members that follow each other are a gzip file, too.
#[derive(Debug)]
pub struct Part {
    gzip: Vec<u8>,
    text_bytes: usize,
}

impl Part {
    /// Compresses a text. The lines of a metric differ little, so that the fastest level makes them 20 times smaller.
    pub(super) fn of(text: &str) -> Self {
        let mut gzip = Vec::new();
        // Reading from memory cannot fail.
        let _read = GzEncoder::new(text.as_bytes(), Compression::fast()).read_to_end(&mut gzip);
        gzip.shrink_to_fit();
        Self { gzip, text_bytes: text.len() }
    }

    /// The size of the compressed text.
    #[must_use]
    pub fn gzip_bytes(&self) -> usize {
        self.gzip.len()
    }

    /// The compressed text.
    #[must_use]
    pub fn into_gzip(self) -> Vec<u8> {
        self.gzip
    }

    /// The size of the text.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.text_bytes);
        // It is what was compressed, so that reading it cannot fail.
        let _read = GzDecoder::new(self.gzip.as_slice()).read_to_string(&mut text);
        text
    }
}

/// The lines of a metric: those of the compressed parts, and those that follow.
#[derive(Debug, Default)]
struct Lines {
    parts: Vec<Part>,
    last: String,
}

impl Lines {
    /// Compresses the last lines, if there are many.
    fn compress(&mut self) {
        if self.last.len() >= PART_BYTES {
            self.parts.push(Part::of(&self.last));
            self.last.clear();
        }
    }

    fn into_parts(self) -> impl Iterator<Item = Part> {
        let last = (!self.last.is_empty()).then(|| Part::of(&self.last));
        self.parts.into_iter().chain(last)
    }
}

/// The series of one scrape.
#[derive(Debug, Default)]
pub struct Samples {
    /// Lines by metric name, because the text format requires the series of a metric in one block.
    families: BTreeMap<Arc<str>, Lines>,
}

impl Samples {
    /// Writes a series.
    pub fn put(&mut self, metric: &Scraped, labels: &Labels, value: f64) {
        self.put_part(metric, "", labels, value);
    }

    /// Writes a series of a metric that consists of several, such as `_sum`.
    pub(super) fn put_part(&mut self, metric: &Scraped, suffix: &str, labels: &Labels, value: f64) {
        let header = || Lines { last: (*metric.header).to_owned(), ..Lines::default() };
        let lines = self.families.entry(Arc::clone(&metric.name)).or_insert_with(header);
        let name = &metric.name;
        let _written = if labels.0.is_empty() {
            writeln!(lines.last, "{name}{suffix} {value}")
        } else {
            writeln!(lines.last, "{name}{suffix}{{{}}} {value}", labels.0)
        };
        lines.compress();
    }

    /// The text in parts.
    pub(super) fn into_parts(self) -> impl Iterator<Item = Part> {
        self.families.into_values().flat_map(Lines::into_parts)
    }

    #[cfg(test)]
    pub(super) fn into_text(self) -> String {
        self.into_parts().map(|part| part.text()).collect()
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

    fn metric(name: &str) -> Scraped {
        Scraped::new(name, &format!("About {name}."), MetricKind::Gauge)
    }

    #[test]
    fn series_of_a_metric_are_in_one_block_and_values_are_escaped() {
        let (first, second) = (metric("b"), Scraped::new("a", "Back\\slash.", MetricKind::Gauge));
        let mut samples = Samples::default();
        let node = Labels::of(&[("node", "n\"1\\\n"), ("zone", "")]);
        samples.put(&first, &node, 1.5);
        samples.put(&second, &Labels::default(), 2.0);
        samples.put(&first, &node.with("type", "cpu"), 17_179_869_184.0);
        let text = samples.into_text();
        let expected = "# HELP a Back\\\\slash.\n# TYPE a gauge\na 2\n# HELP b About b.\n# TYPE b gauge\n\
            b{node=\"n\\\"1\\\\\\n\"} 1.5\nb{node=\"n\\\"1\\\\\\n\",type=\"cpu\"} 17179869184\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_text_is_compressed_while_it_is_written() {
        let (long, short) = (metric("a"), metric("b"));
        let (mut samples, mut expected) = (Samples::default(), "# HELP a About a.\n# TYPE a gauge\n".to_owned());
        for number in 0..10_000 {
            let name = format!("{number}-{}", "n".repeat(100));
            samples.put(&long, &Labels::of(&[("name", &name)]), 1.0);
            samples.put(&short, &Labels::default(), 2.0);
            writeln!(expected, "a{{name=\"{name}\"}} 1").unwrap();
        }
        let held = |lines: &Lines| lines.last.capacity() + lines.parts.iter().map(Part::gzip_bytes).sum::<usize>();
        let held: usize = samples.families.values().map(held).sum();
        assert!(held < expected.len() / 3, "{held} of {}", expected.len());
        assert!(samples.into_text().starts_with(&expected));
    }
}
