//! kube-scheduler's scores of the nodes that pass its filters: the default plugins of release 1.36, for the facts that
//! a snapshot has.

use crate::node::Machine;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{Node, PodShape};
use plimsoll_model::taints::{Taint, TaintEffect};

/// kube-scheduler's defaults for pods without requests: 100m of CPU and 200 MiB of memory.
const DEFAULT_REQUESTS: [i64; 2] = [100, 200 << 20];
/// Maximum score of one plugin.
const MAX: i64 = 100;
/// Weights of the plugins. The weight of the resource plugins is 1.
const NODE_AFFINITY: i64 = 2;
const TAINT_TOLERATION: i64 = 3;
pub(crate) const TOPOLOGY_SPREAD: i64 = 2;
pub(crate) const POD_AFFINITY: i64 = 2;

/// What a shape prefers about a node, before it is compared with the other nodes that pass the filters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Preference {
    /// Sum of the weights of the preferred node affinity terms that match.
    weight: i64,
    /// Number of PreferNoSchedule taints that are not tolerated.
    taints: i64,
}

impl Preference {
    pub(crate) fn of(shape: &PodShape, node: &Node) -> Self {
        let terms = shape.preferred_node_affinity.iter();
        let matching = terms.filter(|preferred| {
            preferred.term.matches_node_with(node.name.as_str(), |key| label::lookup(&node.labels, key))
        });
        let tolerated = |taint: &Taint| shape.tolerations.iter().any(|toleration| toleration.tolerates(taint));
        let soft = node.taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
        let taints = soft.filter(|taint| !tolerated(taint)).count();
        Self {
            weight: matching.map(|preferred| i64::from(preferred.weight)).sum(),
            taints: i64::try_from(taints).unwrap_or(i64::MAX),
        }
    }
}

/// NodeAffinity and TaintToleration of nodes that pass the filters, with the weights of the plugins.
pub(crate) fn preferred(nodes: &[Preference]) -> impl Iterator<Item = i64> {
    let highest = nodes.iter().map(|node| node.weight).max().unwrap_or(0).max(1);
    let most = nodes.iter().map(|node| node.taints).max().unwrap_or(0).max(1);
    nodes.iter().map(move |node| {
        NODE_AFFINITY * (MAX * node.weight / highest) + TAINT_TOLERATION * (MAX - MAX * node.taints / most)
    })
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
        // Pods that name their node may request any amounts. Nothing is free then, and the pod requests nothing of it.
        let used = all.saturating_sub(free);
        least_allocated += free.saturating_sub(counted).clamp(0, all).saturating_mul(MAX) / all;
        known += 1;
        (*before, *after) = (fraction(used, all), fraction(used + wanted, all));
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

/// Scales the raw scores of one plugin to 0 to 100. Either the highest or the lowest raw score is best. Nodes without a
/// raw score get 0.
pub(crate) fn normalized(scores: &[Option<i64>], highest_is_best: bool) -> Vec<i64> {
    let known = || scores.iter().copied().flatten();
    let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
    let scaled = |score: i64| match (highest_is_best, most - least) {
        (true, 0) => 0,
        (true, range) => MAX * (score - least) / range,
        (false, _) if most == 0 => MAX,
        (false, _) => MAX * (most + least - score) / most,
    };
    scores.iter().map(|score| score.map_or(0, scaled)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_a_plugin_go_from_zero_to_a_hundred() {
        assert_eq!(normalized(&[Some(-30), Some(0), Some(30)], true), [0, 50, 100]);
        assert_eq!(normalized(&[Some(7), Some(7)], true), [0, 0], "no node is better");
        // For topology spread, the fewest pods are best, and a node without the topology key is worst.
        assert_eq!(normalized(&[Some(1), Some(3), None], false), [100, 33, 0]);
        assert_eq!(normalized(&[Some(0), Some(0), None], false), [100, 100, 0]);
    }

    #[test]
    fn only_nodes_that_pass_the_filters_are_compared() {
        let node = |weight, taints| Preference { weight, taints };
        // A node with the weight 100 that does not pass the filters would leave 2 of 200 points for the best one.
        assert_eq!(preferred(&[node(1, 0), node(0, 0)]).collect::<Vec<_>>(), [200 + 300, 300]);
        assert_eq!(preferred(&[node(0, 2), node(0, 1), node(0, 0)]).collect::<Vec<_>>(), [0, 150, 300]);
    }

    #[test]
    fn an_emptier_machine_and_a_balanced_one_score_higher() {
        let machine = |free: [i64; 2]| Machine { allocatable: [1000, 1000], free: free.to_vec() };
        let score = |free, requests: [i64; 2]| resources(&machine(free), &requests, [Some(0), Some(1)]);
        assert!(score([900, 900], [100, 100]) > score([500, 500], [100, 100]), "emptier");
        assert!(score([500, 900], [100, 400]) > score([500, 900], [400, 100]), "memory is free, CPU is not");
        // Pods that were bound by name take more than all numbers.
        assert_eq!(score([i64::MIN, 500], [0, 100]), score([0, 500], [0, 100]));
    }
}
