//! A plan in one line: number of added and removed nodes, and why other nodes stay.

use crate::ask;
use crate::input::Question;
use plimsoll_model::plan::Plan;
use plimsoll_scheduler::answer::{ProtectedNode, protected_nodes, without_protection};
use std::collections::BTreeMap;

/// Maximum number of nodes for which a second plan is made to find removable nodes: it takes as long as the first.
const MAX_NODES: usize = 5_000;
/// Maximum number of listed nodes per cause.
const NAMED_NODES: usize = 3;

/// Whether the plan launches or removes nodes.
pub(crate) fn changes(plan: &Plan) -> bool {
    !plan.launches.is_empty() || !plan.terminations.is_empty()
}

/// Nodes that stay in a plan without changes, but would be removed if nothing protected them. `None` if this cannot be
/// determined.
pub(crate) fn protected(question: &mut Question, plan: &Plan, server: &ask::ServerArguments) -> Vec<ProtectedNode> {
    if changes(plan) || question.snapshot.nodes.is_empty() || question.snapshot.nodes.len() > MAX_NODES {
        return Vec::new();
    }
    let without = without_protection(&question.snapshot);
    let snapshot = std::mem::replace(&mut question.snapshot, without);
    let unprotected = ask::plan(question, server);
    question.snapshot = snapshot;
    unprotected.map(|(unprotected, _)| protected_nodes(&question.snapshot, plan, &unprotected)).unwrap_or_default()
}

/// `Plan: 3 to add, 1 to remove, 2 pods unschedulable.`
pub(crate) fn line(plan: &Plan, protected: &[ProtectedNode]) -> String {
    let (added, removed, unschedulable) = (plan.launches.len(), plan.terminations.len(), plan.unschedulable.len());
    let without_place = format!("{} unschedulable", count(unschedulable, "pod"));
    if changes(plan) {
        let rest = if unschedulable == 0 { String::new() } else { format!(", {without_place}") };
        return format!("Plan: {added} to add, {removed} to remove{rest}.");
    }
    let mut sentences = vec!["Nothing to change.".to_owned()];
    if unschedulable > 0 {
        sentences.push(format!("{without_place}."));
    }
    let placed: usize = plan.placements.iter().map(|placement| placement.pods.len()).sum();
    if placed > 0 {
        let verb = if placed == 1 { "fits" } else { "fit" };
        sentences.push(format!("{} {verb} on existing nodes.", count(placed, "pending pod")));
    }
    if !protected.is_empty() {
        let verb = if protected.len() == 1 { "stays" } else { "stay" };
        sentences.push(format!("{} could go but {verb}: {}.", count(protected.len(), "node"), causes(protected)));
    }
    sentences.join(" ")
}

/// `Without the assumptions: 1 to add for 0.1 USD per hour, 2 to remove, 0 pods unschedulable.`
pub(crate) fn without_assumptions(plan: &Plan) -> String {
    let (added, removed) = (plan.launches.len(), plan.terminations.len());
    let cost = if added == 0 { String::new() } else { format!(" for {} USD per hour", plan.hourly) };
    let unschedulable = count(plan.unschedulable.len(), "pod");
    format!("Without the assumptions: {added} to add{cost}, {removed} to remove, {unschedulable} unschedulable.\n")
}

/// `do-not-disrupt (w1, w2), PodDisruptionBudget shop/web (w3)`.
fn causes(protected: &[ProtectedNode]) -> String {
    let mut by_cause: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ProtectedNode { node, obstacle } in protected {
        by_cause.entry(obstacle).or_default().push(node);
    }
    let cause = |(cause, nodes): (&str, Vec<&str>)| {
        let shown: Vec<&str> = nodes.iter().copied().take(NAMED_NODES).collect();
        let more = match nodes.len().saturating_sub(NAMED_NODES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{cause} ({}{more})", shown.join(", "))
    };
    by_cause.into_iter().map(cause).collect::<Vec<String>>().join(", ")
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
