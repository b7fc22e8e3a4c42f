//! The metrics of all services: their names and labels, their relation to Karpenter's, and their reference.
#![allow(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod document;
mod karpenter;
mod monitoring;

use karpenter::{METRICS, NOT_EXPORTED, of_conditions};
use plimsoll_actuator::metrics::ActuatorMetrics;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::metrics::spec::{Meaning, MetricSpec};
use plimsoll_runtime::rpc::RpcMetrics;
use plimsoll_runtime::tls;
use plimsoll_scheduler::metrics::SchedulerMetrics;
use plimsoll_watcher::metrics::WatcherMetrics;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// All metrics that the services register, by service and name.
fn specs() -> Vec<MetricSpec> {
    let shared = |metrics: &Metrics| {
        RpcMetrics::new(metrics).unwrap();
        tls::export_expiry(None, metrics).unwrap();
    };
    let (actuator, watcher, scheduler) = (Metrics::new("actuator"), Metrics::new("watcher"), Metrics::new("scheduler"));
    ActuatorMetrics::new(&actuator).unwrap();
    WatcherMetrics::new(&watcher).unwrap();
    SchedulerMetrics::new(&scheduler).unwrap();
    [actuator, watcher, scheduler]
        .iter()
        .flat_map(|metrics| {
            shared(metrics);
            metrics.specs()
        })
        .collect()
}

/// Karpenter's metrics by name: type and labels.
fn karpenters() -> BTreeMap<String, (&'static str, BTreeSet<String>)> {
    let texts = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<String>>();
    let core = METRICS.iter().map(|(name, kind, labels)| ((*name).to_owned(), (*kind, texts(labels))));
    let conditions = of_conditions().into_iter().map(|(name, kind, labels)| (name, (kind, texts(&labels))));
    core.chain(conditions).collect()
}

#[test]
fn names_follow_prometheus_rules() {
    let problems: Vec<String> = specs().iter().flat_map(MetricSpec::naming_problems).collect();
    assert_eq!(problems, [""; 0]);
}

#[test]
fn own_metrics_are_named_after_their_service() {
    for spec in specs().iter().filter(|spec| spec.meaning == Meaning::Own) {
        assert!(spec.name.starts_with(&format!("plimsoll_{}_", spec.service)), "{}", spec.name);
    }
}

#[test]
fn shared_metrics_have_karpenters_types_and_labels() {
    let karpenters = karpenters();
    for spec in specs().iter().filter(|spec| spec.meaning != Meaning::Own) {
        let name = &spec.name;
        let (kind, labels) = karpenters.get(name).unwrap_or_else(|| panic!("Karpenter has no {name}"));
        assert_eq!(spec.kind.as_str(), *kind, "{name}");
        let own: BTreeSet<String> = spec.labels.iter().cloned().collect();
        assert_eq!(own.len(), spec.labels.len(), "{name}: a label twice");
        let missing: Vec<&String> = labels.difference(&own).filter(|label| *label != "*").collect();
        let further: Vec<&String> = own.difference(labels).collect();
        if spec.meaning == Meaning::Same {
            assert!(missing.is_empty(), "{name}: without {missing:?}");
        }
        assert!(further.is_empty() || labels.contains("*"), "{name}: with {further:?}");
    }
}

#[test]
fn every_metric_of_karpenter_is_exported_or_has_a_reason() {
    let exported: BTreeSet<String> = specs().into_iter().map(|spec| spec.name).collect();
    let explained: BTreeSet<&str> = NOT_EXPORTED.iter().map(|(name, _)| *name).collect();
    for name in karpenters().keys() {
        let (exported, explained) = (exported.contains(name), explained.contains(name.as_str()));
        assert!(exported != explained, "{name}: exported {exported}, listed as not exported {explained}");
    }
}

#[test]
fn each_shared_metric_comes_from_one_service() {
    let mut services: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for spec in specs() {
        services.entry(spec.name).or_default().push(spec.service);
    }
    // Each service has its own controllers.
    services.retain(|name, services| services.len() > 1 && !name.starts_with("controller_runtime_"));
    assert_eq!(services, BTreeMap::new());
}

/// The queries are facts in a file that the end-to-end scenario `monitoring` reads too.
#[test]
fn metrics_of_karpenters_dashboards_are_exported_with_the_labels_that_they_use() {
    // Labels of the series of a histogram or summary, and labels from the scrape configuration.
    let added = ["le", "quantile", "job"];
    let boards: Value = serde_saphyr::from_str(include_str!("../../monitoring/karpenter-dashboards.yaml")).unwrap();
    let queries: Vec<&Value> = boards.as_object().unwrap().values().flat_map(|all| all.as_array().unwrap()).collect();
    assert!(queries.len() > 40, "{} queries", queries.len());
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let specs = specs();
    for query in queries {
        let selected = query["select"].as_object().into_iter().flat_map(|labels| labels.keys().cloned());
        let labels: Vec<String> = selected.chain(texts(&query["by"])).collect();
        for metric in texts(&query["metrics"]).iter().filter(|metric| !metric.starts_with("node_")) {
            let name = metric.trim_end_matches("_bucket").trim_end_matches("_count");
            let spec = specs.iter().find(|spec| spec.name == name).unwrap_or_else(|| panic!("{name} is not exported"));
            for label in labels.iter().filter(|label| !added.contains(&label.as_str())) {
                assert!(spec.labels.contains(label), "{name} has no label {label}");
            }
        }
    }
}

/// With `PLIMSOLL_UPDATE=1`, writes the file instead.
#[test]
fn reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let expected = document::document(&specs());
    if std::env::var_os("PLIMSOLL_UPDATE").is_some() {
        std::fs::write(&path, expected).unwrap();
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == expected, "docs/metrics.md is stale: run this test with PLIMSOLL_UPDATE=1");
}
