//! Local search over all launches together: pods that were placed one pool after another, or one topology domain after
//! another, may share nodes.
//!
//! Decisions about each pod (pool, domain, host rules) are kept. Only the pods that share a node change. No pod moves
//! to a pool that comes after one that could take the pod, unless a node of the later pool is needed anyway.

pub(crate) mod bins;
mod search;
mod workspace;

use crate::input::context::SolveContext;
use crate::place::draft::Draft;
use crate::place::{Placed, State, market, pod_groups};
use bins::Bins;
use workspace::Workspace;

/// Up to this many pods, also search launches of one pool, and try more changes.
const SMALL: usize = 300;
/// No search beyond this many pods: the packing fills nodes well with so many.
const LARGE: usize = 1_000;
/// Maximum number of pod groups, counted on each launch. With more, reading them takes longer than the gain is worth.
const MAX_GROUPS: usize = 10_000;

/// Merges launches, or moves their pods to other launches, if this is cheaper.
pub(crate) fn improve<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>) {
    let pods = pod_groups::count(placed.launches.iter().flat_map(|draft| &draft.pod_groups));
    let small = pods <= SMALL;
    // Launches of one pool were packed together, with a search of its own.
    let pool = placed.launches.first().map(|draft| draft.pool);
    let apart = placed
        .launches
        .iter()
        .any(|draft| Some(draft.pool) != pool || draft.pod_groups.iter().any(|pod_group| pod_group.only.is_some()));
    let group_count: usize = placed.launches.iter().map(|draft| draft.pod_groups.len()).sum();
    if placed.launches.len() < 2 || state.work == 0 || pods > LARGE || group_count > MAX_GROUPS || !(small || apart) {
        return;
    }
    let (mut kinds, read) = bins::read(context, &placed.launches);
    if let Some(preferred) = state.preferred_pool {
        // Pods that the pool can take stay in it. Other starts try the other pools of its weight.
        let weight_group = market::weight_groups(context)
            .into_iter()
            .find(|weight_group| weight_group.contains(&preferred))
            .unwrap_or_default();
        kinds.iter_mut().for_each(|kind| kind.keep_to(preferred, &weight_group));
    }
    let fixed = read.iter().zip(&placed.launches).filter(|(bin, _)| bin.is_none());
    let mut drafts: Vec<Draft<'a>> = fixed.map(|(_, draft)| draft.clone()).collect();
    let open: Bins<'a> = read.into_iter().filter(Option::is_some).collect();
    let mut workspace = Workspace::new(context, kinds, open, state.headroom.clone(), small);
    if !search::improve(&mut workspace) {
        return;
    }
    let Workspace { kinds, bins, headroom, .. } = workspace;
    for bin in bins.into_iter().flatten() {
        let room = &headroom[bin.pool];
        let Some(draft) = bin.draft(context, &kinds, room) else { return };
        drafts.push(draft);
    }
    (placed.launches, state.headroom) = (drafts, headroom);
}
