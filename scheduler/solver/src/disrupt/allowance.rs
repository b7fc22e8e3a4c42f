//! Tracks how many removals pools and PodDisruptionBudgets still allow while a plan is made.

use super::{Candidate, Removal};
use crate::input::context::SolveContext;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{DisruptionReason, Node};
use std::collections::BTreeMap;

/// Removals and evictions of the plan so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowance<'a> {
    /// Removed nodes by pool, regardless of the reason.
    nodes: BTreeMap<&'a str, u32>,
    /// Nodes removed for drift, by pool. Limits of rollouts count only these.
    drifted: BTreeMap<&'a str, u32>,
    /// Evictions by PodDisruptionBudget.
    evictions: BTreeMap<&'a str, i32>,
}

impl<'a> Allowance<'a> {
    /// Starts with the expired nodes in `removal`.
    pub(super) fn new(context: &SolveContext<'a>, removal: &Removal<'a>) -> Self {
        let mut allowance = Self::default();
        for one in &removal.removed {
            if let Some(pool) = &context.nodes[one.node].node.node_pool {
                *allowance.nodes.entry(pool.as_str()).or_default() += 1;
            }
            allowance.evict(context, one.node);
        }
        allowance
    }

    /// Whether one more removal is allowed. Each PodDisruptionBudget must allow at least one more eviction. The node
    /// may need more, since it is drained pod by pod, but no second node is drained once a budget is used up.
    pub(super) fn permits(
        &self,
        context: &SolveContext<'_>,
        candidate: &Candidate<'a>,
        reason: DisruptionReason,
    ) -> bool {
        let (name, disruption) = (candidate.pool.name.as_str(), &candidate.pool.disruption);
        let used = self.nodes.get(name).copied().unwrap_or(0);
        if disruption.allowed.get(&reason).is_some_and(|allowed| used >= *allowed) {
            return false;
        }
        let drifted = self.drifted.get(name).copied().unwrap_or(0);
        if reason == DisruptionReason::Drifted && disruption.rollout_limit.is_some_and(|limit| drifted >= limit) {
            return false;
        }
        if reason == DisruptionReason::Drifted && candidate.has_grace_period {
            return true;
        }
        budgets_of(context, candidate.node).all(|name| {
            let used = self.evictions.get(name).copied().unwrap_or(0);
            context.budget(name).is_some_and(|budget| budget.disruptions_allowed > used)
        })
    }

    pub(super) fn note(&mut self, context: &SolveContext<'a>, candidate: &Candidate<'a>, reason: DisruptionReason) {
        let pool = candidate.pool.name.as_str();
        *self.nodes.entry(pool).or_default() += 1;
        if reason == DisruptionReason::Drifted {
            *self.drifted.entry(pool).or_default() += 1;
        }
        self.evict(context, candidate.node);
    }

    fn evict(&mut self, context: &SolveContext<'a>, node: Id<Node>) {
        for name in budgets_of(context, node) {
            let used = self.evictions.entry(name).or_default();
            *used = used.saturating_add(1);
        }
    }
}

/// The PodDisruptionBudgets of the pods that draining the node evicts, with one entry per pod.
fn budgets_of<'a>(context: &SolveContext<'a>, node: Id<Node>) -> impl Iterator<Item = &'a str> {
    let evicted = context.nodes[node].pods.iter().filter(|pod| !pod.terminating);
    evicted.flat_map(|pod| &pod.pod_disruption_budgets).map(String::as_str)
}
