//! What kube-scheduler likes about nodes that would do: its default plugins (of release 1.36), as far as a snapshot knows what they look at.

use super::stage::{Kind, Stage};
use crate::facts::lookup;
use crate::world::tolerated;
use plimsoll_model::snapshot::{Node, PodShape};

/// What kube-scheduler counts for pods without requests: 100 m of CPU and 200 MiB.
const USUAL: [i64; 2] = [100, 200 << 20];
/// The most that one plugin gives.
const MOST: i64 = 100;
/// Weights of the plugins; resources have one.
const AFFINITY: i64 = 2;
const TAINTS: i64 = 3;
pub(super) const SPREAD: i64 = 2;
pub(super) const NEAR: i64 = 2;

/// By node: preferred node affinity, and taints that are to be avoided.
pub(super) fn liked(shape: &PodShape, nodes: &[Node]) -> Vec<i64> {
    let wish = |node: &Node| -> i64 {
        let wishes = shape.preferred_node_affinity.iter();
        let held = wishes.filter(|one| one.term.matches_node_with(node.name.as_str(), |key| lookup(&node.labels, key)));
        held.map(|one| i64::from(one.weight)).sum()
    };
    let wishes: Vec<i64> = nodes.iter().map(wish).collect();
    let most = wishes.iter().copied().max().unwrap_or(0).max(1);
    let score = |(node, wish): (&Node, &i64)| {
        let clean = tolerated(&node.taints, &shape.tolerations, false);
        AFFINITY * MOST * wish / most + if clean { TAINTS * MOST } else { 0 }
    };
    nodes.iter().zip(&wishes).map(score).collect()
}

/// How much kube-scheduler likes a place of that kind for such a pod: how empty and how balanced it would be, and what it likes about the node.
pub(super) fn score(stage: &Stage, kind: &Kind, shape: usize, place: usize) -> i64 {
    let (mut empty, mut known) = (0, 0);
    let (mut before, mut after) = ([0.0; 2], [0.0; 2]);
    for (index, number) in stage.compared.iter().enumerate() {
        let Some(number) = number else { continue };
        let (all, free) = (kind.allocatable[index].max(1), kind.free[*number]);
        let wanted = stage.requests[shape][*number];
        let counted = if wanted == 0 { USUAL[index] } else { wanted };
        empty += (free - counted).clamp(0, all).saturating_mul(MOST) / all;
        known += 1;
        (before[index], after[index]) = (share(all - free, all), share(all - free + wanted, all));
    }
    // It compares how balanced the node is with the pod and without.
    let balanced = MOST / 2 + (MOST / 2 + balance(after) - balance(before)) / 2;
    empty / known.max(1) + balanced + stage.liked[shape][place]
}

#[expect(clippy::cast_precision_loss, reason = "shares of a node need no more digits")]
fn share(part: i64, all: i64) -> f64 {
    (part as f64 / all as f64).min(1.0)
}

/// 100 where CPU and memory are used alike.
#[expect(clippy::cast_possible_truncation, reason = "50 to 100")]
fn balance(shares: [f64; 2]) -> i64 {
    ((1.0 - (shares[0] - shares[1]).abs() / 2.0) * 100.0) as i64
}

/// Scores of one plugin, brought to 0 to 100: the most is best if `high`, else the least.
pub(super) fn normalized(scores: &[i64], high: bool) -> Vec<i64> {
    let (least, most) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    let one = |score: &i64| match (high, most - least) {
        (true, 0) => 0,
        (true, range) => MOST * (score - least) / range,
        (false, _) if most == 0 => MOST,
        (false, _) => MOST * (most + least - score) / most,
    };
    scores.iter().map(one).collect()
}
