//! Nodes that a plan keeps, and what protects them.

use plimsoll_model::disruption::{Obstacle, consolidation_obstacle, drifts_despite_pods, obstacles};
use plimsoll_model::identity::NodeName;
use plimsoll_model::plan::{Plan, Termination};
use plimsoll_model::snapshot::{DisruptionReason, Node, NodePool, Pod, PodState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes named as the ones that use up a disruption budget; there may be hundreds.
const NAMED_NODES: usize = 3;

/// A node that a plan keeps, and what protects it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedNode {
    /// Name of the node.
    pub node: String,
    /// The first obstacle, in a few words, such as `do-not-disrupt`.
    pub obstacle: String,
}

/// Nodes of NodePools that `plan` keeps although `unprotected`, the plan for [`without_protection`], removes them.
#[must_use]
pub fn protected_nodes(snapshot: &Snapshot, plan: &Plan, unprotected: &Plan) -> Vec<ProtectedNode> {
    let removed: BTreeSet<&NodeName> = plan.terminations.iter().map(|termination| &termination.node).collect();
    let candidates: BTreeMap<&NodeName, DisruptionReason> = unprotected
        .terminations
        .iter()
        .filter(|termination| !removed.contains(&termination.node))
        .map(|termination| (&termination.node, termination.reason))
        .collect();
    let mut pods: BTreeMap<&NodeName, Vec<&Pod>> = BTreeMap::new();
    for pod in &snapshot.pods {
        if let PodState::Bound(node) | PodState::Reserved(node) = &pod.state
            && candidates.contains_key(node)
        {
            pods.entry(node).or_default().push(pod);
        }
    }
    let evictions = Evictions::new(snapshot, plan);
    let protected = |node: &Node| {
        let reason = candidates.get(&node.name)?;
        let pool = snapshot.node_pools.iter().find(|pool| Some(&pool.name) == node.node_pool.as_ref())?;
        let pods = pods.get(&node.name).map(Vec::as_slice).unwrap_or_default();
        let first = obstacles(snapshot, plan, node, pods).into_iter().next();
        let consolidates = *reason != DisruptionReason::Drifted;
        let obstacle = first
            .or_else(|| consolidation_obstacle(snapshot, node, pool, pods).filter(|_| consolidates))
            .or_else(|| budget_obstacle(snapshot, plan, pool, *reason))
            .or_else(|| evictions.obstacle(snapshot, node, pods))?;
        Some(ProtectedNode { node: node.name.to_string(), obstacle: obstacle.short() })
    };
    snapshot.nodes.iter().filter_map(protected).collect()
}

/// The same cluster without anything that protects nodes for a while: do-not-disrupt, PodDisruptionBudgets, budgets of
/// NodePools and `consolidateAfter`, unless it is `Never`.
#[must_use]
pub fn without_protection(snapshot: &Snapshot) -> Snapshot {
    let mut snapshot = snapshot.clone();
    snapshot.nodes.iter_mut().for_each(|node| (node.do_not_disrupt, node.idle_since) = (false, None));
    // Only these: a pod that changes is copied.
    let protected = snapshot.pods.iter_mut().filter(|pod| pod.do_not_disrupt_until.is_some());
    protected.for_each(|pod| pod.do_not_disrupt_until = None);
    for budget in &mut snapshot.pod_disruption_budgets {
        (budget.disruptions_allowed, budget.fully_blocking) = (i32::MAX, false);
    }
    for pool in &mut snapshot.node_pools {
        pool.disruption.allowed.clear();
        pool.disruption.rollout_limit = None;
    }
    snapshot
}

/// The reason for which the node would be removed. What keeps an empty node although it has drifted is most often its
/// rollout.
pub(super) fn reason_to_go(snapshot: &Snapshot, node: &Node, empty: bool) -> DisruptionReason {
    match () {
        () if node.expires.is_some_and(|at| at <= snapshot.now) => DisruptionReason::Expired,
        () if node.drifted.is_some() => DisruptionReason::Drifted,
        () if empty => DisruptionReason::Empty,
        () => DisruptionReason::Underutilized,
    }
}

/// The budget of the pool or the limit of its rollout, if the nodes that the plan removes use it up.
pub(super) fn budget_obstacle(
    snapshot: &Snapshot,
    plan: &Plan,
    pool: &NodePool,
    reason: DisruptionReason,
) -> Option<Obstacle> {
    let budget = pool.disruption.allowed.get(&reason).copied();
    let rollout = pool.disruption.rollout_limit.filter(|_| reason == DisruptionReason::Drifted);
    let by_budget = budget.and_then(|allowed| used_up(snapshot, plan, (pool, reason), allowed, |_| true));
    by_budget.or_else(|| {
        let is_drifted = |termination: &Termination| termination.reason == DisruptionReason::Drifted;
        let by_rollout = rollout.and_then(|limit| used_up(snapshot, plan, (pool, reason), limit, is_drifted));
        by_rollout.map(|_| Obstacle::RolloutHeld(pool.name.clone()))
    })
}

/// The obstacle if the plan has as many removals that count as are `allowed`.
fn used_up(
    snapshot: &Snapshot,
    plan: &Plan,
    (pool, reason): (&NodePool, DisruptionReason),
    allowed: u32,
    counts: impl Fn(&Termination) -> bool,
) -> Option<Obstacle> {
    if allowed == 0 {
        return Some(Obstacle::BudgetClosed { pool: pool.name.clone(), reason });
    }
    let removed = plan.terminations.iter().filter(|termination| counts(termination));
    let removed: BTreeSet<&NodeName> = removed.map(|termination| &termination.node).collect();
    let of_pool = |node: &&Node| node.node_pool.as_ref() == Some(&pool.name) && removed.contains(&node.name);
    let mut first: Vec<String> = snapshot.nodes.iter().filter(of_pool).map(|node| node.name.to_string()).collect();
    if first.len() < usize::try_from(allowed).unwrap_or(usize::MAX) {
        return None;
    }
    let more = first.len().saturating_sub(NAMED_NODES);
    first.truncate(NAMED_NODES);
    Some(Obstacle::BudgetUsed { pool: pool.name.clone(), reason, allowed, first, more })
}

/// By PodDisruptionBudget: the number of pods that leave nodes which the plan removes, and these nodes.
pub(super) struct Evictions<'a>(BTreeMap<&'a str, (i32, BTreeSet<&'a NodeName>)>);

impl<'a> Evictions<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, plan: &Plan) -> Self {
        let removed: BTreeSet<&NodeName> = plan.terminations.iter().map(|termination| &termination.node).collect();
        let mut used: BTreeMap<&str, (i32, BTreeSet<&NodeName>)> = BTreeMap::new();
        for pod in snapshot.pods.iter().filter(|pod| !pod.terminating) {
            let (PodState::Bound(node) | PodState::Reserved(node)) = &pod.state else { continue };
            for budget in pod.pod_disruption_budgets.iter().filter(|_| removed.contains(node)) {
                let (count, nodes) = used.entry(budget.as_str()).or_default();
                *count = count.saturating_add(1);
                nodes.insert(node);
            }
        }
        Self(used)
    }

    /// The PodDisruptionBudget of one of the node's `pods`, if these evictions use it up.
    pub(super) fn obstacle(&self, snapshot: &Snapshot, node: &Node, pods: &[&Pod]) -> Option<Obstacle> {
        if drifts_despite_pods(node) {
            return None;
        }
        pods.iter().filter(|pod| !pod.terminating).find_map(|pod| {
            let name = pod.pod_disruption_budgets.first()?;
            let (used, nodes) = self.0.get(name.as_str())?;
            let budget = snapshot.pod_disruption_budgets.iter().find(|budget| budget.name == *name)?;
            let first = nodes.iter().take(NAMED_NODES).map(ToString::to_string).collect();
            let more = nodes.len().saturating_sub(NAMED_NODES);
            let obstacle = Obstacle::DisruptionBudgetUsed { pod: pod.full_name(), budget: name.clone(), first, more };
            (budget.disruptions_allowed <= *used).then_some(obstacle)
        })
    }
}
