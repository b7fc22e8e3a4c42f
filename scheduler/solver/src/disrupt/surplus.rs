//! Nodes of static pools that exceed their `replicas`: those that are not in service first, then drifted ones.

use super::candidates::{self, Candidate};
use super::{Removal, Removed};
use crate::explain::unsupported;
use crate::input::context::SolveContext;
use crate::place::{Placed, State, buffer_pods, pod_groups, static_pools, topology};
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{DisruptionReason, Node, NodePool, NodeState, Pod};

/// Removes surplus nodes: those that are not in service, drifted ones, those without pods, then those with the least
/// disturbance. Disruption budgets, do-not-disrupt and PodDisruptionBudgets apply to nodes in service. As in Karpenter,
/// virtual pods keep no node.
pub(super) fn remove<'a>(context: &SolveContext<'a>, state: &mut State, removal: &mut Removal<'a>) {
    let mut displaced = Vec::new();
    for pool in context.snapshot.node_pools.iter().filter(|pool| !pool.deleting) {
        let own = |one: &&Removed<'_>| context.nodes[one.node].node.node_pool.as_ref() == Some(&pool.name);
        let gone = removal.removed.iter().filter(own).filter(|one| !removal.successors.contains_key(&one.node)).count();
        let gone = u64::try_from(gone).unwrap_or(u64::MAX);
        let excess = static_pools::excess(context.snapshot, pool).saturating_sub(gone);
        for node in starting(context, removal, pool).into_iter().take(usize::try_from(excess).unwrap_or(usize::MAX)) {
            state.close(node);
            displaced.extend(removal.placed_buffer_pods.remove(&node).unwrap_or_default());
            let (reason, price) = (DisruptionReason::Empty, context.nodes[node].data.price);
            removal.removed.push(Removed { node, reason, price, pods: Vec::new() });
        }
        let mut left = plimsoll_model::disruption::surplus(context.snapshot, pool).saturating_sub(gone);
        if left == 0 {
            continue;
        }
        let mut found: Vec<Candidate<'a>> = candidates::of_static(context, pool);
        let node = |one: &Candidate<'_>| context.nodes[one.node].node;
        found.sort_by_key(|one| {
            let has_buffer_pods = removal.placed_buffer_pods.contains_key(&one.node);
            (node(one).drifted.is_none(), !one.empty, one.disturbance, has_buffer_pods, &node(one).name)
        });
        for candidate in found {
            if left == 0 {
                break;
            }
            let reason = if candidate.empty { DisruptionReason::Empty } else { DisruptionReason::Underutilized };
            let wanted = pod_groups::by_shape(context, candidate.pods.iter().copied());
            if wanted.iter().any(|pod_group| unsupported(context.shapes[pod_group.shape].shape).is_some()) {
                continue;
            }
            let of_buffers = removal.placed_buffer_pods.get(&candidate.node).cloned().unwrap_or_default();
            let gone = removal.attempt(context, state, &candidate, reason, |state| {
                pod_groups::leave(context, state, &wanted);
                let placed = topology::place(context, state, wanted);
                placed.left.is_empty().then_some(placed)
            });
            if gone {
                displaced.extend(of_buffers);
                left -= 1;
            }
        }
    }
    place_again(context, state, removal, displaced);
}

/// Places virtual pods of removed nodes on what is left, after all other pods.
fn place_again<'a>(context: &SolveContext<'a>, state: &mut State, removal: &mut Removal<'a>, displaced: Vec<&'a Pod>) {
    let wanted = pod_groups::by_shape(context, displaced.into_iter());
    let mut placed = Placed::default();
    // Unlike running pods, they may wait for nodes that start.
    let in_service = std::mem::replace(&mut state.search.in_service, false);
    placed.existing = buffer_pods::place(context, state, wanted, &mut placed);
    state.search.in_service = in_service;
    removal.unplaced.append(&mut placed.left);
    removal.commit(context, placed);
}

/// Nodes of the pool that have a Node, but are not in service, and that nothing keeps. Budgets count only nodes in
/// service, so that they do not apply. A NodeClaim without Node cannot be removed: it has a timeout of its own. Nodes
/// with virtual pods come last.
fn starting(context: &SolveContext<'_>, removal: &Removal<'_>, pool: &NodePool) -> Vec<Id<Node>> {
    let keeps = |pod: &Pod| {
        let is_evicted = !pod.terminating && !pod.pod_disruption_budgets.is_empty();
        pod.moves() || is_evicted || pod_groups::is_protected(pod, context.snapshot.now)
    };
    let may_go = |index: &Id<Node>| {
        let view = &context.nodes[*index];
        let is_own = view.node.node_pool.as_ref() == Some(&pool.name);
        let is_starting = view.node.state == NodeState::Registered && !view.node.deleting;
        let is_kept = view.node.do_not_disrupt || removal.kept.contains(index) || view.pods.iter().any(keeps);
        is_own && is_starting && !is_kept && !removal.busy.contains(index) && !removal.is_gone(*index)
    };
    let mut nodes: Vec<Id<Node>> = context.nodes.ids().filter(may_go).collect();
    nodes.sort_by_key(|index| removal.placed_buffer_pods.contains_key(index));
    nodes
}
