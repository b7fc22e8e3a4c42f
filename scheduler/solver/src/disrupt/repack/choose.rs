//! Chooses the nodes to remove: a search over the number of removals in order, then over single nodes.

use super::{CandidateId, Order, Repack, delete};
use crate::place::State;
use std::collections::{BTreeMap, BTreeSet};

/// Work of all trials together: about a third of a second.
const WORK: u64 = 30_000_000;
/// Work of one trial per pod that may move. More work improves launches, but hardly the comparison of trials.
const WORK_PER_POD: u64 = 1_000;
/// A trial gets at most the plan's work divided by this, so that enough is left to place the pods.
const SHARE: u64 = 20;
/// Minimum and maximum number of trials.
const TRIALS: (usize, usize) = (8, 20);
/// Maximum number of trials of numbers of removals. All other trials change single nodes.
const NUMBERS: usize = 10;
/// Prices per worth at which nodes are first divided into those that stay and those that are removed. Full new nodes
/// cost 1 per worth, and real ones a few percent more.
const PRICES: [f64; 5] = [1.0, 1.03, 1.07, 1.15, 1.3];
/// Minimum saving of each launched node compared to deletions only, in micro-USD per hour: about 15 USD a month.
const PER_LAUNCH: i64 = 20_000;
/// Maximum number of attempts to keep nodes of launched types.
const MATCHES: usize = 2;

/// The best removals so far.
struct Best {
    /// In order.
    nodes: Vec<CandidateId>,
    /// Change of the hourly price including the cost of evictions, in micro-USD. Negative values are savings.
    cost: i64,
    /// Instance types of the launches, with their number.
    types: BTreeMap<String, usize>,
    work: u64,
    trials: usize,
}

/// Returns the nodes to remove. Empty if no removal pays.
pub(super) fn choose(repack: &mut Repack<'_, '_>, state: &mut State) -> Vec<CandidateId> {
    let pods: usize = repack.order.iter().map(|(_, one)| one.pods.len()).sum();
    let work = WORK_PER_POD.saturating_mul(u64::try_from(pods).unwrap_or(u64::MAX));
    let work = work.min(state.work / SHARE).max(1);
    repack.drop_stuck(state, work);
    let count = repack.order.len();
    let trials = usize::try_from(WORK / work).unwrap_or(usize::MAX).clamp(TRIALS.0, TRIALS.1);
    let mut best = Best { nodes: Vec::new(), cost: 0, types: BTreeMap::new(), work, trials: trials.min(NUMBERS) };
    let above = |limit: &f64| repack.order.iter().take_while(|one| one.0 > *limit).count();
    let mut wanted: Vec<usize> = PRICES.iter().map(above).collect();
    wanted.push(count);
    let mut known: BTreeMap<usize, i64> = BTreeMap::from([(0, 0)]);
    while let Some(removed) = wanted.pop() {
        if known.contains_key(&removed) {
            continue;
        }
        let Some(cost) = best.attempt(repack, state, repack.order.ids().take(removed).collect()) else { break };
        known.insert(removed, cost);
        if wanted.is_empty() {
            wanted = between(&known);
        }
    }
    best.trials += trials.saturating_sub(NUMBERS);
    if best.trials == 0 {
        return best.nodes;
    }
    let deletable = delete::deletions(repack, state, work);
    let deleted = best.attempt(repack, state, deletable.clone()).unwrap_or(0);
    // Single nodes are considered separately later.
    if best.nodes.is_empty() {
        return best.nodes;
    }
    for _ in 0..MATCHES {
        let kept = best.without_matches(&repack.order);
        if kept.len() == best.nodes.len() || best.attempt(repack, state, kept).is_none() {
            break;
        }
    }
    single_nodes(repack, state, &mut best);
    let launches = i64::try_from(best.types.values().sum::<usize>()).unwrap_or(i64::MAX);
    let worth = best.cost.saturating_add(launches.saturating_mul(PER_LAUNCH));
    if deleted < 0 && deleted <= worth { deletable } else { best.nodes }
}

/// Changes single nodes, starting with those closest to the dividing price.
fn single_nodes(repack: &Repack<'_, '_>, state: &mut State, best: &mut Best) {
    let mut tried: BTreeSet<Vec<CandidateId>> = BTreeSet::new();
    loop {
        let middle = best.nodes.len();
        let mut order: Vec<CandidateId> = repack.order.ids().collect();
        order.sort_by_key(|id| id.number().abs_diff(middle));
        let next = order.into_iter().map(|index| best.with_changed(index)).find(|nodes| !tried.contains(nodes));
        let Some(nodes) = next else { return };
        tried.insert(nodes.clone());
        if best.attempt(repack, state, nodes).is_none() {
            return;
        }
    }
}

impl Best {
    /// Tries to remove these nodes. Returns the cost, or `None` if no trial is left.
    fn attempt(&mut self, repack: &Repack<'_, '_>, state: &mut State, nodes: Vec<CandidateId>) -> Option<i64> {
        if self.trials == 0 || state.work == 0 {
            return None;
        }
        self.trials -= 1;
        let Some((cost, types)) = repack.cost(state, &nodes, self.work) else { return Some(i64::MAX) };
        if cost < self.cost {
            (self.nodes, self.cost, self.types) = (nodes, cost, types);
        }
        Some(cost)
    }

    /// The removals without nodes whose instance types would be launched instead. Nodes with most evictions are kept
    /// first.
    fn without_matches(&self, order: &Order<'_, '_>) -> Vec<CandidateId> {
        let mut types = self.types.clone();
        let evictions = |id: &CandidateId| (order[*id].1.evictions, *id);
        let mut nodes: Vec<(i64, CandidateId)> = self.nodes.iter().map(evictions).collect();
        nodes.sort_unstable_by(|a, b| b.cmp(a));
        let mut removed: Vec<CandidateId> = Vec::new();
        for (_, index) in nodes {
            match types.get_mut(&order[index].1.instance_type) {
                Some(launched) if *launched > 0 => *launched -= 1,
                _ => removed.push(index),
            }
        }
        removed.sort_unstable();
        removed
    }

    fn with_changed(&self, index: CandidateId) -> Vec<CandidateId> {
        let mut nodes = self.nodes.clone();
        match nodes.binary_search(&index) {
            Ok(place) => drop(nodes.remove(place)),
            Err(place) => nodes.insert(place, index),
        }
        nodes
    }
}

/// Midpoints between the best number and its neighbours.
fn between(known: &BTreeMap<usize, i64>) -> Vec<usize> {
    let best = known.iter().min_by_key(|(number, cost)| (**cost, **number)).map_or(0, |(number, _)| *number);
    let below = known.range(..best).next_back().map(|(below, _)| usize::midpoint(*below, best));
    let above = known.range(best + 1..).next().map(|(above, _)| usize::midpoint(best, *above));
    below.into_iter().chain(above).filter(|number| !known.contains_key(number)).collect()
}
