//! Fills existing nodes so that little of any resource is left: for each node the pods whose requests are worth most
//! together at given prices of resources.

use crate::bound::resource_prices::worth;
use crate::input::context::SolveContext;
use crate::input::existing_nodes::{takes, takes_some};
use crate::place::columns::knapsack::{Knapsack, Offered};
use crate::place::pod_groups::{PodGroup, PodGroupId};
use crate::place::{Placed, State, allowed, put};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::Node;

/// Maximum number of pod kinds that are considered for one node: those with the largest and with the smallest requests.
/// More kinds hardly fill a node better, and the search takes longer.
const KINDS: usize = 48;
/// Maximum search steps for one node.
const STEPS: usize = 64;
/// Relative gain that the search ignores.
const SLACK: f64 = 1e-3;

/// Pod groups that remain to be placed.
type Left<'a> = IndexVec<PodGroup<'static>, PodGroup<'a>>;

/// Places pods of `placed.left` on allowed nodes. Pods that follow others to their hosts are left.
pub(crate) fn fill<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>, prices: &[f64]) {
    let mut left: Left<'a> = std::mem::take(&mut placed.left).into();
    let value = |pod_group: &PodGroup<'_>| worth(prices, context.shapes[pod_group.shape].requests);
    let mut groups: Vec<(f64, PodGroupId)> = left
        .iter_enumerated()
        .filter(|(_, pod_group)| !pod_group.on_one_node && !context.topology.seeks_host(pod_group.shape))
        .map(|(id, pod_group)| (value(pod_group), id))
        .filter(|(value, _)| *value > 0.0)
        .collect();
    groups.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for node in context.nodes.ids() {
        if state.work == 0 {
            break;
        }
        if !allowed(context, node, state.search) || state.room(node).closed || !context.nodes[node].open {
            continue;
        }
        groups.retain(|(_, group)| !left[*group].pods.is_empty());
        let take = filling(context, state, &left, node, &groups, prices);
        for (group, most) in take {
            let pod_group = &mut left[group];
            let n = takes(context, node, state.room(node), pod_group).min(most);
            if n > 0 {
                put(context, state, node, pod_group.shape, n);
                placed.existing.entry(node).or_default().extend(pod_group.pods.drain(..n));
            }
        }
    }
    placed.left = left.into_iter().collect();
    placed.left.retain(|pod_group| !pod_group.pods.is_empty());
}

/// The groups that fill the node best, with numbers of pods.
fn filling(
    context: &SolveContext<'_>,
    state: &mut State,
    left: &Left<'_>,
    node: Id<Node>,
    groups: &[(f64, PodGroupId)],
    prices: &[f64],
) -> Vec<(PodGroupId, usize)> {
    let mut offered: Vec<Offered<'_, PodGroup<'static>>> = Vec::new();
    let (large, small) = (groups.iter(), groups.iter().rev());
    let mut looked = 0_u64;
    for (half, order) in [(KINDS / 2, large.collect::<Vec<_>>()), (KINDS, small.collect())] {
        for (value, group) in order {
            if offered.len() >= half {
                break;
            }
            looked += 1;
            let pod_group = &left[*group];
            let most = takes_some(context, node, state.room(node), pod_group);
            if most > 0 && !offered.iter().any(|one| one.0 == *group) {
                offered.push((*group, *value, context.shapes[pod_group.shape].requests, most));
            }
        }
    }
    if offered.is_empty() {
        state.work = state.work.saturating_sub(looked / 8);
        return Vec::new();
    }
    let found = Knapsack::new(&offered, &state.room(node).free, prices).search(STEPS, SLACK);
    let kinds = u64::try_from(offered.len()).unwrap_or(u64::MAX);
    state.work = state.work.saturating_sub(looked / 8 + kinds * u64::try_from(found.steps).unwrap_or(u64::MAX));
    found.take
}
