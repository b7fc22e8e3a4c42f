//! Chooses the nodes to remove without launching nodes: all their pods fit on the remaining nodes.

use super::{CandidateId, Repack, add_requests, evictions};
use crate::bound::resource_prices::worth;
use crate::input::intern::Amounts;
use crate::place::State;
use crate::place::columns::money;
use crate::score::PER_NODE;

/// Number of nodes after the longest removable prefix of an order that are tried one by one.
const TRIALS_AFTER_PREFIX: usize = 24;

/// Returns the best removals of three orders: highest price per worth of the node first, highest price per disturbance
/// first, and highest price per worth of the pods first. The result is ascending. Each trial has budget `work`. No
/// further order is tried once half of the work is spent.
pub(super) fn deletions(repack: &Repack<'_, '_>, state: &mut State, work: u64) -> Vec<CandidateId> {
    let by_worth: Vec<CandidateId> = repack.order.ids().collect();
    let mut by_rate = by_worth.clone();
    by_rate.sort_by(|a, b| repack.order[*a].1.by_price_per_disturbance(repack.order[*b].1).then(a.cmp(b)));
    let by_load = by_price_per_load(repack);
    let enough = state.work / 2;
    let mut tried: Vec<Vec<CandidateId>> = Vec::new();
    let mut best: Vec<CandidateId> = Vec::new();
    for order in [by_worth, by_rate, by_load] {
        if tried.contains(&order) {
            continue;
        }
        if !tried.is_empty() && state.work < enough {
            break;
        }
        let found = in_order(repack, state, &order, work);
        if cost(repack, &found) < cost(repack, &best) {
            best = found;
        }
        tried.push(order);
    }
    best.sort_unstable();
    best
}

/// Nodes whose pods need little elsewhere, compared with the price of the node, first.
fn by_price_per_load(repack: &Repack<'_, '_>) -> Vec<CandidateId> {
    let rate = |id: CandidateId| {
        let candidate = repack.order[id].1;
        let mut load: Amounts = vec![0; repack.context.table.len()];
        add_requests(repack.context, &mut load, candidate);
        money(candidate.price) / worth(&repack.prices, &load).max(1.0)
    };
    let mut rated: Vec<(f64, CandidateId)> = repack.order.ids().map(|id| (rate(id), id)).collect();
    rated.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    rated.into_iter().map(|(_, id)| id).collect()
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
