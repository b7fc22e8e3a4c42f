//! kube-scheduler's scores of the nodes that pass its filters: the default plugins of release 1.36, for the facts that
//! a snapshot has.

use crate::node::Machine;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{Node, PodShape};
use plimsoll_model::taints::untolerated;

/// kube-scheduler's defaults for pods without requests: 100m of CPU and 200 MiB of memory.
const DEFAULT_REQUESTS: [i64; 2] = [100, 200 << 20];
/// Maximum score of one plugin.
const MAX: i64 = 100;
/// Weights of the plugins. The weight of the resource plugins is 1.
const NODE_AFFINITY: i64 = 2;
const TAINT_TOLERATION: i64 = 3;
pub(crate) const TOPOLOGY_SPREAD: i64 = 2;
pub(crate) const POD_AFFINITY: i64 = 2;

/// By node: the weighted scores of preferred node affinity and PreferNoSchedule taints.
pub(crate) fn preference(shape: &PodShape, nodes: &[Node]) -> Vec<i64> {
    let weight = |node: &Node| -> i64 {
        let terms = shape.preferred_node_affinity.iter();
        let matching = terms.filter(|preferred| {
            preferred.term.matches_node_with(node.name.as_str(), |key| label::lookup(&node.labels, key))
        });
        matching.map(|preferred| i64::from(preferred.weight)).sum()
    };
    let weights: Vec<i64> = nodes.iter().map(weight).collect();
    let highest = weights.iter().copied().max().unwrap_or(0).max(1);
    let score = |(node, weight): (&Node, &i64)| {
        let clean = untolerated(&node.taints, &shape.tolerations).is_none();
        NODE_AFFINITY * MAX * weight / highest + if clean { TAINT_TOLERATION * MAX } else { 0 }
    };
    nodes.iter().zip(&weights).map(score).collect()
}

/// NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation of a machine for a pod with these requests.
/// `scored` are the indices of the [`SCORED`](crate::node::SCORED) resources in amounts.
pub(crate) fn resources(machine: &Machine, requests: &[i64], scored: [Option<usize>; 2]) -> i64 {
    let (mut least_allocated, mut known) = (0, 0);
    let (mut before, mut after) = ([0.0; 2], [0.0; 2]);
    let kinds = scored.into_iter().zip(machine.allocatable).zip(DEFAULT_REQUESTS);
    for (((place, all), default), (before, after)) in kinds.zip(before.iter_mut().zip(&mut after)) {
        let amounts = place.and_then(|place| machine.free.get(place).zip(requests.get(place)));
        let (Some((&free, &wanted)), all) = (amounts, all.max(1)) else { continue };
        let counted = if wanted == 0 { default } else { wanted };
        least_allocated += (free - counted).clamp(0, all).saturating_mul(MAX) / all;
        known += 1;
        (*before, *after) = (fraction(all - free, all), fraction(all - free + wanted, all));
    }
    // NodeResourcesBalancedAllocation compares the balance of the node with the pod and without the pod.
    let balanced = MAX / 2 + (MAX / 2 + balance(after) - balance(before)) / 2;
    least_allocated / known.max(1) + balanced
}

#[expect(clippy::cast_precision_loss, reason = "fractions of a node need no more digits")]
fn fraction(part: i64, all: i64) -> f64 {
    (part as f64 / all as f64).min(1.0)
}

/// 100 if CPU and memory are allocated in equal proportion.
#[expect(clippy::cast_possible_truncation, reason = "50 to 100")]
fn balance(fractions: [f64; 2]) -> i64 {
    ((1.0 - (fractions[0] - fractions[1]).abs() / 2.0) * 100.0) as i64
}

/// Scales the raw scores of one plugin to 0 to 100. Either the highest or the lowest raw score is best.
pub(crate) fn normalized(scores: &[i64], highest_is_best: bool) -> Vec<i64> {
    let (least, most) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    let scaled = |score: &i64| match (highest_is_best, most - least) {
        (true, 0) => 0,
        (true, range) => MAX * (score - least) / range,
        (false, _) if most == 0 => MAX,
        (false, _) => MAX * (most + least - score) / most,
    };
    scores.iter().map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_a_plugin_go_from_zero_to_a_hundred() {
        assert_eq!(normalized(&[-30, 0, 30], true), [0, 50, 100]);
        assert_eq!(normalized(&[7, 7], true), [0, 0], "no node is better");
        // For topology spread, the fewest pods are best.
        assert_eq!(normalized(&[1, 3], false), [100, 33]);
        assert_eq!(normalized(&[0, 0], false), [100, 100]);
    }

    #[test]
    fn an_emptier_machine_and_a_balanced_one_score_higher() {
        let machine = |free: [i64; 2]| Machine { allocatable: [1000, 1000], free: free.to_vec() };
        let score = |free, requests: [i64; 2]| resources(&machine(free), &requests, [Some(0), Some(1)]);
        assert!(score([900, 900], [100, 100]) > score([500, 500], [100, 100]), "emptier");
        assert!(score([500, 900], [100, 400]) > score([500, 900], [400, 100]), "memory is free, CPU is not");
    }
}
