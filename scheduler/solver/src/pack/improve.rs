//! Taking back the nodes that hold least for their price and packing their pods anew, as long as it pays.

use super::left::Left;
use super::{Packer, Packing, Pattern, Rank};
use crate::limits::{self, Headroom};
use std::cmp::Reverse;

/// How many nodes are taken back at once, in turn.
const SIZES: [usize; 6] = [2, 3, 4, 6, 9, 14];
/// Rounds without a success after which it ends: each size is tried from so many starting points.
const STARTS: usize = 3;
/// Rounds in all, for packings of few nodes: with many the last nodes of a run matter less, while each round costs more.
const ROUNDS: usize = 60;
/// Nodes times rounds, at least once with each size.
const NODE_ROUNDS: usize = 6_000;

pub(super) fn improve(packer: &Packer<'_, '_>, packing: Packing, limit: &Headroom, work: &mut u64) -> Packing {
    let mut nodes: Vec<Pattern> = Vec::new();
    for pattern in &packing.patterns {
        nodes.extend((0..pattern.copies).map(|_| Pattern { copies: 1, ..pattern.clone() }));
    }
    let mut room = limit.clone();
    nodes.iter().for_each(|node| limits::take(&mut room, &node.charge, 1));
    let mut improved = false;
    let mut misses = 0;
    let rounds = (NODE_ROUNDS / nodes.len().max(1)).clamp(SIZES.len(), ROUNDS);
    for round in 0..rounds {
        if misses >= SIZES.len() * STARTS || nodes.len() < 2 || *work == 0 {
            break;
        }
        nodes.sort_by_cached_key(|node| Reverse(waste(packer, node)));
        let (size, start) = (SIZES[round % SIZES.len()], (round / SIZES.len()) % STARTS);
        let taken: Vec<usize> = (0..nodes.len()).skip(start * size / 2).take(size).collect();
        if taken.len() < 2 {
            misses += 1;
            continue;
        }
        let mut left = vec![0; packer.items.len()];
        let mut budget = room.clone();
        let (mut cost, mut pods) = (0, 0);
        for node in taken.iter().map(|index| &nodes[*index]) {
            for (item, n) in &node.take {
                left[*item] += n;
                pods += n;
            }
            for (left, amount) in budget.iter_mut().zip(&node.charge) {
                *left = left.map(|left| left.saturating_add(*amount));
            }
            cost += node.price;
        }
        let again = packer.best_of(&Left::new(packer, left), &budget, work);
        if again.rank() >= Rank::new(pods, cost, taken.len()) {
            misses += 1;
            continue;
        }
        (improved, misses) = (true, 0);
        let first = taken.first().copied().unwrap_or(0);
        nodes.drain(first..first + taken.len());
        for pattern in again.patterns {
            limits::take(&mut budget, &pattern.charge, pattern.copies);
            nodes.extend((0..pattern.copies).map(|_| Pattern { copies: 1, ..pattern.clone() }));
        }
        room = budget;
    }
    if !improved {
        return packing;
    }
    let cost = nodes.iter().map(|node| node.price).sum();
    Packing { patterns: nodes, cost, ..packing }
}

/// What a node costs beyond the worth of its pods.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "weights of a heuristic")]
fn waste(packer: &Packer<'_, '_>, node: &Pattern) -> i64 {
    let worth: f64 = node.take.iter().map(|(item, n)| packer.by_resource[*item] * *n as f64).sum();
    (node.price as f64 - worth) as i64
}
