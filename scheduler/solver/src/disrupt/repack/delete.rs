//! Chooses the nodes to remove without launching nodes: all their pods fit on the remaining nodes.

use super::{CandidateId, Repack, evictions};
use crate::place::State;
use crate::score::PER_NODE;

/// Number of nodes after the longest removable prefix of an order that are tried one by one.
const TRIALS_AFTER_PREFIX: usize = 24;

/// Returns the best removals of two orders: highest price per worth first, and highest price per disturbance first. The
/// result is ascending. Each trial has budget `work`.
pub(super) fn deletions(repack: &Repack<'_, '_>, state: &mut State, work: u64) -> Vec<CandidateId> {
    let by_worth: Vec<CandidateId> = repack.order.ids().collect();
    let mut by_rate = by_worth.clone();
    by_rate.sort_by(|a, b| repack.order[*a].1.by_price_per_disturbance(repack.order[*b].1).then(a.cmp(b)));
    let found = [by_worth, by_rate].map(|order| in_order(repack, state, &order, work));
    let mut best = found.into_iter().min_by_key(|found| cost(repack, found)).unwrap_or_default();
    best.sort_unstable();
    best
}

/// The longest prefix of `order` that can be removed, found by bisection, and nodes soon after it that can be removed,
/// too.
fn in_order(repack: &Repack<'_, '_>, state: &mut State, order: &[CandidateId], work: u64) -> Vec<CandidateId> {
    let (mut fits, mut fails) = (0, order.len() + 1);
    while fits + 1 < fails {
        let middle = usize::midpoint(fits, fails);
        let (prefix, _) = order.split_at(middle.min(order.len()));
        if can_go(repack, state, prefix, work) {
            fits = middle;
        } else {
            fails = middle;
        }
    }
    let mut found: Vec<CandidateId> = order.iter().take(fits).copied().collect();
    for candidate in order.iter().skip(fits + 1).take(TRIALS_AFTER_PREFIX) {
        found.push(*candidate);
        if !can_go(repack, state, &found, work) {
            found.pop();
        }
    }
    found
}

/// Whether all pods of these nodes fit on the remaining nodes.
fn can_go(repack: &Repack<'_, '_>, state: &mut State, removed: &[CandidateId], work: u64) -> bool {
    let nodes = repack.nodes(removed);
    repack.tried(state, work, |state| repack.place(state, &nodes, false).ok()).is_some()
}

/// Change of the hourly price including the cost of evictions, in micro-USD.
fn cost(repack: &Repack<'_, '_>, removed: &[CandidateId]) -> i64 {
    let nodes = repack.nodes(removed);
    nodes.iter().map(|one| evictions(one, repack.rules.per_eviction) - one.price - PER_NODE).sum()
}
