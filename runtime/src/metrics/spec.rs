//! Properties of each registered metric, for the reference in docs/metrics.md and the naming rules.

use std::fmt;

/// Type of a metric, as in the Prometheus text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricKind {
    /// Only increases, until the process restarts.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
    /// Quantiles over the last minutes.
    Summary,
}

impl MetricKind {
    /// Name in the text format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Relation of a metric to the metric of the same name in Karpenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Karpenter has no such metric.
    Own,
    /// Same name, labels, unit and meaning.
    Same,
    /// Same name, but different labels or meaning, with a description and a reason.
    Differs(&'static str),
}

/// A registered metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Service that exports the metric, such as `watcher`.
    pub service: &'static str,
    /// Full name.
    pub name: String,
    /// Type.
    pub kind: MetricKind,
    /// Label names, in the order of the text format. `le` and `quantile` are not listed.
    pub labels: Vec<String>,
    /// One sentence with the unit.
    pub help: String,
    /// Relation to Karpenter.
    pub meaning: Meaning,
}

/// Suffixes that the text format adds to histograms and summaries.
const RESERVED_SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];
/// Units that are not base units, and the base unit.
const UNITS: [(&str, &str); 9] = [
    ("milliseconds", "seconds"),
    ("microseconds", "seconds"),
    ("nanoseconds", "seconds"),
    ("minutes", "seconds"),
    ("hours", "seconds"),
    ("kilobytes", "bytes"),
    ("megabytes", "bytes"),
    ("gigabytes", "bytes"),
    ("bits", "bytes"),
];

impl MetricSpec {
    /// Violations of Prometheus' naming rules, as `promtool check metrics` reports them. Karpenter's names are not
    /// changed: for them, only the rules of the text format are checked.
    #[must_use]
    pub fn naming_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |text: String| problems.push(format!("{}: {text}", self.name));
        let (name, kind) = (self.name.as_str(), self.kind);
        if self.help.is_empty() {
            problem("no help text".to_owned());
        }
        if !is_snake_case(name) {
            problem("not in snake_case".to_owned());
        }
        for label in &self.labels {
            if !is_snake_case(label) || label.starts_with("__") {
                problem(format!("label {label} is not in snake_case"));
            }
            if matches!(label.as_str(), "le" | "quantile") {
                problem(format!("label {label} is reserved"));
            }
        }
        if (kind == MetricKind::Counter) != name.ends_with("_total") && self.meaning == Meaning::Own {
            problem(format!(
                "a {kind}'s name must{} end in _total",
                if kind == MetricKind::Counter { "" } else { " not" }
            ));
        }
        if kind == MetricKind::Counter && !name.ends_with("_total") {
            problem("a counter's name must end in _total".to_owned());
        }
        if self.meaning != Meaning::Own {
            return problems;
        }
        if let Some(suffix) = RESERVED_SUFFIXES.iter().find(|suffix| name.ends_with(*suffix)) {
            problem(format!("suffix {suffix} is reserved for histograms and summaries"));
        }
        if name.split('_').any(|word| word == kind.as_str()) {
            problem("the name contains the type".to_owned());
        }
        for (unit, base) in UNITS {
            if name.split('_').any(|word| word == unit) {
                problem(format!("{unit} is not a base unit, use {base}"));
            }
        }
        problems
    }
}

fn is_snake_case(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    starts && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(name: &str, kind: MetricKind, meaning: Meaning) -> usize {
        let (labels, help) = (vec!["reason".to_owned()], "Help.".to_owned());
        MetricSpec { service: "test", name: name.to_owned(), kind, labels, help, meaning }.naming_problems().len()
    }

    #[test]
    fn naming_rules_of_promtool() {
        use MetricKind::{Counter, Gauge, Histogram};
        for (name, kind) in [("a_total", Counter), ("a_seconds", Histogram), ("a_timestamp_seconds", Gauge)] {
            assert_eq!(problems(name, kind, Meaning::Own), 0, "{name}");
        }
        for (name, kind) in [
            ("a_total", Gauge),
            ("a_minutes", Gauge),
            ("a_milliseconds", Histogram),
            ("a_count", Gauge),
            ("a_sum", Gauge),
            ("aB", Gauge),
            ("a_gauge", Gauge),
            ("1a", Gauge),
        ] {
            assert_eq!(problems(name, kind, Meaning::Own), 1, "{name}");
        }
        assert!(problems("a", Counter, Meaning::Own) > 0);
        assert!(problems("a", Counter, Meaning::Same) > 0, "no exception for Karpenter's counters");
        assert_eq!(problems("nodepools_cost_total", Gauge, Meaning::Same), 0, "Karpenter's own name");
    }

    #[test]
    fn reserved_labels_and_missing_help_are_problems() {
        let spec = |label: &str, help: &str| MetricSpec {
            service: "test",
            name: "a".to_owned(),
            kind: MetricKind::Gauge,
            labels: vec![label.to_owned()],
            help: help.to_owned(),
            meaning: Meaning::Own,
        };
        assert_eq!(spec("reason", "Help.").naming_problems(), [""; 0]);
        for wrong in [spec("le", "Help."), spec("nodePool", "Help."), spec("reason", "")] {
            assert_eq!(wrong.naming_problems().len(), 1, "{wrong:?}");
        }
    }
}
