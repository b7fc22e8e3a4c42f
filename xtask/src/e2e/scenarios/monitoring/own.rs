//! Expressions of the chart's dashboards and rules.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Prefixes of metrics that the services export.
const PREFIXES: [&str; 4] = ["plimsoll_", "karpenter_", "operator_", "controller_runtime_"];
/// Start of a selector by a pattern of metric names.
const BY_PATTERN: &str = "__name__=~\"";

/// An expression and its location.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) file: String,
    pub(super) text: String,
    /// Whether it is part of a dashboard. Expressions of rules return data only while they fire.
    pub(super) shown: bool,
}

/// All expressions of the chart.
///
/// # Errors
/// If a file cannot be parsed.
pub(super) fn expressions(root: &Path) -> Result<Vec<Expression>> {
    let mut all = Vec::new();
    for (folder, extension) in [("dashboards", "json"), ("rules", "yaml")] {
        let folder = root.join("deploy/helm/plimsoll").join(folder);
        for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_none_or(|found| found != extension) {
                continue;
            }
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            // JSON is valid YAML.
            let document: Value = serde_saphyr::from_str(&text).with_context(|| format!("{}", path.display()))?;
            let mut texts = Vec::new();
            walk(&document, &mut texts);
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let shown = extension == "json";
            all.extend(texts.into_iter().map(|text| Expression { file: file.clone(), text, shown }));
        }
    }
    Ok(all)
}

/// Every value of a field `expr`, at any depth.
fn walk(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "expr" => found.push(text.clone()),
                    _ => walk(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
        _ => {}
    }
}

impl Expression {
    /// Names of metrics in the expression, including those that match a pattern; `known` are all existing names.
    pub(super) fn names<'a>(&'a self, known: &[&'a str]) -> BTreeSet<&'a str> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        // Other label values are in quotes too.
        let outside = self.text.split('"').step_by(2).flat_map(|part| part.split(|c| !is_name(c)));
        let mut names: BTreeSet<&str> = outside.filter(|word| PREFIXES.iter().any(|p| word.starts_with(p))).collect();
        for pattern in self.text.split(BY_PATTERN).skip(1).filter_map(|rest| rest.split('"').next()) {
            let matching: Vec<_> = known.iter().filter(|name| matches(pattern, name)).copied().collect();
            // A pattern without matches is reported unchanged.
            names.extend(if matching.is_empty() { vec![pattern] } else { matching });
        }
        names
    }

    /// The expression as Grafana sends it with all jobs and NodePools selected.
    pub(super) fn filled_in(&self) -> String {
        self.text.replace("$job", ".+").replace("$nodepool", ".+").replace("$__rate_interval", "1m")
    }
}

/// Whether a pattern of alternatives in parentheses and of `.*` matches a whole name.
fn matches(pattern: &str, name: &str) -> bool {
    if let Some((before, rest)) = pattern.split_once('(')
        && let Some((alternatives, after)) = rest.split_once(')')
    {
        return alternatives.split('|').any(|one| matches(&format!("{before}{one}{after}"), name));
    }
    match pattern.split_once(".*") {
        Some((start, end)) => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(text: &str) -> Expression {
        Expression { file: String::new(), text: text.to_owned(), shown: true }
    }

    #[test]
    fn names_are_found_outside_of_quotation_marks_and_by_pattern() {
        let known = ["plimsoll_a_x_total", "plimsoll_b_x_total", "plimsoll_c_x_total", "other"];
        let names = |text: &str| expression(text).names(&known).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(r#"rate(karpenter_x{y="plimsoll_z"}[5m])"#), ["karpenter_x"]);
        assert_eq!(names(r#"{__name__=~"plimsoll_(a|b)_x_total"}"#), known[..2]);
        assert_eq!(names(r#"{__name__=~"plimsoll_.*_x_total"}"#), known[..3]);
        assert_eq!(names(r#"{__name__=~"plimsoll_(d|e)_x_total"}"#), ["plimsoll_(d|e)_x_total"]);
    }
}
