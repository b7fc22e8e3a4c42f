//! How many nodes the budgets of a NodePool allow to be disrupted, and the calculation.

use super::entry;
use crate::input::Question;
use plimsoll_model::snapshot::Node;
use plimsoll_snapshot::budget_nodes;

/// Maximum number of named nodes that use a budget up; there may be hundreds.
const NAMED_NODES: usize = 3;

/// One line for each active budget of the node's NodePool.
pub(super) fn lines(question: &Question, node: &Node) -> Vec<String> {
    let Some(name) = &node.node_pool else { return Vec::new() };
    let named = |pool: &&plimsoll_api::NodePool| pool.metadata.name.as_deref() == Some(name.as_str());
    let Some(pool) = question.objects.node_pools.iter().find(named) else { return Vec::new() };
    let snapshot = &question.snapshot;
    let nodes = budget_nodes(&question.objects, &snapshot.nodes).remove(name.as_str()).unwrap_or_default();
    let (total, used) = (nodes.total, used(&nodes.disrupted));
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
        Some(entry("budget", format!("{amount}{reasons}{used}")))
    });
    lines.collect()
}

/// The nodes that use the budgets already, such as `; 1 used by idle (not Ready)`.
fn used(nodes: &[&Node]) -> String {
    if nodes.is_empty() {
        return String::new();
    }
    let state = |node: &Node| if node.deleting || node.ready { "being removed" } else { "not Ready" };
    let name = |node: &&Node| format!("{} ({})", node.name, state(node));
    let first: Vec<String> = nodes.iter().take(NAMED_NODES).map(name).collect();
    let more = nodes.len().saturating_sub(NAMED_NODES);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("; {} used by {}{rest}", nodes.len(), first.join(", "))
}
