//! How many nodes the budgets of a NodePool allow to be disrupted, and the calculation.

use super::entry;
use crate::input::Question;
use plimsoll_model::snapshot::{Node, NodeState};

/// One line for each active budget of the node's NodePool.
pub(super) fn lines(question: &Question, node: &Node) -> Vec<String> {
    let Some(name) = &node.node_pool else { return Vec::new() };
    let named = |pool: &&plimsoll_api::NodePool| pool.metadata.name.as_deref() == Some(name.as_str());
    let Some(pool) = question.objects.node_pools.iter().find(named) else { return Vec::new() };
    let snapshot = &question.snapshot;
    let of_pool = |node: &&Node| node.node_pool.as_ref() == Some(name) && node.state == NodeState::Initialized;
    let total = u32::try_from(snapshot.nodes.iter().filter(of_pool).count()).unwrap_or(u32::MAX);
    let now = jiff::Timestamp::from_millisecond(snapshot.now.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let active = pool.spec.budgets().into_iter().filter(|budget| budget.is_active(now).unwrap_or(true));
    let lines = active.filter_map(|budget| {
        let allowed = budget.allowed(total).ok()?;
        let nodes = if total == 1 { "node" } else { "nodes" };
        let amount = if budget.nodes.ends_with('%') {
            format!("{} of {total} {nodes} = {allowed}", budget.nodes)
        } else {
            format!("{allowed} of {total} {nodes}")
        };
        let reasons: Vec<String> = budget.reasons.iter().flatten().map(|reason| format!("{reason:?}")).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(" for {}", reasons.join(", ")) };
        Some(entry("budget", format!("{amount}{reasons}")))
    });
    lines.collect()
}
