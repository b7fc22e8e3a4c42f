//! Dashboards and alert rules use only metrics that a service exports.

use super::specs;
use plimsoll_runtime::metrics::spec::MetricSpec;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Prefixes of metrics that the services export.
const PREFIXES: [&str; 4] = ["plimsoll_", "karpenter_", "operator_", "controller_runtime_"];
/// Suffixes of the series of a histogram or summary.
const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/helm/plimsoll")
}

/// Every value of a field `expr`, at any depth.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "expr" => found.push(text.clone()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// Names of metrics in a PromQL expression.
fn names(expression: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // Label values, such as name patterns, are in quotes.
    let outside_quotes = expression.split('"').step_by(2);
    outside_quotes
        .flat_map(|part| part.split(|c| !is_name(c)))
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

fn is_exported(name: &str, specs: &[MetricSpec]) -> bool {
    let stems = SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(suffix));
    let known = |name: &str| specs.iter().any(|spec| spec.name == name);
    known(name) || stems.into_iter().any(known)
}

fn unknown(expressions: &[String]) -> Vec<&str> {
    let specs = specs();
    expressions.iter().flat_map(|text| names(text)).filter(|name| !is_exported(name, &specs)).collect()
}

/// The expressions of all dashboards.
fn of_dashboards() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(chart().join("dashboards")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let board: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            expressions(&board, &mut found);
        }
    }
    assert!(found.len() > 50, "the dashboards have {} queries", found.len());
    found
}

#[test]
fn dashboards_use_exported_metrics() {
    assert_eq!(unknown(&of_dashboards()), [""; 0]);
}

/// While Karpenter is scraped too, these metrics have its series as well.
#[test]
fn dashboards_select_a_job_of_metrics_that_karpenter_has_too() {
    for text in of_dashboards() {
        for name in names(&text).into_iter().filter(|name| !name.starts_with("plimsoll_")) {
            let selected = format!("{name}{{job=~\"$job\"");
            assert_eq!(text.matches(name).count(), text.matches(&selected).count(), "{name} in {text}");
        }
    }
}

#[test]
fn alert_rules_use_exported_metrics() {
    let text = std::fs::read_to_string(chart().join("rules/plimsoll.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let mut found = Vec::new();
    expressions(&rules, &mut found);
    assert!(found.len() > 10, "{} rules", found.len());
    assert_eq!(unknown(&found), [""; 0]);
}

#[test]
fn a_metric_that_no_service_exports_is_found() {
    let expressions = vec!["rate(plimsoll_actuator_nothing_total[5m]) + up".to_owned()];
    assert_eq!(unknown(&expressions), ["plimsoll_actuator_nothing_total"]);
}
