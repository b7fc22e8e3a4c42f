//! Nodes of static pools that exceed their `replicas`: drifted ones first.

use super::allowance::Allowance;
use super::candidates::{self, Candidate};
use super::{IN_SERVICE, Removal, Removed};
use crate::input::context::SolveContext;
use crate::place::{State, pod_groups, static_pools, topology};
use plimsoll_model::snapshot::DisruptionReason;

/// Removes surplus nodes: drifted ones, those without pods, then those with the least disturbance. Disruption budgets,
/// do-not-disrupt and PodDisruptionBudgets apply.
pub(super) fn remove<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    allowance: &mut Allowance<'a>,
    removal: &mut Removal<'a>,
) {
    for pool in context.snapshot.node_pools.iter().filter(|pool| !pool.deleting) {
        let own = |one: &&Removed<'_>| context.nodes[one.node].node.node_pool.as_ref() == Some(&pool.name);
        let gone = removal.removed.iter().filter(own).filter(|one| !removal.successors.contains_key(&one.node)).count();
        let gone = u64::try_from(gone).unwrap_or(u64::MAX);
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
            let gone = removal.attempt(context, state, allowance, &candidate, reason, |state| {
                pod_groups::leave(context, state, &wanted);
                let placed = topology::place(context, state, wanted, IN_SERVICE);
                placed.left.is_empty().then_some(placed)
            });
            left -= u64::from(gone);
        }
    }
}
