//! NodePools of equal weight compete by price: the price of their offerings decides, not their names. Each pool keeps
//! its own limits, On-Demand ratio and node costs. Pools of a higher weight come first.

use crate::input::context::SolveContext;
use crate::input::intern::{Amounts, how_many};
use crate::input::offerings::{Alternative, PoolView};
use crate::place::limits::{self, Headroom};
use crate::place::pod_groups::PodGroup;
use crate::place::{Placed, State, on_new};
use crate::retries;
use crate::score::{PER_NODE, Score, unplaced};
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{NodePool, PodShape};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pools that are each tried first, since each attempt places or packs all pods. With more pools,
/// only the cheapest is tried first.
const MOST_FIRST: usize = retries::SEVERAL;
/// Number of pods beyond which only the cheapest pool is tried first, since each packing takes about as long as the
/// plan.
const LARGE: usize = 2_000;

pub(crate) type WeightGroup = Vec<Id<NodePool>>;

/// Pools grouped by weight, in order of preference.
pub(crate) fn weight_groups(context: &SolveContext<'_>) -> Vec<WeightGroup> {
    let pools: Vec<(Id<NodePool>, &PoolView<'_>)> = context.pools.iter_enumerated().collect();
    let weight_groups = pools.chunk_by(|(_, one), (_, next)| one.pool.weight == next.pool.weight);
    weight_groups.map(|weight_group| weight_group.iter().map(|(pool, _)| *pool).collect()).collect()
}

/// Pools that can take pods which another pool of the same weight can take, too. Empty if there are too many to try
/// each.
pub(crate) fn competing_pools(
    context: &SolveContext<'_>,
    state: &State,
    pod_groups: &[PodGroup<'_>],
) -> BTreeSet<Id<NodePool>> {
    let weight_groups = weight_groups(context).into_iter().filter(|weight_group| weight_group.len() > 1);
    let competing_pools: BTreeSet<Id<NodePool>> = weight_groups
        .flat_map(|weight_group| competing(&weight_group, &quotes(context, state, pod_groups, &weight_group)))
        .collect();
    if competing_pools.len() > MOST_FIRST { BTreeSet::new() } else { competing_pools }
}

/// Launches nodes for the unplaced pods, from pools of the highest weight first. If pods are left because other pods
/// used up the limits of their pools, pods that fewer pools can take come first. `placed` has no launches yet.
pub(crate) fn buy_by_weight<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>) {
    let weight_groups = weight_groups(context);
    let limited = state.headroom.iter().flatten().any(Option::is_some);
    let start = (limited && context.pools.len() > 1).then(|| (state.headroom.clone(), placed.left.clone()));
    weight_groups.iter().for_each(|weight_group| buy(context, state, placed, weight_group));
    let Some((headroom, pod_groups)) = start else { return };
    if !are_crowded_out(context, state, placed, &headroom) {
        return;
    }
    let usual = std::mem::replace(&mut state.headroom, headroom);
    let scarce_first = buy_scarce_first(context, state, pod_groups, &weight_groups);
    if leaves_fewer(&left_by_priority(context, &scarce_first), &left_by_priority(context, placed)) {
        (placed.launches, placed.left) = (scarce_first.launches, scarce_first.left);
    } else {
        state.headroom = usual;
    }
}

/// Number of pods without a node by priority, highest first.
type LeftByPriority = BTreeMap<Reverse<i32>, usize>;

fn left_by_priority(context: &SolveContext<'_>, placed: &Placed<'_>) -> LeftByPriority {
    let mut left = LeftByPriority::new();
    for pod_group in &placed.left {
        *left.entry(Reverse(context.shapes[pod_group.shape].shape.priority)).or_default() += pod_group.pods.len();
    }
    left
}

/// Whether `left` has fewer pods than `other` of the highest priority at which they differ.
fn leaves_fewer(left: &LeftByPriority, other: &LeftByPriority) -> bool {
    let priorities: BTreeSet<&Reverse<i32>> = left.keys().chain(other.keys()).collect();
    let count = |of: &LeftByPriority, priority: &Reverse<i32>| of.get(priority).copied().unwrap_or(0);
    let mut both = priorities.into_iter().map(|priority| (count(left, priority), count(other, priority)));
    both.find(|(mine, theirs)| mine != theirs).is_some_and(|(mine, theirs)| mine < theirs)
}

/// Whether pods are left because one of their pools used up its limits for pods that a further pool could run. `before`
/// is the headroom before anything was launched.
fn are_crowded_out(
    context: &SolveContext<'_>,
    state: &mut State,
    placed: &Placed<'_>,
    before: &IndexVec<NodePool, Headroom>,
) -> bool {
    if placed.left.is_empty() {
        return false;
    }
    let launched = placed.launches.iter();
    let launched = launched.flat_map(|draft| draft.pod_groups.iter().map(move |one| (draft.pool, one.shape)));
    let launched: BTreeSet<(Id<NodePool>, Id<PodShape>)> = launched.collect();
    let with_pools = |(pool, shape): (Id<NodePool>, Id<PodShape>)| {
        let pools = context.pools.ids().filter(|other| context.can_run(shape, *other, None));
        (pool, pools.collect::<BTreeSet<Id<NodePool>>>())
    };
    // Few sets of pools differ.
    let launched: BTreeSet<(Id<NodePool>, BTreeSet<Id<NodePool>>)> = launched.into_iter().map(with_pools).collect();
    let offerings: usize = context.pools.iter().map(|view| view.offerings.len()).sum();
    for pod_group in &placed.left {
        state.work = state.work.saturating_sub(u64::try_from(offerings).unwrap_or(u64::MAX) / 8);
        if state.work == 0 {
            return false;
        }
        let accepts = |pool: &Id<NodePool>| quote(context, before, pod_group, *pool).is_some();
        let own: BTreeSet<Id<NodePool>> = context.pools.ids().filter(accepts).collect();
        let is_used_up = |pool: Id<NodePool>| quote(context, &state.headroom, pod_group, pool).is_none();
        let crowds_out = |pool: Id<NodePool>, others: &BTreeSet<Id<NodePool>>| {
            own.contains(&pool) && !others.is_subset(&own) && is_used_up(pool)
        };
        if launched.iter().any(|(pool, others)| crowds_out(*pool, others)) {
            return true;
        }
    }
    false
}

/// Launches nodes for pods that fewer pools can take first.
fn buy_scarce_first<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    weight_groups: &[WeightGroup],
) -> Placed<'a> {
    let mut by_pools: BTreeMap<usize, Vec<PodGroup<'a>>> = BTreeMap::new();
    for pod_group in pod_groups {
        let accepts = |pool: &Id<NodePool>| quote(context, &state.headroom, &pod_group, *pool).is_some();
        let pools = context.pools.ids().filter(accepts).count();
        by_pools.entry(pools).or_default().push(pod_group);
    }
    let mut placed = Placed::default();
    for left in by_pools.into_values() {
        let mut part = Placed { left, ..Placed::default() };
        weight_groups.iter().for_each(|weight_group| buy(context, state, &mut part, weight_group));
        placed.add(part);
    }
    placed
}

/// Launches nodes of the pools of one weight for the unplaced pods. Uses the cheapest of several ways to divide the
/// pods among the pools.
fn buy<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>, weight_group: &[Id<NodePool>]) {
    let quotes = if weight_group.len() > 1 { quotes(context, state, &placed.left, weight_group) } else { Vec::new() };
    let competing_pools = competing(weight_group, &quotes);
    if competing_pools.is_empty() {
        // No pod can run in more than one of the pools.
        weight_group.iter().for_each(|pool| on_new(context, state, placed, *pool));
        return;
    }
    let cheapest: Vec<Option<Id<NodePool>>> = quotes.iter().map(|quotes| best(weight_group, quotes)).collect();
    let pods = unplaced(placed);
    // Among equally good ways, the first is used. Pools first: their pods share nodes without further restrictions.
    let mut ways = Vec::new();
    if let Some(preferred) = state.preferred_pool.filter(|pool| weight_group.contains(pool)) {
        ways.push(Way::First(preferred));
    } else {
        if competing_pools.len() <= MOST_FIRST && pods <= LARGE {
            ways.extend(competing_pools.into_iter().map(Way::First));
        } else {
            ways.extend(overall(&competing_pools, weight_group, &quotes).map(Way::First));
        }
        ways.push(Way::ByQuote(&cheapest));
    }
    let mut best: Option<(Score, Trial<'a>)> = None;
    for way in ways {
        let trial = attempt(context, state, &placed.left, weight_group, &way);
        let score = Score::of(context, &trial.1);
        if best.as_ref().is_none_or(|(known, _)| score < *known) {
            best = Some((score, trial));
        }
    }
    if let Some((_, (headroom, found))) = best {
        state.headroom = headroom;
        placed.launches.extend(found.launches);
        placed.left = found.left;
    }
}

/// A way to divide pods among the pools of a weight group.
enum Way<'w> {
    /// Each pod group is placed in the pool that is cheapest for this group alone, by pod group.
    ByQuote(&'w [Option<Id<NodePool>>]),
    /// One pool takes all pods that it can.
    First(Id<NodePool>),
}

/// Result of one way: the headroom that it leaves, and what it places.
type Trial<'a> = (IndexVec<NodePool, Headroom>, Placed<'a>);

fn attempt<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: &[PodGroup<'a>],
    weight_group: &[Id<NodePool>],
    way: &Way<'_>,
) -> Trial<'a> {
    let before = state.headroom.clone();
    let mut placed = Placed::default();
    match way {
        Way::First(pool) => {
            placed.left = pod_groups.to_vec();
            on_new(context, state, &mut placed, *pool);
        }
        Way::ByQuote(cheapest) => {
            for pool in weight_group.iter().copied() {
                let own = pod_groups.iter().zip(*cheapest).filter(|(_, chosen)| **chosen == Some(pool));
                let mut part =
                    Placed { left: own.map(|(pod_group, _)| pod_group.clone()).collect(), ..Placed::default() };
                on_new(context, state, &mut part, pool);
                placed.add(part);
            }
            let nowhere = pod_groups.iter().zip(*cheapest).filter(|(_, chosen)| chosen.is_none());
            placed.left.extend(nowhere.map(|(pod_group, _)| pod_group.clone()));
        }
    }
    // Pods that limits kept out of one pool may fit in another pool.
    weight_group.iter().for_each(|pool| on_new(context, state, &mut placed, *pool));
    (std::mem::replace(&mut state.headroom, before), placed)
}

/// By pod group and pool of the weight group: the minimum price of nodes for the pod group alone, in micro-USD per
/// hour; `None` if it cannot run there.
fn quotes(
    context: &SolveContext<'_>,
    state: &State,
    pod_groups: &[PodGroup<'_>],
    weight_group: &[Id<NodePool>],
) -> Vec<Vec<Option<i64>>> {
    pod_groups
        .iter()
        .map(|pod_group| weight_group.iter().map(|pool| quote(context, &state.headroom, pod_group, *pool)).collect())
        .collect()
}

fn quote(
    context: &SolveContext<'_>,
    headroom: &IndexVec<NodePool, Headroom>,
    pod_group: &PodGroup<'_>,
    pool: Id<NodePool>,
) -> Option<i64> {
    let (requests, count) = (context.shapes[pod_group.shape].requests, pod_group.pods.len());
    // Empty if the pods do not tolerate the pool's taints.
    let narrowed = context.narrowed(pod_group.shape, pool, pod_group.only.as_deref());
    price(&context.pools[pool], &narrowed, (requests, count), &headroom[pool])
}

/// The minimum price of nodes for `count` pods with these requests, in micro-USD per hour. `None` if no offering of
/// `fits` can run them within `room`.
pub(crate) fn price(
    view: &PoolView<'_>,
    fits: &[Alternative],
    (requests, count): (&Amounts, usize),
    room: &[Option<i64>],
) -> Option<i64> {
    let cost = |offering: Id<Offering>| {
        let per_node = how_many(requests, &view.offerings[offering].room, count);
        if per_node == 0 || !limits::allows(room, view.capacity(offering)) {
            return None;
        }
        let nodes = i64::try_from(count.div_ceil(per_node)).unwrap_or(i64::MAX);
        Some(view.price(offering).saturating_add(PER_NODE).saturating_mul(nodes))
    };
    let offerings = || fits.iter().flat_map(|one| one.offerings.iter());
    let has_ordinary = offerings().any(|one| view.is_ordinary(one) && cost(one).is_some());
    offerings().filter(|one| !(has_ordinary && view.is_exotic(*one))).filter_map(cost).min()
}

/// Pools of the weight group that can take a pod group which another pool of the weight group can take, too.
fn competing(weight_group: &[Id<NodePool>], quotes: &[Vec<Option<i64>>]) -> BTreeSet<Id<NodePool>> {
    let several = quotes.iter().filter(|quotes| quotes.iter().flatten().count() > 1);
    several
        .flat_map(|quotes| weight_group.iter().zip(quotes).filter_map(|(pool, quote)| quote.map(|_| *pool)))
        .collect()
}

/// The pool with the lowest quote; the first among equals.
fn best(weight_group: &[Id<NodePool>], quotes: &[Option<i64>]) -> Option<Id<NodePool>> {
    let quoted = weight_group.iter().zip(quotes).filter_map(|(pool, quote)| Some((quote.as_ref()?, *pool)));
    quoted.min().map(|(_, pool)| pool)
}

/// The pool that can take the most pod groups; among several, the cheapest for all these groups together.
fn overall(
    competing_pools: &BTreeSet<Id<NodePool>>,
    weight_group: &[Id<NodePool>],
    quotes: &[Vec<Option<i64>>],
) -> Option<Id<NodePool>> {
    let total = |pool: Id<NodePool>| {
        let own = quotes.iter().filter_map(|quotes| *weight_group.iter().zip(quotes).find(|(one, _)| **one == pool)?.1);
        let (count, sum) = own.fold((0_usize, 0_i64), |(count, sum), quote| (count + 1, sum.saturating_add(quote)));
        (Reverse(count), sum, pool)
    };
    competing_pools.iter().map(|pool| total(*pool)).min().map(|(_, _, pool)| pool)
}

#[cfg(test)]
mod tests {
    use super::{LeftByPriority, leaves_fewer};
    use std::cmp::Reverse;

    #[test]
    fn pods_of_the_highest_priority_decide_which_way_leaves_fewer() {
        let left = |pods: &[(i32, usize)]| -> LeftByPriority {
            pods.iter().map(|(priority, count)| (Reverse(*priority), *count)).collect()
        };
        let usual = left(&[(100, 1), (0, 5)]);
        assert!(!leaves_fewer(&left(&[(100, 5)]), &usual), "fewer in total, but more of priority 100");
        assert!(!leaves_fewer(&left(&[(200, 1)]), &usual));
        assert!(!leaves_fewer(&usual, &usual));
        assert!(leaves_fewer(&left(&[(100, 1), (0, 4)]), &usual));
        assert!(leaves_fewer(&left(&[(0, 9)]), &usual));
    }
}
