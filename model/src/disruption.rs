//! What keeps a node from being removed voluntarily. Explanations, Events and metrics share it.

use crate::identity::{NodePoolName, PodUid};
use crate::names::annotation;
use crate::plan::Plan;
use crate::snapshot::{ConsolidationPolicy, DisruptionReason, Node, NodePool, NodeState, Pod, PodState, Snapshot};
use crate::time::{Millis, Timestamp, duration_text};
use std::collections::BTreeSet;
use std::fmt;

/// How long a node is not consolidated after a pod has come or gone, however short `consolidateAfter` is. Controllers
/// create the successor of a pod some time later: that of a Job a second after the pod has ended. Times of claims and
/// of snapshots are rounded down to seconds, so that at least two of these three pass.
pub const LEAST_CONSOLIDATE_AFTER: Millis = Millis::from_seconds(3);

/// Something that keeps a node from being removed. `Display` is a sentence, [`Obstacle::short`] a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The node is not in service yet.
    NotInitialized,
    /// The node is being deleted.
    Deleting,
    /// The node has an annotation that protects it. A snapshot does not tell which.
    NodeAnnotation,
    /// The plan places pending pods on the node.
    PendingPods,
    /// The plan places pods of removed nodes on the node.
    MovedPods,
    /// This pod is reserved on the node and not bound yet.
    Reserved(String),
    /// A pod has an annotation that protects it. A snapshot does not tell which, but only do-not-disrupt can end.
    PodAnnotation {
        /// `namespace/name`.
        pod: String,
        /// How long the annotation still applies, such as `, for another 30 s`; empty without an end.
        remaining: String,
    },
    /// Several PodDisruptionBudgets cover a pod. The Eviction API refuses to evict such a pod.
    SeveralDisruptionBudgets {
        /// `namespace/name`.
        pod: String,
        /// Number of budgets.
        count: usize,
    },
    /// A PodDisruptionBudget allows no eviction of a pod.
    DisruptionBudget {
        /// `namespace/name`.
        pod: String,
        /// `namespace/name`.
        budget: String,
    },
    /// Other removals of the plan use up a PodDisruptionBudget.
    DisruptionBudgetUsed {
        /// `namespace/name`.
        pod: String,
        /// `namespace/name`.
        budget: String,
        /// Some of the nodes that the plan removes.
        first: Vec<String>,
        /// Number of further nodes that the plan removes.
        more: usize,
    },
    /// The NodePool has a fixed number of nodes.
    Static(NodePoolName),
    /// `consolidateAfter` of the NodePool is `Never`.
    NeverConsolidates(NodePoolName),
    /// `consolidateAfter` has not passed since the last pod came or went.
    ConsolidateAfter {
        /// How long it still takes, such as `, for another 30 s`, and the least time if `consolidateAfter` is shorter.
        remaining: String,
    },
    /// The NodePool consolidates only empty nodes.
    OnlyEmpty(NodePoolName),
    /// The budgets of the NodePool allow no removal.
    BudgetClosed {
        /// The NodePool.
        pool: NodePoolName,
        /// Reason of the removal.
        reason: DisruptionReason,
    },
    /// Other removals of the plan use up the budget of the NodePool.
    BudgetUsed {
        /// The NodePool.
        pool: NodePoolName,
        /// Reason of the removal.
        reason: DisruptionReason,
        /// Removals that the budget allows.
        allowed: u32,
        /// Some of the nodes that the plan removes.
        first: Vec<String>,
        /// Number of further nodes that the plan removes.
        more: usize,
    },
    /// The rollout of the NodePool replaces no further node now. A snapshot does not tell why.
    RolloutHeld(NodePoolName),
}

impl Obstacle {
    /// The obstacle in a few words.
    #[must_use]
    pub fn short(&self) -> String {
        match self {
            Self::NotInitialized => "not initialized".to_owned(),
            Self::Deleting => "already on the way out".to_owned(),
            Self::NodeAnnotation | Self::PodAnnotation { .. } => "do-not-disrupt".to_owned(),
            Self::PendingPods | Self::MovedPods | Self::Reserved(_) => "pods are planned there".to_owned(),
            Self::SeveralDisruptionBudgets { .. } => "several PodDisruptionBudgets".to_owned(),
            Self::DisruptionBudget { budget, .. } | Self::DisruptionBudgetUsed { budget, .. } => {
                format!("PodDisruptionBudget {budget}")
            }
            Self::Static(_) => "static NodePool".to_owned(),
            Self::NeverConsolidates(_) => "consolidateAfter: Never".to_owned(),
            Self::ConsolidateAfter { .. } => "consolidateAfter".to_owned(),
            Self::OnlyEmpty(_) => "consolidationPolicy: WhenEmpty".to_owned(),
            Self::BudgetClosed { pool, .. } | Self::BudgetUsed { pool, .. } => format!("budgets of NodePool {pool}"),
            Self::RolloutHeld(pool) => format!("rollout of NodePool {pool}"),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInitialized => f.write_str("it is not in service yet"),
            Self::Deleting => f.write_str("it is already on the way out"),
            Self::NodeAnnotation => {
                write!(f, "it has the annotation {} or {}", annotation::DO_NOT_DISRUPT, annotation::SCALE_DOWN_DISABLED)
            }
            Self::PendingPods => f.write_str("pending pods are planned there"),
            Self::MovedPods => f.write_str("pods of removed nodes are planned there"),
            Self::Reserved(pod) => write!(f, "pod {pod} waits for it"),
            Self::PodAnnotation { pod, remaining } => {
                write!(f, "pod {pod} has the annotation {}", annotation::DO_NOT_DISRUPT)?;
                if remaining.is_empty() {
                    write!(f, " or {}", annotation::SAFE_TO_EVICT)
                } else {
                    f.write_str(remaining)
                }
            }
            Self::SeveralDisruptionBudgets { pod, count } => {
                write!(f, "pod {pod} is covered by {count} PodDisruptionBudgets, which the Eviction API refuses")
            }
            Self::DisruptionBudget { pod, budget } => {
                write!(f, "PodDisruptionBudget {budget} allows no eviction of pod {pod} now")
            }
            Self::DisruptionBudgetUsed { pod, budget, first, more } => {
                write!(f, "{} up PodDisruptionBudget {budget} of pod {pod}", users(first, *more))
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
                let allowed = if *allowed == 1 { "1 removal".to_owned() } else { format!("{allowed} removals") };
                let (users, reason) = (users(first, *more), reason.as_str());
                write!(f, "{users} up the budget of NodePool {pool} ({allowed} for {reason} now)")
            }
            Self::RolloutHeld(pool) => write!(
                f,
                "the rollout of NodePool {pool} replaces no further node now: it waits for a canary, or is paused or \
                 halted"
            ),
        }
    }
}

/// Names nodes that use something up.
fn users(first: &[String], more: usize) -> String {
    let verb = if first.len() == 1 && more == 0 { "goes first and uses" } else { "go first and use" };
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more} {verb}", first.join(", "))
}

/// Whether drift of the node does not wait for its pods: a grace period bounds how long they can delay the drain.
#[must_use]
pub fn drifts_despite_pods(node: &Node) -> bool {
    node.drifted.is_some() && node.termination_grace_period.is_some()
}

/// Obstacles to every voluntary removal. `pods` are those on the node.
#[must_use]
pub fn obstacles(snapshot: &Snapshot, plan: &Plan, node: &Node, pods: &[&Pod]) -> Vec<Obstacle> {
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
    let despite_pods = drifts_despite_pods(node);
    for pod in pods {
        if matches!(pod.state, PodState::Reserved(_)) {
            obstacles.push(Obstacle::Reserved(pod.full_name()));
        }
        if pod.terminating || despite_pods {
            continue;
        }
        if let Some(until) = pod.do_not_disrupt_until.filter(|until| *until > snapshot.now) {
            let remaining = remaining(snapshot.now, until);
            obstacles.push(Obstacle::PodAnnotation { pod: pod.full_name(), remaining });
        }
        obstacles.extend(disruption_budget(snapshot, pod));
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
    let budgets = &snapshot.pod_disruption_budgets;
    let found = budgets.binary_search_by(|budget| budget.name.as_str().cmp(name)).ok();
    let budget = found.and_then(|at| budgets.get(at));
    let blocks = budget.is_none_or(|budget| budget.fully_blocking || budget.disruptions_allowed <= 0);
    blocks.then(|| Obstacle::DisruptionBudget { pod: pod.full_name(), budget: name.clone() })
}

/// When `consolidateAfter` and the least time have passed, so that the node may be consolidated. `None` if the node
/// does not wait, or if it is never consolidated.
#[must_use]
pub fn consolidates_at(node: &Node, pool: &NodePool) -> Option<Timestamp> {
    let after = pool.disruption.consolidate_after?.max(LEAST_CONSOLIDATE_AFTER);
    node.idle_since.map(|since| since.plus(after))
}

/// Reason why a node that is neither expired nor drifted is not consolidated. Nodes of a static pool are removed only
/// while it has too many, whatever it says about consolidation.
#[must_use]
pub fn consolidation_obstacle(snapshot: &Snapshot, node: &Node, pool: &NodePool, pods: &[&Pod]) -> Option<Obstacle> {
    if pool.replicas.is_some() {
        return (surplus(snapshot, pool) == 0).then(|| Obstacle::Static(pool.name.clone()));
    }
    let Some(after) = pool.disruption.consolidate_after else {
        return Some(Obstacle::NeverConsolidates(pool.name.clone()));
    };
    if let Some(at) = consolidates_at(node, pool).filter(|at| *at > snapshot.now) {
        let least = format!(" (it counts as {} at least)", duration_text(LEAST_CONSOLIDATE_AFTER));
        let least = if after < LEAST_CONSOLIDATE_AFTER { least.as_str() } else { "" };
        return Some(Obstacle::ConsolidateAfter { remaining: format!("{}{least}", remaining(snapshot.now, at)) });
    }
    let empty = !pods.iter().any(|pod| pod.moves());
    (pool.disruption.policy == ConsolidationPolicy::WhenEmpty && !empty).then(|| Obstacle::OnlyEmpty(pool.name.clone()))
}

/// Number of nodes in service that exceed the `replicas` of a static pool. A node that starts may be the successor of a
/// drifted one, whose removal is not visible yet.
#[must_use]
pub fn surplus(snapshot: &Snapshot, pool: &NodePool) -> u64 {
    let Some(replicas) = pool.replicas else { return 0 };
    let in_service = |node: &&Node| !node.deleting && node.state == NodeState::Initialized;
    let own = snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&pool.name)).filter(in_service);
    u64::try_from(own.count()).unwrap_or(u64::MAX).saturating_sub(replicas)
}

/// Formats a deadline, such as `, for another 30 s`; empty without an end.
fn remaining(now: Timestamp, until: Timestamp) -> String {
    if until == Timestamp(i64::MAX) {
        return String::new();
    }
    format!(", for another {}", duration_text(until.since(now)))
}
