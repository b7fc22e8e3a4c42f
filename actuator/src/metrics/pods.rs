//! Metrics of pods: what state they are in, and how long they waited.

use super::view::{ClusterView, label_of, pool_of, seconds_between};
use crate::nodes::provider_id;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use plimsoll_api::condition::Status;
use plimsoll_api::pod::PodCondition;
use plimsoll_api::{NodeClaim, Pod, PodPhase};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped};
use plimsoll_runtime::metrics::summary::Summaries;
use plimsoll_runtime::metrics::{DURATION_BUCKETS_SECONDS, Metrics, MetricsError};
use prometheus::{Histogram, IntCounterVec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Labels that name a pod.
const OF_POD: [&str; 2] = ["name", "namespace"];
/// Pods whose plan is remembered until they run; more than a cluster has.
const MAX_PLANNED: usize = 500_000;

/// When the first plan of each pod was received, by UID. Clones share it.
type Planned = Arc<Mutex<BTreeMap<String, Timestamp>>>;

/// Metrics of pods. Clones share them.
#[derive(Debug, Clone)]
pub struct PodMetrics {
    planned: Planned,
    state: Scraped,
    unbound: Scraped,
    unstarted: Scraped,
    provisioning_unbound: Scraped,
    provisioning_unstarted: Scraped,
    undecided: Scraped,
    startup: Summaries,
    bound: Histogram,
    provisioning_bound: Histogram,
    provisioning_startup: Histogram,
    decision: Histogram,
    /// Eviction requests by the API server's answer.
    evictions: IntCounterVec,
    drained: IntCounterVec,
}

/// Since when a pod waits, and for whom.
const FROM_PLAN: &str = "The time counts from the first plan for the pod that the actuator received.";

impl PodMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let (same, planned) = (metrics.karpenter(), metrics.karpenter_but(FROM_PLAN));
        let buckets = DURATION_BUCKETS_SECONDS;
        let state_labels = [
            "name",
            "namespace",
            "owner",
            "node",
            "nodepool",
            "zone",
            "arch",
            "capacity_type",
            "instance_type",
            "phase",
            "scheduled",
            "ready",
            "managed",
        ];
        Ok(Self {
            planned: Planned::default(),
            state: same.scraped("pods_state", "1 for each pod.", &state_labels)?,
            unbound: same.scraped("pods_unbound_time_seconds", "Age of a pod without a node, in seconds.", &OF_POD)?,
            unstarted: same.scraped("pods_unstarted_time_seconds", "Age of a pending pod, in seconds.", &OF_POD)?,
            provisioning_unbound: planned.scraped(
                "pods_provisioning_unbound_time_seconds",
                "Seconds since the first plan of a pod without a node.",
                &OF_POD,
            )?,
            provisioning_unstarted: planned.scraped(
                "pods_provisioning_unstarted_time_seconds",
                "Seconds since the first plan of a pending pod.",
                &OF_POD,
            )?,
            undecided: metrics.karpenter_but("Counts from the creation of the pod.").scraped(
                "pods_provisioning_scheduling_undecided_time_seconds",
                "Age of a pod that kube-scheduler cannot place and no plan places, in seconds.",
                &OF_POD,
            )?,
            startup: same.summaries(
                "pods_startup_duration_seconds",
                "Seconds from the creation of a pod until it is ready.",
                &[],
            )?,
            bound: same.histogram(
                "pods_bound_duration_seconds",
                "Seconds from the creation of a pod until it has a node.",
                buckets,
            )?,
            provisioning_bound: planned.histogram(
                "pods_provisioning_bound_duration_seconds",
                "Seconds from the first plan of a pod until it has a node.",
                buckets,
            )?,
            provisioning_startup: planned.histogram(
                "pods_provisioning_startup_duration_seconds",
                "Seconds from the first plan of a pod until it is ready.",
                buckets,
            )?,
            decision: metrics.karpenter_but("Counts from the creation of the pod.").histogram(
                "pods_scheduling_decision_duration_seconds",
                "Seconds from the creation of a pod until its first plan.",
                buckets,
            )?,
            evictions: same.counters(
                "pods_eviction_requests_total",
                "Eviction requests, by the status code of the API server.",
                &["code"],
            )?,
            drained: same.counters(
                "pods_drained_total",
                "Pods that were evicted or deleted because their node is removed, by the reason of the disruption.",
                &["reason"],
            )?,
        })
    }

    /// Counts an eviction request.
    pub fn eviction(&self, code: u16) {
        self.evictions.with_label_values(&[code.to_string()]).inc();
    }

    /// Counts a pod that left its node.
    pub fn drained(&self, claim: Option<&NodeClaim>) {
        self.drained.with_label_values(&[claim.map_or("", super::node_claims::disruption_reason)]).inc();
    }

    /// Records the pods that a plan places on new or existing nodes. `created` returns the creation time of a pod that
    /// still exists.
    pub fn planned(&self, plan: &Plan, now: Timestamp, created: impl Fn(&str) -> Option<Timestamp>) {
        let mut planned = self.planned.lock();
        for pod in placed_pods(plan) {
            let uid = pod.uid.as_str();
            if planned.len() >= MAX_PLANNED || planned.contains_key(uid) {
                continue;
            }
            if let Some(created) = created(uid) {
                planned.insert(uid.to_owned(), now);
                self.decision.observe(seconds_between(created, now));
            }
        }
    }

    /// Whether a plan is the first for any of its pods.
    #[must_use]
    pub fn has_news(&self, plan: &Plan) -> bool {
        let planned = self.planned.lock();
        placed_pods(plan).any(|pod| !planned.contains_key(pod.uid.as_str()))
    }

    pub(super) fn forget(&self) {
        self.startup.forget();
        self.planned.lock().clear();
    }

    /// Writes the gauges.
    pub(super) fn collect(&self, view: &ClusterView, samples: &mut Samples) {
        let nodes = view.nodes_by_name();
        let claims = view.claims_by_provider();
        let planned = self.planned.lock();
        for pod in &view.pods {
            let node = pod.node_name.as_deref().and_then(|name| nodes.get(name)).copied();
            let provider = node.and_then(provider_id);
            let managed = provider.is_some_and(|id| claims.contains_key(id));
            samples.put(&self.state, &state_labels(pod, node, managed), 1.0);
            let Some(created) = &pod.metadata.creation_timestamp else { continue };
            if !is_pending(pod) || pod.is_terminating() {
                continue;
            }
            let labels = Labels::of(&[("name", name(pod)), ("namespace", namespace(pod))]);
            let age = seconds_between(created.0, view.now);
            let since_plan = pod.metadata.uid.as_ref().and_then(|uid| planned.get(uid)).copied();
            let since_plan = since_plan.map(|at| seconds_between(at, view.now));
            samples.put(&self.unstarted, &labels, age);
            if let Some(seconds) = since_plan {
                samples.put(&self.provisioning_unstarted, &labels, seconds);
            }
            if pod.node_name.is_some() {
                continue;
            }
            samples.put(&self.unbound, &labels, age);
            match since_plan {
                Some(seconds) => samples.put(&self.provisioning_unbound, &labels, seconds),
                None if is_unscheduled(pod) => samples.put(&self.undecided, &labels, age),
                None => {}
            }
        }
    }
}

/// The pods that a plan places on new or existing nodes.
fn placed_pods(plan: &Plan) -> impl Iterator<Item = &PodRef> {
    plan.launched_pods().chain(plan.placements.iter().flat_map(|placement| &placement.pods))
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

fn phase(pod: &Pod) -> &str {
    pod.status.phase.map_or("", PodPhase::as_str)
}

fn is_pending(pod: &Pod) -> bool {
    pod.status.phase == Some(PodPhase::Pending)
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    pod.status.ready.as_ref()?.true_since()
}

/// Whether kube-scheduler has considered the pod in vain.
fn is_unscheduled(pod: &Pod) -> bool {
    pod.status.scheduled.as_ref().is_some_and(|condition| condition.status == Status::False)
}

fn state_labels(pod: &Pod, node: Option<&Node>, managed: bool) -> Labels {
    let truth = |value: bool| if value { "true" } else { "false" };
    let is_true = |condition: &Option<Box<PodCondition>>| {
        truth(condition.as_ref().is_some_and(|condition| condition.status == Status::True))
    };
    let of_node = |key| label_of(node.and_then(|node| node.metadata.labels.as_ref()), key);
    let owner = pod.owners.first().map(|owner| {
        let kind = owner.kind.to_lowercase();
        format!("/apis/{}/namespaces/{}/{kind}s/{}", owner.api_version, namespace(pod), owner.name)
    });
    Labels::of(&[
        ("name", name(pod)),
        ("namespace", namespace(pod)),
        ("owner", owner.as_deref().unwrap_or_default()),
        ("node", pod.node_name.as_deref().unwrap_or_default()),
        ("nodepool", pool_of(node.and_then(|node| node.metadata.labels.as_ref()))),
        ("zone", of_node(label::ZONE)),
        ("arch", of_node(label::ARCH)),
        ("capacity_type", of_node(label::CAPACITY_TYPE)),
        ("instance_type", of_node(label::INSTANCE_TYPE)),
        ("phase", phase(pod)),
        ("scheduled", is_true(&pod.status.scheduled)),
        ("ready", is_true(&pod.status.ready)),
        ("managed", truth(managed)),
    ])
}

/// Observes how long pods waited, by comparing passes. The times come from the pods' conditions, so they do not depend
/// on the interval of the passes.
#[derive(Debug, Default)]
pub(super) struct PodWaits {
    /// Pods without a node at the last pass.
    unbound: BTreeSet<String>,
    /// Pods that had not started at the last pass.
    unstarted: BTreeSet<String>,
    /// Pods of the second of the last pass, which are not new in the next one.
    known: BTreeSet<String>,
    /// Time of the last pass.
    last: Option<Timestamp>,
}

impl PodWaits {
    /// Compares the pods with the last pass.
    pub(super) fn pass(&mut self, metrics: &PodMetrics, all: &[Arc<Pod>], now: Timestamp) {
        let (mut unbound, mut unstarted, mut known) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut planned = metrics.planned.lock();
        for pod in all.iter().filter(|pod| !pod.is_static()) {
            let (Some(uid), Some(created)) = (&pod.metadata.uid, &pod.metadata.creation_timestamp) else { continue };
            // Creation times have whole seconds.
            let new = self.last.is_some_and(|last| created.0.as_second() >= last.as_second());
            let fresh = new && !self.known.contains(uid);
            if created.0.as_second() >= now.as_second() {
                known.insert(uid.clone());
            }
            let since_plan = |at: Timestamp| planned.get(uid).map(|planned| seconds_between(*planned, at));
            if pod.node_name.is_none() {
                unbound.insert(uid.clone());
            } else if let Some(at) = pod.status.bound_since()
                && (fresh || self.unbound.contains(uid))
            {
                metrics.bound.observe(seconds_between(created.0, at));
                since_plan(at).into_iter().for_each(|seconds| metrics.provisioning_bound.observe(seconds));
            }
            let waits = is_pending(pod) || (!pod.is_terminal() && ready_since(pod).is_none());
            if waits && (is_pending(pod) || fresh || self.unstarted.contains(uid)) {
                unstarted.insert(uid.clone());
            } else if let Some(at) = ready_since(pod)
                && (fresh || self.unstarted.contains(uid))
            {
                metrics.startup.observe(&[], seconds_between(created.0, at));
                since_plan(at).into_iter().for_each(|seconds| metrics.provisioning_startup.observe(seconds));
            }
        }
        // A plan is needed only until its pod runs.
        planned.retain(|uid, _| unstarted.contains(uid) || unbound.contains(uid));
        *self = Self { unbound, unstarted, known, last: Some(now) };
    }
}

#[cfg(test)]
mod tests;
