//! Gauges of the cluster from the newest snapshot: nodes that may be disrupted, and pods without a plan. They are
//! computed during a scrape, separate from the planning loop.

use super::WatcherMetrics;
use super::planning::PlanningMetrics;
use plimsoll_model::disruption::consolidates_at;
use plimsoll_model::identity::{NodeName, NodePoolName};
use plimsoll_model::snapshot::{
    ConsolidationPolicy, DisruptionReason, Node, NodePool, NodeState, Pod, PodState, Snapshot,
};
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped, count};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Gauges of the cluster. Clones share them.
#[derive(Debug, Clone)]
pub struct ClusterMetrics {
    nodes: Scraped,
    synced: Scraped,
    unsynced: Scraped,
    eligible: Scraped,
    blocked: Scraped,
    waiting: Scraped,
    oldest: Scraped,
}

/// Why a node of a snapshot may not be disrupted now, in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocker {
    /// The node does not have all resources and labels that its claim requires yet.
    NotInitialized,
    /// The node is annotated do-not-disrupt, or a pod on it cannot be read.
    NodeDoNotDisrupt,
    /// A pod is annotated do-not-disrupt.
    PodDoNotDisrupt,
    /// A PodDisruptionBudget allows no eviction of a pod.
    PodDisruptionBudget,
    /// A pending pod is nominated to the node.
    Nominated,
    /// The NodePool does not exist or its budgets allow no further disruption.
    NodePoolBudget,
    /// The NodePool has a fixed number of nodes.
    StaticNodePool,
    /// The NodePool's consolidateAfter is Never.
    ConsolidationDisabled,
    /// A pod was added or removed less than consolidateAfter ago.
    RecentlyChanged,
    /// The NodePool consolidates empty nodes only, and the node has pods.
    NotEmpty,
}

impl Blocker {
    /// All blockers.
    pub const ALL: [Self; 10] = [
        Self::NotInitialized,
        Self::NodeDoNotDisrupt,
        Self::PodDoNotDisrupt,
        Self::PodDisruptionBudget,
        Self::Nominated,
        Self::NodePoolBudget,
        Self::StaticNodePool,
        Self::ConsolidationDisabled,
        Self::RecentlyChanged,
        Self::NotEmpty,
    ];

    /// Value of the label `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotInitialized => "not_initialized",
            Self::NodeDoNotDisrupt => "node_do_not_disrupt",
            Self::PodDoNotDisrupt => "pod_do_not_disrupt",
            Self::PodDisruptionBudget => "pod_disruption_budget",
            Self::Nominated => "nominated",
            Self::NodePoolBudget => "nodepool_budget",
            Self::StaticNodePool => "static_nodepool",
            Self::ConsolidationDisabled => "consolidation_disabled",
            Self::RecentlyChanged => "recently_changed",
            Self::NotEmpty => "not_empty",
        }
    }
}

impl ClusterMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let karpenter = metrics.karpenter();
        Ok(Self {
            nodes: karpenter.scraped("cluster_state_node_count", "Nodes and launching NodeClaims.", &[])?,
            synced: metrics
                .karpenter_but("1 once every kind has been listed and the actuator's ledger and catalogs are there.")
                .scraped("cluster_state_synced", "1 if plans can be made.", &[])?,
            unsynced: metrics.karpenter_but("Counts from the start of the leadership.").scraped(
                "cluster_state_unsynced_time_seconds",
                "Seconds for which no plan could be made; 0 once synced.",
                &[],
            )?,
            eligible: karpenter.scraped(
                "voluntary_disruption_eligible_nodes",
                "Nodes that may be disrupted now, by the reason for which they would be.",
                &["reason"],
            )?,
            blocked: metrics.scraped(
                "disruption_blocked_nodes",
                "Nodes of NodePools that may not be disrupted now, by the first reason found.",
                &["reason"],
            )?,
            waiting: metrics.scraped(
                "pods_without_plan",
                "Pods that kube-scheduler cannot place and for which no plan has been admitted.",
                &[],
            )?,
            oldest: metrics.scraped(
                "pods_without_plan_oldest_age_seconds",
                "Age of the oldest pod that plimsoll_watcher_pods_without_plan counts; 0 if there is none.",
                &[],
            )?,
        })
    }

    /// Writes the gauges of a snapshot.
    pub(super) fn collect(&self, snapshot: &Snapshot, now: Timestamp, samples: &mut Samples) {
        let none = Labels::default();
        samples.put(&self.nodes, &none, count(snapshot.nodes.len()));
        let waiting = snapshot.pods.iter().filter(|pod| is_waiting(pod));
        let (pods, oldest) = waiting.fold((0_usize, None), |(pods, oldest): (_, Option<Timestamp>), pod| {
            (pods + 1, Some(oldest.map_or(pod.created, |oldest| oldest.min(pod.created))))
        });
        samples.put(&self.waiting, &none, count(pods));
        let age = oldest.map_or(0, |oldest| now.since(oldest).0);
        samples.put(&self.oldest, &none, std::time::Duration::from_millis(age).as_secs_f64());
        let (eligible, blocked) = judge(snapshot);
        for (reason, name) in [
            (DisruptionReason::Empty, "empty"),
            (DisruptionReason::Underutilized, "underutilized"),
            (DisruptionReason::Drifted, "drifted"),
        ] {
            let nodes = eligible.get(&reason).copied().unwrap_or(0);
            samples.put(&self.eligible, &Labels::of(&[("reason", name)]), count(nodes));
        }
        for blocker in Blocker::ALL {
            let nodes = blocked.get(&blocker).copied().unwrap_or(0);
            samples.put(&self.blocked, &Labels::of(&[("reason", blocker.as_str())]), count(nodes));
        }
    }
}

/// Adds the gauges of the leader to each scrape.
pub(super) fn export<S>(
    watcher: &WatcherMetrics,
    metrics: &Metrics,
    newest: watch::Receiver<Option<Arc<S>>>,
    clock: Clock,
) where
    S: AsRef<Snapshot> + Send + Sync + 'static,
{
    let (planning, cluster): (PlanningMetrics, ClusterMetrics) = (watcher.planning.clone(), watcher.cluster.clone());
    metrics.add_source(move |samples| {
        let (leading, current) = planning.read(|state| (state.leading, state.current));
        let Some(since) = leading else { return };
        planning.collect(samples);
        let published = newest.borrow().clone();
        let none = Labels::default();
        samples.put(&cluster.synced, &none, if published.is_some() { 1.0 } else { 0.0 });
        let unsynced = if published.is_some() { 0.0 } else { since.elapsed().as_secs_f64() };
        samples.put(&cluster.unsynced, &none, unsynced);
        let Some(published) = published else { return };
        let snapshot: &Snapshot = published.as_ref().as_ref();
        if let Some((controller, _)) = current {
            let pods = snapshot.pods.iter().filter(|pod| is_waiting(pod)).count();
            samples.put(&planning.queue_depth, &Labels::of(&[("controller", controller)]), count(pods));
        }
        cluster.collect(snapshot, Timestamp(clock.now_millis()), samples);
    });
}

/// Whether a pod waits for a plan.
fn is_waiting(pod: &Pod) -> bool {
    pod.state == PodState::Pending && pod.buffer.is_none() && pod.moves()
}

/// Properties of a node's pods that affect its disruption.
#[derive(Debug, Default)]
struct NodePods {
    moving: usize,
    protected: bool,
    budget: bool,
    nominated: bool,
}

/// Counts nodes that may be disrupted, by reason, and nodes that may not, by blocker. Nodes that are being removed are
/// in neither count.
fn judge(snapshot: &Snapshot) -> (BTreeMap<DisruptionReason, usize>, BTreeMap<Blocker, usize>) {
    let pools: BTreeMap<&NodePoolName, &NodePool> = snapshot.node_pools.iter().map(|pool| (&pool.name, pool)).collect();
    let pods = pods_by_node(snapshot);
    let (mut eligible, mut blocked) = (BTreeMap::new(), BTreeMap::new());
    let none = NodePods::default();
    for node in snapshot.nodes.iter().filter(|node| !node.deleting) {
        let Some(name) = &node.node_pool else { continue };
        match verdict(node, pods.get(&node.name).unwrap_or(&none), pools.get(name).copied(), snapshot.now) {
            Ok(reason) => *eligible.entry(reason).or_default() += 1,
            Err(blocker) => *blocked.entry(blocker).or_default() += 1,
        }
    }
    (eligible, blocked)
}

fn pods_by_node(snapshot: &Snapshot) -> BTreeMap<&NodeName, NodePods> {
    let blocking: BTreeMap<&str, bool> = snapshot
        .pod_disruption_budgets
        .iter()
        .map(|budget| (budget.name.as_str(), budget.disruptions_allowed <= 0))
        .collect();
    let mut pods: BTreeMap<&NodeName, NodePods> = BTreeMap::new();
    for pod in &snapshot.pods {
        match &pod.state {
            PodState::Pending => {}
            PodState::Reserved(node) => pods.entry(node).or_default().nominated = true,
            PodState::Bound(node) => {
                let of_node = pods.entry(node).or_default();
                let until = pod.do_not_disrupt_until.filter(|_| !pod.terminating);
                of_node.protected |= until.is_some_and(|until| until > snapshot.now);
                if pod.moves() {
                    of_node.moving += 1;
                    let is_blocking = |budget: &String| blocking.get(budget.as_str()).copied().unwrap_or(false);
                    of_node.budget |= !pod.terminating && pod.pod_disruption_budgets.iter().any(is_blocking);
                }
            }
        }
    }
    pods
}

/// The reason for which a node may be disrupted, or its blocker.
fn verdict(node: &Node, pods: &NodePods, pool: Option<&NodePool>, now: Timestamp) -> Result<DisruptionReason, Blocker> {
    let pool = pool.ok_or(Blocker::NodePoolBudget)?;
    let reason = match (&node.drifted, pods.moving) {
        (Some(_), _) => DisruptionReason::Drifted,
        (None, 0) => DisruptionReason::Empty,
        (None, _) => DisruptionReason::Underutilized,
    };
    let drifted = reason == DisruptionReason::Drifted;
    // A grace period limits how long pods can delay the drain, so drift does not wait for them.
    let bounded = drifted && node.termination_grace_period.is_some();
    // The snapshot has subtracted the nodes that are being removed already.
    let held = drifted && pool.disruption.rollout_limit == Some(0);
    let exhausted = held || pool.disruption.allowed.get(&reason) == Some(&0);
    let blockers = [
        (node.state != NodeState::Initialized, Blocker::NotInitialized),
        (node.do_not_disrupt, Blocker::NodeDoNotDisrupt),
        (pods.protected && !bounded, Blocker::PodDoNotDisrupt),
        (pods.budget && !bounded, Blocker::PodDisruptionBudget),
        (pods.nominated, Blocker::Nominated),
        (exhausted || pool.deleting, Blocker::NodePoolBudget),
        (!drifted && pool.replicas.is_some(), Blocker::StaticNodePool),
        (!drifted && pool.disruption.consolidate_after.is_none(), Blocker::ConsolidationDisabled),
        (!drifted && consolidates_at(node, pool).is_some_and(|at| at > now), Blocker::RecentlyChanged),
        (
            reason == DisruptionReason::Underutilized && pool.disruption.policy == ConsolidationPolicy::WhenEmpty,
            Blocker::NotEmpty,
        ),
    ];
    blockers.into_iter().find(|(blocks, _)| *blocks).map_or(Ok(reason), |(_, blocker)| Err(blocker))
}

#[cfg(test)]
mod tests;
