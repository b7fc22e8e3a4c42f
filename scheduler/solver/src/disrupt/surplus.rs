//! Nodes of static pools that exceed their `replicas`: those that are not in service first, then drifted ones.

use super::candidates::{self, Candidate};
use super::{Removal, Removed};
use crate::input::context::SolveContext;
use crate::place::{State, pod_groups, static_pools, topology};
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{DisruptionReason, Node, NodePool, NodeState, Pod};

/// Removes surplus nodes: those that are not in service, drifted ones, those without pods, then those with the least
/// disturbance. Disruption budgets, do-not-disrupt and PodDisruptionBudgets apply to nodes in service.
pub(super) fn remove<'a>(context: &SolveContext<'a>, state: &mut State, removal: &mut Removal<'a>) {
    for pool in context.snapshot.node_pools.iter().filter(|pool| !pool.deleting) {
        let own = |one: &&Removed<'_>| context.nodes[one.node].node.node_pool.as_ref() == Some(&pool.name);
        let gone = removal.removed.iter().filter(own).filter(|one| !removal.successors.contains_key(&one.node)).count();
        let gone = u64::try_from(gone).unwrap_or(u64::MAX);
        let excess = static_pools::excess(context.snapshot, pool).saturating_sub(gone);
        for node in starting(context, removal, pool).into_iter().take(usize::try_from(excess).unwrap_or(usize::MAX)) {
            state.close(node);
            let (reason, price) = (DisruptionReason::Empty, context.nodes[node].data.price);
            removal.removed.push(Removed { node, reason, price, pods: Vec::new() });
        }
        let mut left = static_pools::surplus(context.snapshot, pool).saturating_sub(gone);
        if left == 0 {
            continue;
        }
        let mut found: Vec<Candidate<'a>> = candidates::of_static(context, removal, pool);
        let node = |one: &Candidate<'_>| context.nodes[one.node].node;
        found.sort_by_key(|one| (node(one).drifted.is_none(), !one.empty, one.disturbance, &node(one).name));
        for candidate in found {
            if left == 0 {
                break;
            }
            let reason = if candidate.empty { DisruptionReason::Empty } else { DisruptionReason::Underutilized };
            let wanted = pod_groups::by_shape(context, candidate.pods.iter().copied());
            let gone = removal.attempt(context, state, &candidate, reason, |state| {
                pod_groups::leave(context, state, &wanted);
                let placed = topology::place(context, state, wanted);
                placed.left.is_empty().then_some(placed)
            });
            left -= u64::from(gone);
        }
    }
}

/// Nodes of the pool that have a Node, but are not in service, and that nothing keeps. Budgets count only nodes in
/// service, so that they do not apply. A NodeClaim without Node cannot be removed: it has a timeout of its own.
fn starting(context: &SolveContext<'_>, removal: &Removal<'_>, pool: &NodePool) -> Vec<Id<Node>> {
    let keeps = |pod: &Pod| {
        let is_evicted = !pod.terminating && !pod.pod_disruption_budgets.is_empty();
        pod.moves() || is_evicted || pod_groups::is_protected(pod, context.snapshot.now)
    };
    let takes_pods = |index: &Id<Node>| removal.busy.contains(index) || removal.placed_buffer_pods.contains_key(index);
    let may_go = |index: &Id<Node>| {
        let view = &context.nodes[*index];
        let is_own = view.node.node_pool.as_ref() == Some(&pool.name);
        let is_starting = view.node.state == NodeState::Registered && !view.node.deleting;
        let is_kept = view.node.do_not_disrupt || removal.kept.contains(index) || view.pods.iter().any(keeps);
        is_own && is_starting && !is_kept && !takes_pods(index) && !removal.is_gone(*index)
    };
    context.nodes.ids().filter(may_go).collect()
}
