//! Pods that wait for a node which has room reserved for them.

use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::plan::{Placement, Plan, PodRef};
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

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

/// Adds the pods that wait for a node to the plan's placements, for users: kube-scheduler has nominated the node, so
/// the planner has nothing to decide. A node that is being removed takes no pods.
pub fn place_waiting(snapshot: &Snapshot, plan: &mut Plan) {
    let leaving: BTreeSet<&NodeName> =
        snapshot.nodes.iter().filter(|node| node.deleting).map(|node| &node.name).collect();
    let mut by_node: BTreeMap<NodeName, Vec<PodRef>> = BTreeMap::new();
    for (pod, node) in waiting_pods(snapshot, plan) {
        if !leaving.contains(node) {
            let pod = PodRef { name: pod.full_name(), uid: pod.uid.clone() };
            by_node.entry(node.clone()).or_default().push(pod);
        }
    }
    for placement in &mut plan.placements {
        placement.pods.extend(by_node.remove(&placement.node).unwrap_or_default());
    }
    plan.placements.extend(by_node.into_iter().map(|(node, pods)| Placement { node, pods }));
    plan.placements.iter_mut().for_each(|placement| placement.pods.sort());
    plan.placements.sort();
}
