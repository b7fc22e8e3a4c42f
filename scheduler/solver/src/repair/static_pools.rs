//! Puts pods on the nodes that static pools get anyway.
//!
//! Static pools launch their nodes regardless of pods, and the next plan would see these nodes in flight. A plan for
//! the cluster with these nodes needs fewer nodes of other pools.

use super::edit::{self, Change};
use super::moves::Move;
use super::projection::{self, CapacityAssumption, node_name};
use super::{Repair, Variant, unplaced_pods, with_reports_of};
use plimsoll_model::identity::NodeName;
use plimsoll_model::plan::{Launch, Plan};
use std::collections::BTreeSet;

/// A cheaper plan with pods on the launches of static pools, which places and removes no less. `None` if there is none.
pub(super) fn fill(repair: &Repair<'_>, plan: &Plan) -> Option<Plan> {
    // Only launches of static pools have no pods. Those that replace a node stay without: see `invariants`.
    let replaces = |index: usize| plan.terminations.iter().any(|one| one.replaced_by.contains(&index));
    let missing = plan.launches.iter().enumerate().filter(|(index, one)| one.pods.is_empty() && !replaces(*index));
    let missing: Vec<Launch> = missing.map(|(_, launch)| launch.clone()).collect();
    let for_pods = plan.launches.iter().any(|launch| !launch.pods.is_empty());
    if missing.is_empty() || !for_pods || !repair.moves.has(Move::FillNodes) {
        return None;
    }
    let inputs = repair.inputs;
    let first = Plan { launches: missing, ..Plan::default() };
    let after = projection::launched_with(inputs, &first, CapacityAssumption::Least);
    let other = repair.plan_as(&after, Variant::Same)?;
    // A static pool that is complete may replace a node. It does so once its missing nodes are there.
    if other.launches.iter().any(|launch| launch.pods.is_empty()) {
        return None;
    }
    let new: BTreeSet<NodeName> = first.launches.iter().map(node_name).collect();
    let taken = other.placements.iter().filter(|to| new.contains(&to.node));
    let targets = taken.flat_map(|to| to.pods.iter().map(move |pod| (pod.uid.clone(), to.node.clone()))).collect();
    let mut other = with_reports_of(other, plan);
    other.launches.extend(first.launches);
    edit::price(inputs, &mut other);
    let other = edit::with(inputs, &other, &after.nodes, &Change { targets, ..Change::default() })?;
    let places_all = unplaced_pods(inputs.snapshot, &other).is_subset(&unplaced_pods(inputs.snapshot, plan));
    let removes_as_many = other.terminations.len() >= plan.terminations.len();
    (places_all && removes_as_many && other.hourly < plan.hourly).then_some(other)
}
