//! Buffer pods: virtual pods of CapacityBuffers. They are placed after all other pods.
//!
//! Buffer pods use capacity and limits that other pods leave. Other pods never depend on buffer pods: kube-scheduler
//! does not know buffer pods, so topology spread and affinity of existing pods must not count them.

use crate::input::context::SolveContext;
use crate::input::existing_nodes::takes_some;
use crate::place::launch;
use crate::place::local_search;
use crate::place::multi_start;
use crate::place::pod_groups::PodGroup;
use crate::place::{Placed, State, put};
use plimsoll_model::index::Id;
use plimsoll_model::plan::{Placement, Plan};
use plimsoll_model::snapshot::{Node, Pod};
use std::collections::BTreeMap;

/// Buffer pods by the node that has capacity for them.
pub(crate) type PlacedBufferPods<'a> = BTreeMap<Id<Node>, Vec<&'a Pod>>;

/// Removes the buffer pods from `wanted` and returns them.
pub(crate) fn split<'a>(wanted: &mut Vec<PodGroup<'a>>) -> Vec<PodGroup<'a>> {
    let mut buffer_groups = Vec::new();
    for pod_group in wanted.iter_mut().filter(|pod_group| pod_group.pods.iter().any(|pod| pod.is_virtual())) {
        let (pods, virtual_pods) = apart(&pod_group.pods);
        buffer_groups.push(PodGroup::plain(pod_group.shape, virtual_pods));
        pod_group.pods = pods;
    }
    wanted.retain(|pod_group| !pod_group.pods.is_empty());
    buffer_groups
}

/// Places buffer pods on capacity that `placed` leaves, and adds launches to `placed`. Buffer pods and other pods share
/// new nodes if this is cheaper.
pub(crate) fn place<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    buffer_groups: Vec<PodGroup<'a>>,
    placed: &mut Placed<'a>,
) -> PlacedBufferPods<'a> {
    if buffer_groups.is_empty() {
        return PlacedBufferPods::new();
    }
    let counts = state.counts.clone();
    let mut placed_buffer_pods = PlacedBufferPods::new();
    let rest = on_own_nodes(context, state, buffer_groups, &mut placed_buffer_pods);
    let more = multi_start::place(context, state, rest);
    for (node, pods) in more.existing {
        placed_buffer_pods.entry(node).or_default().extend(pods);
    }
    placed.left.extend(more.left);
    if !more.launches.is_empty() {
        placed.launches.extend(more.launches);
        local_search::improve(context, state, placed);
    }
    // Pods that are moved to other nodes later do not count buffer pods either.
    state.counts = counts;
    placed_buffer_pods
}

/// Keeps pods on the nodes that were launched for them, as far as these have capacity. Returns all other pods.
fn on_own_nodes<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    placed_buffer_pods: &mut PlacedBufferPods<'a>,
) -> Vec<PodGroup<'a>> {
    let mut rest = Vec::new();
    for pod_group in pod_groups {
        let mut away = Vec::new();
        for pod in pod_group.pods {
            let home = pod.buffer.as_ref().and_then(|buffer| context.node_id(buffer.node.as_ref()?));
            let one = PodGroup::plain(pod_group.shape, vec![pod]);
            match home.filter(|node| takes_some(context, *node, state.room(*node), &one) > 0) {
                Some(node) => {
                    put(context, state, node, pod_group.shape, 1);
                    state.counts.enter(context, pod, node);
                    placed_buffer_pods.entry(node).or_default().push(pod);
                }
                None => away.push(pod),
            }
        }
        if !away.is_empty() {
            rest.push(PodGroup::plain(pod_group.shape, away));
        }
    }
    rest
}

/// Adds the buffer pods to the plan's placements, in addition to the other pods.
pub(crate) fn add_to_plan(context: &SolveContext<'_>, plan: &mut Plan, placed_buffer_pods: &PlacedBufferPods<'_>) {
    for (node, pods) in placed_buffer_pods {
        let (node, pods) = (&context.nodes[*node].node.name, launch::pod_refs(pods));
        match plan.placements.iter_mut().find(|placement| placement.node == *node) {
            Some(placement) => {
                placement.pods.extend(pods);
                placement.pods.sort();
            }
            None => plan.placements.push(Placement { node: node.clone(), pods }),
        }
    }
    plan.placements.sort();
}

/// Splits pods into existing pods and virtual pods.
pub(crate) fn apart<'a>(pods: &[&'a Pod]) -> (Vec<&'a Pod>, Vec<&'a Pod>) {
    pods.iter().copied().partition(|pod| !pod.is_virtual())
}
