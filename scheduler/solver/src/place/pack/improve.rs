//! Improves a packing: removes the nodes that are worth least for their price and packs their pods again, as long as
//! this lowers the cost.

use super::items::worth_of;
use super::left::Left;
use super::{Packer, Packing, Pattern};
use crate::place::limits::{self, Headroom};
use crate::score::Score;
use plimsoll_model::index::IndexVec;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Numbers of nodes that are packed again together.
const SIZES: [usize; 4] = [4, 6, 9, 14];
/// Maximum number of consecutive rounds without success: in total, and per node, since few nodes have few windows.
const MISSES: usize = 20;
const MISSES_PER_NODE: usize = 3;
/// Maximum number of rounds. With many nodes, the last nodes of a run matter less, while each round costs more.
const ROUNDS: usize = 60;
/// Work budget, about 30 ms for a hundred nodes: with hundreds of pod kinds and types, a round takes milliseconds. The
/// budget decreases with the number of nodes, since a few of many nodes matter less.
const WORK: u64 = 300_000;
const NODES: usize = 100;
/// Maximum product of nodes and rounds.
const NODE_ROUNDS: usize = 6_000;
/// Maximum number of nodes. In larger packings, the waste of the worst nodes is negligible.
const MANY: usize = 800;

pub(super) fn improve(packer: &Packer<'_, '_>, packing: Packing, limit: &Headroom, work: &mut u64) -> Packing {
    if packing.patterns.iter().map(|pattern| pattern.copies).sum::<usize>() > MANY {
        return packing;
    }
    let mut nodes: Vec<Pattern> = Vec::new();
    for pattern in &packing.patterns {
        nodes.extend((0..pattern.copies).map(|_| Pattern { copies: 1, ..pattern.clone() }));
    }
    let mut room = limit.clone();
    nodes.iter().for_each(|node| limits::take(&mut room, &node.charge, 1));
    let mut improved = false;
    let share = u64::try_from(1 + nodes.len() / NODES).unwrap_or(u64::MAX);
    let mut own = (WORK / share).min(*work);
    *work -= own;
    let mut misses = 0;
    let rounds = (NODE_ROUNDS / nodes.len().max(1)).min(ROUNDS);
    let mut rng = Rng(1);
    for round in 0..rounds {
        if misses >= MISSES.min(nodes.len() * MISSES_PER_NODE) || nodes.len() < 2 || own == 0 {
            break;
        }
        nodes.sort_by_cached_key(|node| Reverse(waste(packer, node)));
        let taken = window(round, nodes.len(), &mut rng);
        let mut left = IndexVec::filled(0, packer.items.len());
        let mut budget = room.clone();
        let (mut cost, mut pods) = (0, 0);
        for node in taken.iter().filter_map(|index| nodes.get(*index)) {
            for (item, n) in &node.take {
                left[*item] += n;
                pods += n;
            }
            limits::give(&mut budget, &node.charge);
            cost += node.price;
        }
        let again = packer.best_of(&Left::new(packer, left), &budget, &mut own);
        if again.score() >= Score::of_placed(pods, cost, taken.len()) {
            misses += 1;
            continue;
        }
        (improved, misses) = (true, 0);
        for index in taken.iter().rev() {
            nodes.remove(*index);
        }
        for pattern in again.patterns {
            limits::take(&mut budget, &pattern.charge, pattern.copies);
            nodes.extend((0..pattern.copies).map(|_| Pattern { copies: 1, ..pattern.clone() }));
        }
        room = budget;
    }
    *work += own;
    if !improved {
        return packing;
    }
    let cost = nodes.iter().map(|node| node.price).sum();
    Packing { patterns: nodes, cost, ..packing }
}

/// Chooses nodes by their position in the order of waste, most wasteful first. Alternates between consecutive wasteful
/// nodes, and a wasteful node with nodes from the whole order. Returns at least two positions, ascending.
fn window(round: usize, count: usize, rng: &mut Rng) -> Vec<usize> {
    let size = SIZES.get(round / 2 % SIZES.len()).copied().unwrap_or(count).min(count);
    if round.is_multiple_of(2) {
        let starts = (count / size).max(1);
        let start = (round / 2 / SIZES.len() % starts * size / 2).min(count - size);
        return (start..start + size).collect();
    }
    let mut some = BTreeSet::from([round % count.div_ceil(2)]);
    while some.len() < size {
        some.insert(rng.below(count));
    }
    some.into_iter().collect()
}

/// Deterministic pseudo-random numbers (Knuth's multiplier for MMIX).
struct Rng(u64);

impl Rng {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high bits have the longest period.
        usize::try_from(self.0 >> 33).unwrap_or(0) % count.max(1)
    }
}

/// Price of a node minus the worth of its pods.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "weights of a heuristic")]
fn waste(packer: &Packer<'_, '_>, node: &Pattern) -> i64 {
    (node.price as f64 - worth_of(&node.take, &packer.by_resource)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_of_different_nodes_and_reach_all_of_them() {
        let mut rng = Rng(1);
        for count in [2, 3, 5, 40] {
            let mut seen = BTreeSet::new();
            for round in 0..ROUNDS {
                let window = window(round, count, &mut rng);
                assert!(window.len() >= 2 && window.windows(2).all(|two| two[0] < two[1]), "{window:?}");
                seen.extend(window);
            }
            assert_eq!(seen, (0..count).collect(), "{count} nodes");
        }
    }
}
