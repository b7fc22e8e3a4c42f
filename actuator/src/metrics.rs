//! Metrics of the actuator: its own, and Karpenter's about nodes, pods, claims, pools and the cloud. One file per
//! family.
//!
//! Counters and histograms are updated where something happens. Gauges of objects are written at a scrape, and only by
//! the leader: a standby has the same objects, and every series would exist twice.

pub mod cloud;
pub mod conditions;
pub mod disruption;
pub(crate) mod follow;
pub mod interruption;
pub mod node_claims;
pub mod node_pools;
pub mod nodes;
pub mod offerings;
pub mod pods;
pub mod reconciles;
pub mod rollouts;
pub mod shadow;
pub mod view;

use cloud::CloudMetrics;
use conditions::ConditionMetrics;
use disruption::DisruptionMetrics;
use interruption::InterruptionMetrics;
use node_claims::ClaimMetrics;
use node_pools::PoolMetrics;
use nodes::NodeMetrics;
use offerings::OfferingMetrics;
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use pods::PodMetrics;
use prometheus::{HistogramVec, IntCounterVec, IntGauge};
use reconciles::ReconcileMetrics;
use rollouts::RolloutMetrics;
use shadow::ShadowMetrics;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::watch;
use view::{ClusterView, Sources};

/// All metrics. Clones share them: the task of each reconcile has one.
#[derive(Debug, Clone)]
pub struct ActuatorMetrics(Arc<AllMetrics>);

impl Deref for ActuatorMetrics {
    type Target = AllMetrics;

    fn deref(&self) -> &AllMetrics {
        &self.0
    }
}

/// What clones of [`ActuatorMetrics`] share.
#[derive(Debug)]
pub struct AllMetrics {
    /// 1 while this process is the leader.
    pub leading: IntGauge,
    /// 1 while another autoscaler prevents this one from writing.
    pub paused: Scraped,
    /// Actions by `kind` (launch, termination) and `outcome`.
    pub actions: IntCounterVec,
    /// NodeClaims that failed before their node was in service, by `nodepool` and `cause`.
    pub claims_failed: IntCounterVec,
    /// Time from the receipt of a plan to a step of its launch, by `step` (claim, fleet, launched).
    pub launch_seconds: HistogramVec,
    /// Instances terminated because no claim refers to them, by `cause`.
    pub instances_collected: IntCounterVec,
    /// Unclaimed instances that are not ended, because they are too many.
    pub instances_withheld: IntGauge,
    /// NodeClaims deleted because their instance or Node is gone, by `cause`.
    pub claims_collected: IntCounterVec,
    /// Messages of the interruption queue, by `kind` and `result`.
    pub interruptions: IntCounterVec,
    /// Evictions by `result` (evicted, refused, forced).
    pub evictions: IntCounterVec,
    /// Nominations of nodes to pods by `result` (nominated, taken_back, overtaken, forbidden, failed).
    pub nominations: IntCounterVec,
    /// Bindings of pods to nodes by `result` (bound, overtaken, forbidden, failed).
    pub bindings: IntCounterVec,
    /// Nodes.
    pub nodes: NodeMetrics,
    /// Pods.
    pub pods: PodMetrics,
    /// NodeClaims.
    pub claims: ClaimMetrics,
    /// NodePools.
    pub pools: PoolMetrics,
    /// Rollouts.
    pub rollouts: RolloutMetrics,
    /// Offerings.
    pub offerings: OfferingMetrics,
    /// Status conditions.
    pub conditions: ConditionMetrics,
    /// Voluntary disruption.
    pub disruption: DisruptionMetrics,
    /// Calls to the cloud.
    pub cloud: CloudMetrics,
    /// The interruption queue.
    pub interruption: InterruptionMetrics,
    /// Controllers.
    pub reconciles: ReconcileMetrics,
    /// What would have been done while another autoscaler runs.
    pub shadow: ShadowMetrics,
}

/// How the build information differs from Karpenter's.
const NO_GO: &str = "The version of Plimsoll. Without goversion, goarch and commit.";

impl ActuatorMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// A metric is already registered.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        metrics.build_info(env!("CARGO_PKG_VERSION"))?;
        metrics.karpenter_but(NO_GO).build_info(env!("CARGO_PKG_VERSION"))?;
        Ok(Self(Arc::new(AllMetrics {
            leading: metrics.gauge("leading", "1 while this process leads.")?,
            paused: metrics.scraped(
                "paused",
                "1 while another autoscaler keeps this one from writing, or it is not known yet whether one does.",
                &[],
            )?,
            actions: metrics.counters("actions_total", "Actions of plans.", &["kind", "outcome"])?,
            claims_failed: metrics.counters(
                "nodeclaims_failed_total",
                "NodeClaims that failed before their node was in service.",
                &["nodepool", "cause"],
            )?,
            launch_seconds: metrics.latencies(
                "launch_seconds",
                "From the receipt of a plan to a step of its launch.",
                &["step"],
            )?,
            instances_collected: metrics.counters(
                "instances_collected_total",
                "Instances terminated because no NodeClaim refers to them.",
                &["cause"],
            )?,
            instances_withheld: metrics.gauge(
                "instances_withheld",
                "Instances without a NodeClaim that are not ended, because they are too many for a leftover.",
            )?,
            claims_collected: metrics.counters(
                "nodeclaims_collected_total",
                "NodeClaims deleted because their instance or Node is gone.",
                &["cause"],
            )?,
            interruptions: metrics.counters(
                "interruption_messages_total",
                "Messages of the interruption queue.",
                &["kind", "result"],
            )?,
            evictions: metrics.counters(
                "evictions_total",
                "Evictions of pods from nodes that are removed.",
                &["result"],
            )?,
            nominations: metrics.counters("nominations_total", "Nominations of nodes to pods.", &["result"])?,
            bindings: metrics.counters("bindings_total", "Pods bound to their planned nodes.", &["result"])?,
            nodes: NodeMetrics::new(metrics)?,
            pods: PodMetrics::new(metrics)?,
            claims: ClaimMetrics::new(metrics)?,
            pools: PoolMetrics::new(metrics)?,
            rollouts: RolloutMetrics::new(metrics)?,
            offerings: OfferingMetrics::new(metrics)?,
            conditions: ConditionMetrics::new(metrics)?,
            disruption: DisruptionMetrics::new(metrics)?,
            cloud: CloudMetrics::new(metrics)?,
            interruption: InterruptionMetrics::new(metrics)?,
            reconciles: ReconcileMetrics::new(metrics)?,
            shadow: ShadowMetrics::new(metrics)?,
        })))
    }

    /// Writes the gauges of all objects at each scrape while this process leads. `pause` is why nothing may be written.
    pub fn export(&self, metrics: &Metrics, sources: Sources, pause: watch::Receiver<Option<String>>) {
        let own = self.clone();
        metrics.add_source(move |samples| {
            let paused = pause.borrow().is_some();
            samples.put(&own.paused, &Labels::default(), if paused { 1.0 } else { 0.0 });
            if own.leading.get() == 1 {
                own.collect(&ClusterView::of(&sources), samples);
            }
        });
    }

    /// Writes the gauges of all objects.
    pub fn collect(&self, view: &ClusterView, samples: &mut Samples) {
        self.nodes.collect(view, samples);
        self.pods.collect(view, samples);
        self.pools.collect(view, samples);
        self.rollouts.collect(view, samples);
        self.offerings.collect(view, samples);
        self.conditions.collect(view, samples);
        self.shadow.collect(samples);
    }

    /// Begins a term of leadership.
    pub fn begin_term(&self) {
        self.leading.set(1);
    }

    /// Ends a term of leadership: everything that only a leader knows is forgotten.
    pub fn end_term(&self) {
        self.leading.set(0);
        self.nodes.forget();
        self.pods.forget();
        self.interruption.forget();
        self.shadow.set(Vec::new());
    }
}

#[cfg(test)]
pub(crate) mod tests;
