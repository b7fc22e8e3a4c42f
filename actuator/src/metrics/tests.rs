//! A fixture for the tests of each family, and what holds of all families.

use super::ActuatorMetrics;
use super::view::ClusterView;
use crate::state::catalogs::Entries;
use crate::state::catalogs::fixtures::{entries, instance_type};
use jiff::Timestamp;
use parking_lot::Mutex;
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::resources::Resources;
use plimsoll_runtime::metrics::Metrics;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The time of all tests.
pub(super) const NOW: &str = "2026-01-02T12:00:00Z";

/// Metrics over a cluster that a test changes.
pub(super) struct Fixture {
    pub(super) registry: Metrics,
    pub(super) metrics: ActuatorMetrics,
    view: Arc<Mutex<ClusterView>>,
}

/// A series: labels and value.
pub(super) type Series = (BTreeMap<String, String>, f64);

impl Fixture {
    pub(super) fn new() -> Self {
        let registry = Metrics::new("actuator");
        let metrics = ActuatorMetrics::new(&registry).unwrap();
        let view = ClusterView { now: at(NOW), ..ClusterView::default() };
        let (view, own) = (Arc::new(Mutex::new(view)), metrics.clone());
        let source = Arc::clone(&view);
        registry.add_source(move |samples| own.collect(&source.lock(), samples));
        Self { registry, metrics, view }
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut ClusterView) -> T) -> T {
        change(&mut self.view.lock())
    }

    /// All series of a metric.
    pub(super) fn series(&self, name: &str) -> Vec<Series> {
        let text = self.registry.encode().unwrap();
        text.lines()
            .filter_map(parse)
            .filter(|(own, _, _)| own == name)
            .map(|(_, labels, value)| (labels, value))
            .collect()
    }

    /// The value of the only series that has these labels; `None` if there is none.
    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let is_wanted =
            |(own, _): &Series| labels.iter().all(|(name, value)| own.get(*name).map_or("", String::as_str) == *value);
        let found: Vec<Series> = self.series(name).into_iter().filter(is_wanted).collect();
        assert!(found.len() <= 1, "{name} {labels:?}: {found:?}");
        found.first().map(|(_, value)| *value)
    }
}

/// A line as name, labels and value; `None` for a comment. No test has a comma or quote in a value.
fn parse(line: &str) -> Option<(String, BTreeMap<String, String>, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let pairs = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap();
        (name.to_owned(), value.trim_matches('"').to_owned())
    };
    Some((name.to_owned(), pairs.map(pair).collect(), value.parse().unwrap()))
}

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(super) fn object<T: DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

pub(super) fn node(name: &str, pool: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-02T11:00:00Z",
            "labels": {
                "karpenter.sh/nodepool": pool, "karpenter.sh/capacity-type": "spot",
                "topology.kubernetes.io/zone": "us-west-2a", "node.kubernetes.io/instance-type": "m5.large",
                "kubernetes.io/arch": "amd64", "karpenter.k8s.aws/instance-family": "m5", "team": "red",
            },
        },
        "spec": {"providerID": format!("aws:///us-west-2a/i-{name}")},
        "status": {
            "phase": "Running",
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
            "allocatable": {"cpu": "1930m", "memory": "7Gi", "pods": "29"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastTransitionTime": "2026-01-02T11:30:00Z"}],
        },
    })
}

pub(crate) fn claim(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": name, "uid": format!("claim-{name}"), "resourceVersion": "1",
            "labels": {
                "karpenter.sh/nodepool": pool, "karpenter.sh/capacity-type": "spot",
                "topology.kubernetes.io/zone": "us-west-2a", "node.kubernetes.io/instance-type": "m5.large",
                "karpenter.k8s.aws/ec2nodeclass": "default",
            },
        },
        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "EC2NodeClass", "name": "default"}},
        "status": {
            "providerID": format!("aws:///us-west-2a/i-{name}"), "capacity": {"cpu": "2", "memory": "8Gi"},
            "conditions": [{"type": "Initialized", "status": "True", "reason": "Initialized", "message": "",
                "lastTransitionTime": "2026-01-02T11:10:00Z"}],
        },
    })
}

/// A pod that runs on `node`, or waits if that is empty.
pub(super) fn pod(name: &str, node: &str) -> Value {
    let condition = |kind: &str, status: bool, time: &str| {
        let status = if status { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": time})
    };
    let bound = !node.is_empty();
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"),
            "creationTimestamp": "2026-01-02T11:59:00Z"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {
                "requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}}],
        },
        "status": {
            "phase": if bound { "Running" } else { "Pending" },
            "conditions": [
                condition("PodScheduled", bound, "2026-01-02T11:59:20Z"),
                condition("Ready", bound, "2026-01-02T11:59:50Z"),
            ],
        },
    })
}

pub(super) fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": name, "uid": format!("pool-{name}"), "resourceVersion": "1"},
        "spec": {"template": {"spec": {"requirements": [],
            "nodeClassRef": {"group": "g", "kind": "EC2NodeClass", "name": "default"}}}},
    })
}

pub(crate) fn offering(zone: &str, capacity_type: CapacityType, micro_usd: i64, available: bool) -> Offering {
    let price = MicroUsdPerHour(micro_usd);
    Offering { zone: zone.to_owned(), capacity_type, price, available, ..Offering::default() }
}

/// The catalog of node class `default`: one instance type.
pub(crate) fn catalog(offerings: Vec<Offering>) -> Entries {
    let capacity = Resources::from([("cpu", 2000), ("memory", 8 << 30)]);
    entries(InstanceType { capacity, offerings, ..instance_type("m5.large") })
}

fn full() -> Fixture {
    let fixture = Fixture::new();
    fixture.change(|view| {
        view.nodes = vec![object(node("a", "default"))];
        view.claims = vec![object(claim("a", "default"))];
        view.pools = vec![object(pool("default"))];
        view.pods = vec![object(pod("web", "a")), object(pod("new", ""))];
        view.catalogs = catalog(vec![offering("us-west-2a", CapacityType::Spot, 40_000, true)]);
    });
    fixture
}

#[test]
fn every_label_is_declared() {
    let fixture = full();
    let specs: BTreeMap<String, BTreeSet<String>> =
        fixture.registry.specs().into_iter().map(|spec| (spec.name, spec.labels.into_iter().collect())).collect();
    let text = fixture.registry.encode().unwrap();
    let mut checked = 0;
    for (name, labels, _) in text.lines().filter_map(parse) {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let declared = specs.get(&name).or_else(|| specs.get(base?)).unwrap_or_else(|| panic!("{name}"));
        for label in labels.keys().filter(|label| !matches!(label.as_str(), "le" | "quantile")) {
            assert!(declared.contains(label), "{name}: label {label}");
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn each_metric_is_described_once_and_its_series_are_together() {
    let text = full().registry.encode().unwrap();
    let mut described = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(described.insert(line.to_owned()), "{line}");
    }
    let mut current = String::new();
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(header) => current = header.split(' ').next().unwrap().to_owned(),
            None if line.starts_with('#') => {}
            None => assert!(line.starts_with(&current), "{line} after {current}"),
        }
    }
}

#[test]
fn gauges_of_a_deleted_cluster_are_gone() {
    let fixture = full();
    let names = [
        "karpenter_nodes_allocatable",
        "karpenter_nodes_total_pod_requests",
        "karpenter_pods_state",
        "karpenter_nodepools_usage",
        "karpenter_nodepools_cost_total",
        "operator_nodeclaim_status_condition_count",
        "operator_node_status_condition_current_status_seconds",
        "karpenter_cloudprovider_instance_type_offering_price_estimate",
    ];
    for name in names {
        assert_ne!(fixture.series(name), Vec::new(), "{name}");
    }
    fixture.change(|view| *view = ClusterView { now: view.now, ..ClusterView::default() });
    for name in names {
        assert_eq!(fixture.series(name), Vec::new(), "{name}");
    }
}

#[test]
fn end_of_a_term_clears_what_only_a_leader_knows() {
    let fixture = Fixture::new();
    fixture.metrics.begin_term();
    let gone: Arc<k8s_openapi::api::core::v1::Node> = {
        let mut gone = node("a", "default");
        gone["metadata"]["deletionTimestamp"] = json!("2026-01-02T11:59:00Z");
        object(gone)
    };
    fixture.metrics.nodes.terminated(&gone, at(NOW));
    fixture.metrics.interruption.batch(Some(at("2026-01-02T11:59:30Z")), at(NOW));
    let longest = [("nodepool", "default"), ("quantile", "1")];
    assert_eq!(fixture.value("karpenter_nodes_termination_duration_seconds", &longest), Some(60.0));
    assert_eq!(fixture.value("plimsoll_actuator_interruption_queue_lag_seconds", &[]), Some(30.0));
    fixture.metrics.end_term();
    assert!(fixture.value("karpenter_nodes_termination_duration_seconds", &longest).unwrap().is_nan());
    assert_eq!(fixture.value("plimsoll_actuator_interruption_queue_lag_seconds", &[]), Some(0.0));
    assert_eq!(fixture.value("plimsoll_actuator_leading", &[]), Some(0.0));
    let count = fixture.value("karpenter_nodes_termination_duration_seconds_count", &[("nodepool", "default")]);
    assert_eq!(count, Some(1.0), "counts stay");
}
