//! Places pods on existing nodes by best fit: each pod on the node whose free capacity is most similar to its requests.
//!
//! Capacity that is left on full nodes is lost if it is all of one resource. Similarity keeps the resources that are
//! left in proportion (cosine of the two vectors, "dot product" in the literature on vector bin packing: Panigrahy et
//! al., Heuristics for Vector Bin Packing, 2011).

use crate::bound::resource_prices::worth;
use crate::input::context::SolveContext;
use crate::input::existing_nodes::takes;
use crate::place::pod_groups::PodGroup;
use crate::place::{Placed, State, allowed, put};
use crate::score::unplaced;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{Node, Pod};
use std::collections::BTreeMap;

/// Maximum number of pods times nodes: a few milliseconds.
const MAX_PAIRS: usize = 100_000;

/// Places pods of `placed.left` on allowed nodes, those that are worth most at these prices first. Pods
/// that follow others to their hosts are left, and all pods if there are too many.
pub(crate) fn best_fit<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>, prices: &[f64]) {
    let nodes: Vec<Id<Node>> = context
        .nodes
        .ids()
        .filter(|node| context.nodes[*node].open && !state.room(*node).closed && allowed(context, *node, state.search))
        .collect();
    if unplaced(placed).saturating_mul(nodes.len()) > MAX_PAIRS {
        return;
    }
    let value = |pod_group: &PodGroup<'_>| worth(prices, context.shapes[pod_group.shape].requests);
    placed.left.sort_by(|a, b| value(b).total_cmp(&value(a)).then(a.shape.cmp(&b.shape)));
    for pod_group in &mut placed.left {
        if !pod_group.on_one_node && !context.topology.seeks_host(pod_group.shape) {
            place_group(context, state, pod_group, &nodes, prices, &mut placed.existing);
        }
    }
    placed.left.retain(|pod_group| !pod_group.pods.is_empty());
}

/// Places the pods of one group one after the other, until no node takes another pod.
fn place_group<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_group: &mut PodGroup<'a>,
    nodes: &[Id<Node>],
    prices: &[f64],
    existing: &mut BTreeMap<Id<Node>, Vec<&'a Pod>>,
) {
    let fit = |state: &State, pod_group: &PodGroup<'a>, node: Id<Node>| {
        let room = state.room(node);
        let requests = context.shapes[pod_group.shape].requests;
        (takes(context, node, room, pod_group) > 0).then(|| (similarity(prices, requests, &room.free), node))
    };
    state.work = state.work.saturating_sub(u64::try_from(nodes.len()).unwrap_or(u64::MAX) / 8);
    let mut fits: Vec<(f64, Id<Node>)> = nodes.iter().filter_map(|node| fit(state, pod_group, *node)).collect();
    while !pod_group.pods.is_empty() && state.work > 0 {
        // The first node among equals.
        let best = fits.iter().enumerate().max_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let Some((number, (_, node))) = best else { return };
        let node = *node;
        state.work = state.work.saturating_sub(1);
        put(context, state, node, pod_group.shape, 1);
        existing.entry(node).or_default().extend(pod_group.pods.drain(..1));
        fits.swap_remove(number);
        fits.extend(fit(state, pod_group, node));
    }
}

/// Cosine of the angle between requests and free capacity, with each resource at its price. 0 if either is worth
/// nothing.
#[expect(clippy::cast_precision_loss, reason = "a comparison of similarities needs no exact amounts")]
fn similarity(prices: &[f64], requests: &[i64], free: &[i64]) -> f64 {
    let (mut product, mut of_requests, mut of_free) = (0.0, 0.0, 0.0);
    for (price, (requested, free)) in prices.iter().zip(requests.iter().zip(free)) {
        let (requested, free) = (price * *requested as f64, price * (*free).max(0) as f64);
        product += requested * free;
        of_requests += requested * requested;
        of_free += free * free;
    }
    let lengths = f64::sqrt(of_requests * of_free);
    if lengths > 0.0 { product / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::similarity;

    #[test]
    fn proportion_decides_and_not_size() {
        let prices = [2.0, 1.0];
        let equal = similarity(&prices, &[1, 4], &[10, 40]);
        assert!((equal - 1.0).abs() < 1e-9, "{equal}");
        assert!(similarity(&prices, &[1, 4], &[1, 5]) > similarity(&prices, &[1, 4], &[8, 8]));
        assert!(similarity(&prices, &[1, 4], &[0, 0]).abs() < 1e-9);
        assert!(similarity(&prices, &[1, 0], &[0, 9]).abs() < 1e-9);
    }

    #[test]
    fn resources_without_a_price_do_not_count() {
        let with = similarity(&[2.0, 1.0, 0.0], &[1, 4, 7], &[3, 9, 1]);
        assert!((with - similarity(&[2.0, 1.0], &[1, 4], &[3, 9])).abs() < 1e-9);
    }
}
