//! Metrics of Nodes.

use super::view::{ClusterView, label_of, pool_of, resource_type, seconds_between, units};
use crate::nodes::provider_id;
use crate::state::capacity::amounts;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Node};
use plimsoll_api::{NodeClaim, Pod, ResourceList};
use plimsoll_model::names::label;
use plimsoll_model::resources::{PODS, Resources};
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped};
use plimsoll_runtime::metrics::summary::Summaries;
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use prometheus::{HistogramVec, IntCounterVec};
use std::collections::BTreeMap;

/// Upper bounds of lifetimes in seconds: a quarter of an hour to a quarter of a year.
const LIFETIME_BUCKETS: [f64; 16] = [
    900.0,
    1800.0,
    3600.0,
    7200.0,
    14_400.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    259_200.0,
    432_000.0,
    604_800.0,
    1_209_600.0,
    2_592_000.0,
    5_184_000.0,
    7_776_000.0,
];

/// Metrics of Nodes. Clones share them.
#[derive(Debug, Clone)]
pub struct NodeMetrics {
    /// Names of the labels that are taken from the Node's labels, by the Node's label.
    well_known: Vec<(&'static str, String)>,
    allocatable: Scraped,
    pod_requests: Scraped,
    pod_limits: Scraped,
    daemon_requests: Scraped,
    daemon_limits: Scraped,
    overhead: Scraped,
    lifetime: Scraped,
    utilization: Scraped,
    created: IntCounterVec,
    terminated: IntCounterVec,
    drained: IntCounterVec,
    terminations: Summaries,
    lifetimes: HistogramVec,
}

impl NodeMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let karpenter = metrics.karpenter();
        let well_known = well_known();
        let names: Vec<&str> = well_known.iter().map(|(_, name)| name.as_str()).collect();
        let of_node: Vec<&str> = ["node_name", "phase", "managed"].into_iter().chain(names).collect();
        let of_resource: Vec<&str> = ["resource_type"].into_iter().chain(of_node.iter().copied()).collect();
        let scraped = |name, help| karpenter.scraped(name, help, &of_resource);
        let by_zone = ["nodepool", "zone"];
        Ok(Self {
            allocatable: scraped("nodes_allocatable", "Resources that a node offers to pods.")?,
            pod_requests: scraped("nodes_total_pod_requests", "Requests of all pods on a node, DaemonSets included.")?,
            pod_limits: scraped("nodes_total_pod_limits", "Limits of all pods on a node, DaemonSets included.")?,
            daemon_requests: scraped("nodes_total_daemon_requests", "Requests of the DaemonSet pods on a node.")?,
            daemon_limits: scraped("nodes_total_daemon_limits", "Limits of the DaemonSet pods on a node.")?,
            overhead: scraped("nodes_system_overhead", "Capacity of a node less what it offers to pods.")?,
            lifetime: karpenter.scraped("nodes_current_lifetime_seconds", "Age of a node in seconds.", &of_node)?,
            utilization: karpenter.scraped(
                "cluster_utilization_percent",
                "Percentage of the allocatable resources of all nodes that pods request.",
                &["resource_type"],
            )?,
            created: karpenter.counters("nodes_created_total", "Nodes that registered.", &by_zone)?,
            terminated: karpenter.counters("nodes_terminated_total", "Nodes that are gone.", &by_zone)?,
            drained: karpenter.counters("nodes_drained_total", "Nodes whose drain is complete.", &["nodepool"])?,
            terminations: karpenter.summaries(
                "nodes_termination_duration_seconds",
                "Seconds from the deletion of a Node until it is gone.",
                &["nodepool"],
            )?,
            lifetimes: karpenter.histograms(
                "nodes_lifetime_duration_seconds",
                "Seconds from the creation of a Node until it is gone.",
                &["nodepool"],
                &LIFETIME_BUCKETS,
            )?,
            well_known,
        })
    }

    /// Counts a Node that registered.
    pub fn created(&self, claim: &NodeClaim) {
        let labels = claim.metadata.labels.as_ref();
        self.created.with_label_values(&[pool_of(labels), label_of(labels, label::ZONE)]).inc();
    }

    /// Counts a completed drain.
    pub fn drained(&self, claim: &NodeClaim) {
        self.drained.with_label_values(&[claim.node_pool()]).inc();
    }

    /// Counts a Node that is gone at `now`.
    pub fn terminated(&self, node: &Node, now: Timestamp) {
        let labels = node.metadata.labels.as_ref();
        let pool = pool_of(labels);
        self.terminated.with_label_values(&[pool, label_of(labels, label::ZONE)]).inc();
        if let Some(deleted) = &node.metadata.deletion_timestamp {
            self.terminations.observe(&[pool], seconds_between(deleted.0, now));
        }
        if let Some(created) = &node.metadata.creation_timestamp {
            self.lifetimes.with_label_values(&[pool]).observe(seconds_between(created.0, now));
        }
    }

    /// Forgets the quantiles of a term that is over.
    pub(super) fn forget(&self) {
        self.terminations.forget();
    }

    /// Writes the gauges.
    pub(super) fn collect(&self, view: &ClusterView, samples: &mut Samples) {
        let claims = view.claims_by_provider();
        let mut loads: BTreeMap<&str, Load> = BTreeMap::new();
        for pod in view.pods.iter().filter(|pod| !pod.is_terminal()) {
            if let Some(node) = pod.node_name.as_deref() {
                loads.entry(node).or_default().add(pod);
            }
        }
        let (mut allocatable, mut requested) = (Resources::new(), Resources::new());
        let empty = Load::default();
        for node in &view.nodes {
            let load = loads.get(node.metadata.name.as_deref().unwrap_or_default()).unwrap_or(&empty);
            let offered = self.node(node, &claims, load, view.now, samples);
            allocatable.add(&offered);
            requested.add(&load.requests);
        }
        for (name, amount) in allocatable.iter().filter(|(_, amount)| *amount > 0) {
            let labels = Labels::of(&[("resource_type", &resource_type(name))]);
            let percent = 100.0 * units(name, requested.get(name)) / units(name, amount);
            samples.put(&self.utilization, &labels, percent);
        }
    }

    /// Writes the gauges of a node. Returns what it offers to pods.
    fn node(
        &self,
        node: &Node,
        claims: &BTreeMap<&str, &NodeClaim>,
        load: &Load,
        now: Timestamp,
        samples: &mut Samples,
    ) -> Resources {
        let status = node.status.as_ref();
        let managed = provider_id(node).is_some_and(|id| claims.contains_key(id));
        let mut labels = Labels::default();
        labels.push("node_name", node.metadata.name.as_deref().unwrap_or_default());
        labels.push("phase", status.and_then(|status| status.phase.as_deref()).unwrap_or_default());
        labels.push("managed", if managed { "true" } else { "false" });
        for (key, name) in &self.well_known {
            labels.push(name, label_of(node.metadata.labels.as_ref(), key));
        }
        let allocatable = read(status.and_then(|status| status.allocatable.as_ref()));
        let mut overhead = read(status.and_then(|status| status.capacity.as_ref()));
        overhead.subtract(&allocatable);
        for (metric, resources) in [
            (&self.allocatable, &allocatable),
            (&self.overhead, &overhead),
            (&self.pod_requests, &load.requests),
            (&self.pod_limits, &load.limits),
            (&self.daemon_requests, &load.daemon_requests),
            (&self.daemon_limits, &load.daemon_limits),
        ] {
            for (name, amount) in resources.iter() {
                samples.put(metric, &labels.with("resource_type", &resource_type(name)), units(name, amount));
            }
        }
        if let Some(created) = &node.metadata.creation_timestamp {
            samples.put(&self.lifetime, &labels, seconds_between(created.0, now));
        }
        allocatable
    }
}

/// Well-known labels of nodes, each with the name of its label in metrics: the part after the domain.
fn well_known() -> Vec<(&'static str, String)> {
    let keys = label::WELL_KNOWN.iter().chain(label::AWS_WELL_KNOWN);
    keys.filter_map(|key| Some((*key, key.split_once('/')?.1.to_lowercase().replace('-', "_")))).collect()
}

/// Sums over the pods on a node.
#[derive(Debug, Default)]
struct Load {
    requests: Resources,
    limits: Resources,
    daemon_requests: Resources,
    daemon_limits: Resources,
}

impl Load {
    fn add(&mut self, pod: &Pod) {
        let Some(spec) = &pod.spec else { return };
        // What cannot be read is reported with the snapshot.
        let requests = plimsoll_snapshot::effective_requests(spec).unwrap_or_default();
        let mut limits = Resources::new();
        spec.containers.iter().for_each(|container| limits.add(&limits_of(container)));
        for container in spec.init_containers.iter().flatten() {
            limits.raise_to(&limits_of(container));
        }
        limits.set(PODS, 1);
        self.requests.add(&requests);
        self.limits.add(&limits);
        if pod.is_daemon() {
            self.daemon_requests.add(&requests);
            self.daemon_limits.add(&limits);
        }
    }
}

fn limits_of(container: &Container) -> Resources {
    read(container.resources.as_ref().and_then(|resources| resources.limits.as_ref()))
}

fn read(list: Option<&ResourceList>) -> Resources {
    list.map(amounts).unwrap_or_default()
}

#[cfg(test)]
mod tests;
