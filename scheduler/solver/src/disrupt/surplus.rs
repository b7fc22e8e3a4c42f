//! Nodes that static pools have beyond their `replicas`.

use super::allowance::Allowance;
use super::candidates::{self, Candidate};
use super::{Removal, State};
use crate::input::context::SolveContext;
use crate::place::Search;
use crate::place::pod_groups;
use crate::place::static_pools;
use plimsoll_model::snapshot::DisruptionReason;

/// Removes as many as there are too many, those without pods first, then those that disturb least. Budgets, do-not-disrupt and
/// disruption budgets of pods hold.
pub(super) fn remove<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    allowance: &mut Allowance<'a>,
    removal: &mut Removal<'a>,
) {
    for pool in context.snapshot.node_pools.iter().filter(|pool| !pool.deleting) {
        let mut left = static_pools::surplus(context.snapshot, pool);
        if left == 0 {
            continue;
        }
        let mut found: Vec<Candidate<'a>> = candidates::of_static(context, removal, pool);
        found.sort_by_key(|one| (!one.empty, one.disturbance, &context.nodes[one.node].node.name));
        for candidate in found {
            if left == 0 || state.work == 0 {
                break;
            }
            let reason = if candidate.empty { DisruptionReason::Empty } else { DisruptionReason::Underutilized };
            if removal.is_gone(candidate.node)
                || removal.busy.contains(&candidate.node)
                || !allowance.permits(context, &candidate, reason)
            {
                continue;
            }
            let wanted = pod_groups::by_shape(context, candidate.pods.iter().copied());
            let placed = state.trial(|state| {
                state.close(candidate.node);
                pod_groups::leave(context, state, &wanted);
                let placed =
                    crate::place::topology::place(context, state, wanted, Search { in_service: true, settled: false });
                placed.left.is_empty().then_some(placed)
            });
            if let Some(placed) = placed {
                allowance.note(&candidate);
                removal.note(&candidate, reason);
                removal.commit(context, placed);
                left -= 1;
            }
        }
    }
}
