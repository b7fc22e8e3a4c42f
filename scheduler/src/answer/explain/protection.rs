//! What keeps a node from being removed.

use super::count_text;
use plimsoll_model::identity::{NodeName, NodePoolName, PodUid};
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{
    ConsolidationPolicy, DisruptionReason, Node, NodePool, NodeState, Pod, PodState, Snapshot,
};
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

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

/// Something that keeps a node from being removed. `Display` is a sentence, [`Obstacle::short`] a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    NotInitialized,
    Deleting,
    NodeAnnotation,
    PendingPods,
    MovedPods,
    Reserved(String),
    PodAnnotation { pod: String, remaining: String },
    SeveralDisruptionBudgets { pod: String, count: usize },
    DisruptionBudget { pod: String, budget: String },
    Static(NodePoolName),
    NeverConsolidates(NodePoolName),
    ConsolidateAfter { remaining: String },
    OnlyEmpty(NodePoolName),
    BudgetClosed { pool: NodePoolName, reason: DisruptionReason },
    BudgetUsed { pool: NodePoolName, reason: DisruptionReason, allowed: u32, first: Vec<String>, more: usize },
}

impl Obstacle {
    fn short(&self) -> String {
        match self {
            Self::NotInitialized => "not initialized".to_owned(),
            Self::Deleting => "already on the way out".to_owned(),
            Self::NodeAnnotation | Self::PodAnnotation { .. } => "do-not-disrupt".to_owned(),
            Self::PendingPods | Self::MovedPods | Self::Reserved(_) => "pods are planned there".to_owned(),
            Self::SeveralDisruptionBudgets { .. } => "several PodDisruptionBudgets".to_owned(),
            Self::DisruptionBudget { budget, .. } => format!("PodDisruptionBudget {budget}"),
            Self::Static(_) => "static NodePool".to_owned(),
            Self::NeverConsolidates(_) => "consolidateAfter: Never".to_owned(),
            Self::ConsolidateAfter { .. } => "consolidateAfter".to_owned(),
            Self::OnlyEmpty(_) => "consolidationPolicy: WhenEmpty".to_owned(),
            Self::BudgetClosed { pool, .. } | Self::BudgetUsed { pool, .. } => format!("budgets of NodePool {pool}"),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInitialized => f.write_str("it is not in service yet"),
            Self::Deleting => f.write_str("it is already on the way out"),
            Self::NodeAnnotation => f.write_str("it has the annotation karpenter.sh/do-not-disrupt"),
            Self::PendingPods => f.write_str("pending pods are planned there"),
            Self::MovedPods => f.write_str("pods of removed nodes are planned there"),
            Self::Reserved(pod) => write!(f, "pod {pod} waits for it"),
            Self::PodAnnotation { pod, remaining } => {
                write!(f, "pod {pod} has the annotation karpenter.sh/do-not-disrupt{remaining}")
            }
            Self::SeveralDisruptionBudgets { pod, count } => {
                write!(f, "pod {pod} is covered by {count} PodDisruptionBudgets, which the Eviction API refuses")
            }
            Self::DisruptionBudget { pod, budget } => {
                write!(f, "PodDisruptionBudget {budget} allows no eviction of pod {pod} now")
            }
            Self::Static(pool) => write!(f, "NodePool {pool} is static"),
            Self::NeverConsolidates(pool) => {
                write!(f, "NodePool {pool} never consolidates (consolidateAfter: Never)")
            }
            Self::ConsolidateAfter { remaining } => write!(f, "consolidateAfter has not passed{remaining}"),
            Self::OnlyEmpty(pool) => write!(f, "NodePool {pool} consolidates only empty nodes"),
            Self::BudgetClosed { pool, reason } => {
                write!(f, "the budgets of NodePool {pool} allow no removal for {} now", reason.as_str())
            }
            Self::BudgetUsed { pool, reason, allowed, first, more } => {
                let more = if *more == 0 { String::new() } else { format!(" and {more} more") };
                let verb = if first.len() == 1 && more.is_empty() { "goes first and uses" } else { "go first and use" };
                let allowed = count_text(usize::try_from(*allowed).unwrap_or(usize::MAX), "removal");
                let (first, reason) = (first.join(", "), reason.as_str());
                write!(f, "{first}{more} {verb} up the budget of NodePool {pool} ({allowed} for {reason} now)")
            }
        }
    }
}

/// Nodes of NodePools that `plan` keeps although `unprotected`, the plan for [`without_protection`], removes them.
#[must_use]
pub fn protected_nodes(snapshot: &Snapshot, plan: &Plan, unprotected: &Plan) -> Vec<ProtectedNode> {
    let kept: BTreeSet<&NodeName> = plan.terminations.iter().map(|termination| &termination.node).collect();
    let candidates: BTreeMap<&NodeName, DisruptionReason> = unprotected
        .terminations
        .iter()
        .filter(|termination| !kept.contains(&termination.node))
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
    let protected = |node: &Node| {
        let reason = candidates.get(&node.name)?;
        let pool = snapshot.node_pools.iter().find(|pool| Some(&pool.name) == node.node_pool.as_ref())?;
        let pods = pods.get(&node.name).map(Vec::as_slice).unwrap_or_default();
        let first = obstacles(snapshot, plan, node, pods).into_iter().next();
        let obstacle = first
            .or_else(|| consolidation_obstacle(snapshot, node, pool, pods))
            .or_else(|| budget_obstacle(snapshot, plan, pool, *reason))?;
        Some(ProtectedNode { node: node.name.to_string(), obstacle: obstacle.short() })
    };
    snapshot.nodes.iter().filter_map(protected).collect()
}

/// The same cluster without anything that protects nodes for a while: do-not-disrupt, PodDisruptionBudgets, budgets of
/// NodePools and `consolidateAfter`, unless it is `Never`.
#[must_use]
pub fn without_protection(snapshot: &Snapshot) -> Snapshot {
    let mut snapshot = snapshot.clone();
    snapshot.nodes.iter_mut().for_each(|node| node.do_not_disrupt = false);
    snapshot.pods.iter_mut().for_each(|pod| pod.do_not_disrupt_until = None);
    for budget in &mut snapshot.pod_disruption_budgets {
        (budget.disruptions_allowed, budget.fully_blocking) = (i32::MAX, false);
    }
    for pool in &mut snapshot.node_pools {
        pool.disruption.allowed.clear();
        pool.disruption.consolidate_after = pool.disruption.consolidate_after.map(|_| Millis(0));
    }
    snapshot
}

/// Obstacles to every voluntary removal. `pods` are those on the node.
pub(super) fn obstacles(snapshot: &Snapshot, plan: &Plan, node: &Node, pods: &[&Pod]) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    if node.state != NodeState::Initialized {
        obstacles.push(Obstacle::NotInitialized);
    }
    if node.deleting {
        obstacles.push(Obstacle::Deleting);
    }
    if node.do_not_disrupt {
        obstacles.push(Obstacle::NodeAnnotation);
    }
    if receives_pods(snapshot, plan, node) {
        obstacles.push(Obstacle::PendingPods);
    }
    if plan.terminations.iter().any(|termination| termination.moved_to.iter().any(|moved| moved.node == node.name)) {
        obstacles.push(Obstacle::MovedPods);
    }
    for pod in pods {
        if matches!(pod.state, PodState::Reserved(_)) {
            obstacles.push(Obstacle::Reserved(pod.full_name()));
        }
        if let Some(until) = pod.do_not_disrupt_until.filter(|until| *until > snapshot.now && !pod.terminating) {
            let remaining = remaining(snapshot.now, until);
            obstacles.push(Obstacle::PodAnnotation { pod: pod.full_name(), remaining });
        }
        if pod.moves() && !pod.terminating {
            obstacles.extend(disruption_budget(snapshot, pod));
        }
    }
    obstacles
}

/// Whether the plan places a pending pod that exists on the node.
fn receives_pods(snapshot: &Snapshot, plan: &Plan, node: &Node) -> bool {
    let placements = plan.placements.iter().filter(|placement| placement.node == node.name);
    let arriving: BTreeSet<&PodUid> =
        placements.flat_map(|placement| &placement.pods).map(|reference| &reference.uid).collect();
    !arriving.is_empty() && snapshot.pods.iter().any(|pod| arriving.contains(&pod.uid) && !pod.is_virtual())
}

fn disruption_budget(snapshot: &Snapshot, pod: &Pod) -> Option<Obstacle> {
    let names = &pod.pod_disruption_budgets;
    let name = names.first()?;
    if names.len() > 1 {
        return Some(Obstacle::SeveralDisruptionBudgets { pod: pod.full_name(), count: names.len() });
    }
    let budget = snapshot.pod_disruption_budgets.iter().find(|budget| budget.name == *name);
    let blocks = budget.is_none_or(|budget| budget.fully_blocking || budget.disruptions_allowed <= 0);
    blocks.then(|| Obstacle::DisruptionBudget { pod: pod.full_name(), budget: name.clone() })
}

/// Reason why a node that is neither expired nor drifted is not consolidated.
pub(super) fn consolidation_obstacle(
    snapshot: &Snapshot,
    node: &Node,
    pool: &NodePool,
    pods: &[&Pod],
) -> Option<Obstacle> {
    if pool.replicas.is_some() {
        return Some(Obstacle::Static(pool.name.clone()));
    }
    let Some(after) = pool.disruption.consolidate_after else {
        return Some(Obstacle::NeverConsolidates(pool.name.clone()));
    };
    if let Some(at) = node.idle_since.map(|since| since.plus(after)).filter(|at| *at > snapshot.now) {
        return Some(Obstacle::ConsolidateAfter { remaining: remaining(snapshot.now, at) });
    }
    let empty = !pods.iter().any(|pod| pod.moves());
    (pool.disruption.policy == ConsolidationPolicy::WhenEmpty && !empty).then(|| Obstacle::OnlyEmpty(pool.name.clone()))
}

/// The reason for which the node would be removed.
pub(super) fn reason_to_go(snapshot: &Snapshot, node: &Node, empty: bool) -> DisruptionReason {
    match () {
        () if node.expires.is_some_and(|at| at <= snapshot.now) => DisruptionReason::Expired,
        () if empty => DisruptionReason::Empty,
        () if node.drifted.is_some() => DisruptionReason::Drifted,
        () => DisruptionReason::Underutilized,
    }
}

/// The budget of the pool, if the nodes that the plan removes use it up.
pub(super) fn budget_obstacle(
    snapshot: &Snapshot,
    plan: &Plan,
    pool: &NodePool,
    reason: DisruptionReason,
) -> Option<Obstacle> {
    let allowed = *pool.disruption.allowed.get(&reason)?;
    if allowed == 0 {
        return Some(Obstacle::BudgetClosed { pool: pool.name.clone(), reason });
    }
    let removed: BTreeSet<&NodeName> = plan.terminations.iter().map(|termination| &termination.node).collect();
    let of_pool = |node: &&Node| node.node_pool.as_ref() == Some(&pool.name) && removed.contains(&node.name);
    let mut first: Vec<String> = snapshot.nodes.iter().filter(of_pool).map(|node| node.name.to_string()).collect();
    if first.len() < usize::try_from(allowed).unwrap_or(usize::MAX) {
        return None;
    }
    let more = first.len().saturating_sub(NAMED_NODES);
    first.truncate(NAMED_NODES);
    Some(Obstacle::BudgetUsed { pool: pool.name.clone(), reason, allowed, first, more })
}

/// Formats a deadline, such as `, for another 30 s`; empty without an end.
fn remaining(now: Timestamp, until: Timestamp) -> String {
    if until == Timestamp(i64::MAX) {
        return String::new();
    }
    format!(", for another {}", duration_text(until.since(now)))
}

/// Formats a duration in its two largest units, such as `2 d 3 h`; rounded up to seconds.
pub(super) fn duration_text(duration: Millis) -> String {
    let seconds = duration.0.div_ceil(1000);
    let parts = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let shown = parts.iter().skip(first).take(2).filter(|(count, _)| *count > 0 || seconds == 0);
    shown.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<String>>().join(" ")
}
