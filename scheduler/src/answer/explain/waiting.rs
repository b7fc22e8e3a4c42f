//! Pods that wait for a node which has room reserved for them.

use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use std::collections::BTreeSet;

/// Pods with a reserved node that the plan does not place elsewhere, each with its node.
#[must_use]
pub fn waiting_pods<'a>(snapshot: &'a Snapshot, plan: &Plan) -> Vec<(&'a Pod, &'a NodeName)> {
    let mut waiting: Vec<(&Pod, &NodeName)> = Vec::new();
    for pod in &snapshot.pods {
        if let PodState::Reserved(node) = &pod.state {
            waiting.push((pod, node));
        }
    }
    if waiting.is_empty() {
        return waiting;
    }
    let placed = plan.placements.iter().flat_map(|it| &it.pods);
    let moved = plan.terminations.iter().flat_map(|it| &it.pods);
    let unschedulable = plan.unschedulable.iter().map(|it| &it.pod);
    let planned: BTreeSet<&PodUid> =
        plan.launched_pods().chain(placed).chain(moved).chain(unschedulable).map(|pod| &pod.uid).collect();
    waiting.retain(|(pod, _)| !planned.contains(&pod.uid));
    waiting
}
