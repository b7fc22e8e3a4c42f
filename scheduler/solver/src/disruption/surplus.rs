//! Nodes that static pools have beyond their `replicas`.

use super::allowance::Allowance;
use super::candidates::{self, Candidate};
use super::{Removal, State};
use crate::fixed;
use crate::lots;
use crate::place::Search;
use crate::world::World;
use plimsoll_model::snapshot::DisruptionReason;

/// Removes as many as there are too many, those without pods first, then those that disturb least. Budgets, do-not-disrupt and
/// disruption budgets of pods hold.
pub(super) fn remove<'a>(
    world: &World<'a>,
    state: &mut State,
    allowance: &mut Allowance<'a>,
    removal: &mut Removal<'a>,
) {
    for pool in world.snapshot.node_pools.iter().filter(|pool| !pool.deleting) {
        let mut left = fixed::surplus(world.snapshot, pool);
        if left == 0 {
            continue;
        }
        let mut found: Vec<Candidate<'a>> = candidates::of_static(world, removal, pool);
        found.sort_by_key(|one| (!one.empty, one.disturbance, &world.nodes[one.node].node.name));
        for candidate in found {
            if left == 0 || state.work == 0 {
                break;
            }
            let reason = if candidate.empty { DisruptionReason::Empty } else { DisruptionReason::Underutilized };
            if removal.is_gone(candidate.node)
                || removal.busy.contains(&candidate.node)
                || !allowance.permits(world, &candidate, reason)
            {
                continue;
            }
            let wanted = lots::by_shape(world, candidate.pods.iter().copied());
            let placed = state.trial(|state| {
                state.close(candidate.node);
                lots::leave(world, state, &wanted);
                let placed = crate::topology::place(world, state, wanted, Search { in_service: true, settled: false });
                placed.left.is_empty().then_some(placed)
            });
            if let Some(placed) = placed {
                allowance.note(&candidate);
                removal.note(&candidate, reason);
                removal.commit(world, placed);
                left -= 1;
            }
        }
    }
}
