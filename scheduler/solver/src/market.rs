//! NodePools of equal weight are one market: what their offerings cost decides, not their names. Each pool keeps its
//! own limits, On-Demand share and node costs.

use crate::intern::how_many;
use crate::limits::{self, Headroom};
use crate::lots::{self, Lot};
use crate::place::{Placed, State, on_new};
use crate::score::{PER_NODE, Score};
use crate::world::World;
use std::collections::BTreeSet;
use std::ops::Range;

/// Pools that are each asked first, at most: so often the pods are placed, or packed. Beyond it only the cheapest of
/// them is.
const MOST_FIRST: usize = 8;
/// Pods beyond which only the cheapest pool is asked first, since each packing takes about as long as the plan.
const LARGE: usize = 2_000;

/// Pools of one weight each, in order of preference.
pub(crate) fn tiers(world: &World<'_>) -> Vec<Range<usize>> {
    let weight = |pool: usize| world.pools[pool].pool.weight;
    let mut tiers: Vec<Range<usize>> = Vec::new();
    for pool in 0..world.pools.len() {
        match tiers.last_mut() {
            Some(tier) if weight(tier.start) == weight(pool) => tier.end = pool + 1,
            _ => tiers.push(pool..pool + 1),
        }
    }
    tiers
}

/// Pools that can take pods which another pool of the same weight can take, too; none where there are too many to try
/// each.
pub(crate) fn rivals(world: &World<'_>, state: &State, lots: &[Lot<'_>]) -> BTreeSet<usize> {
    let tiers = tiers(world).into_iter().filter(|tier| tier.len() > 1);
    let rivals: BTreeSet<usize> = tiers.flat_map(|tier| contested(&tier, &quotes(world, state, lots, &tier))).collect();
    if rivals.len() > MOST_FIRST { BTreeSet::new() } else { rivals }
}

/// Launches nodes of the pools of one weight for what is left: the cheapest of a few ways to divide the pods among
/// them.
pub(crate) fn buy<'a>(world: &World<'a>, state: &mut State, placed: &mut Placed<'a>, tier: &Range<usize>) {
    let quotes = if tier.len() > 1 { quotes(world, state, &placed.left, tier) } else { Vec::new() };
    let rivals = contested(tier, &quotes);
    if rivals.is_empty() {
        // Each pod can go to one of the pools at most.
        tier.clone().for_each(|pool| on_new(world, state, placed, pool));
        return;
    }
    let cheapest: Vec<Option<usize>> = quotes.iter().map(|quotes| best(tier, quotes)).collect();
    let pods: usize = placed.left.iter().map(|lot| lot.pods.len()).sum();
    let mut ways = Vec::new();
    let social = lots::look_at_each_other(world, &placed.left);
    if let Some(first) = state.first.filter(|first| tier.contains(first)) {
        ways.push(Way::First(first));
    } else {
        if social {
            // The other ways are compared with this one.
            ways.push(Way::First(tier.start));
        }
        ways.push(Way::ByQuote(&cheapest));
        if rivals.len() <= MOST_FIRST && pods <= LARGE {
            ways.extend(rivals.into_iter().filter(|pool| !social || *pool != tier.start).map(Way::First));
        } else {
            ways.extend(overall(&rivals, tier, &quotes).map(Way::First));
        }
    }
    let limited = tier.clone().any(|pool| state.headroom[pool].iter().any(Option::is_some));
    if limited {
        ways.push(Way::ScarceFirst(&quotes));
    }
    let mut best: Option<(Score, Trial<'a>)> = None;
    for way in ways {
        // Of use only where limits keep pods out.
        if matches!(way, Way::ScarceFirst(_)) && best.as_ref().is_none_or(|(known, _)| known.unplaced == 0) {
            continue;
        }
        let trial = attempt(world, state, &placed.left, tier, &way);
        let score = Score::of(world, &trial.placed);
        if best.as_ref().is_none_or(|(known, _)| if social { is_worth_it(score, *known) } else { score < *known }) {
            best = Some((score, trial));
        }
    }
    if let Some((_, trial)) = best {
        state.headroom = trial.headroom;
        placed.launches.extend(trial.placed.launches);
        placed.left = trial.placed.left;
    }
}

/// Whether one way is much better than another one: more pods, or a tenth cheaper. Where pods depend on each other,
/// kube-scheduler is more likely to bind a plan of the first pool, so that is not given up for less.
fn is_worth_it(other: Score, known: Score) -> bool {
    other.unplaced < known.unplaced
        || (other.unplaced == known.unplaced && other.cost.saturating_mul(10) < known.cost.saturating_mul(9))
}

/// How pods are divided among the pools of a tier.
enum Way<'w> {
    /// Each lot goes to the pool that is the cheapest for it alone, by lot.
    ByQuote(&'w [Option<usize>]),
    /// One pool takes all that it can.
    First(usize),
    /// Pods that fewer pools can take come first, and pools without limits before others. By lot and pool: the quotes.
    ScarceFirst(&'w [Vec<Option<i64>>]),
}

/// One way tried out.
struct Trial<'a> {
    headroom: Vec<Headroom>,
    placed: Placed<'a>,
}

fn attempt<'a>(
    world: &World<'a>,
    state: &mut State,
    lots: &[Lot<'a>],
    tier: &Range<usize>,
    way: &Way<'_>,
) -> Trial<'a> {
    let before = state.headroom.clone();
    let mut placed = Placed::default();
    match way {
        Way::First(pool) => {
            placed.left = lots.to_vec();
            on_new(world, state, &mut placed, *pool);
        }
        Way::ByQuote(cheapest) => {
            for pool in tier.clone() {
                let own = lots.iter().zip(*cheapest).filter(|(_, chosen)| **chosen == Some(pool));
                let mut part = Placed { left: own.map(|(lot, _)| lot.clone()).collect(), ..Placed::default() };
                if part.left.is_empty() {
                    continue;
                }
                on_new(world, state, &mut part, pool);
                placed.launches.extend(part.launches);
                placed.left.extend(part.left);
            }
            let nowhere = lots.iter().zip(*cheapest).filter(|(_, chosen)| chosen.is_none());
            placed.left.extend(nowhere.map(|(lot, _)| lot.clone()));
        }
        Way::ScarceFirst(quotes) => {
            let pools = |quotes: &[Option<i64>]| quotes.iter().flatten().count();
            let is_limited = |pool: usize| before[pool].iter().any(Option::is_some);
            let mut order: Vec<usize> = tier.clone().collect();
            order.sort_by_key(|pool| is_limited(*pool));
            for scarce in 0..=tier.len() {
                let own = lots.iter().zip(*quotes).filter(|(_, quotes)| pools(quotes) == scarce);
                let mut part = Placed { left: own.map(|(lot, _)| lot.clone()).collect(), ..Placed::default() };
                order.iter().for_each(|pool| on_new(world, state, &mut part, *pool));
                placed.launches.extend(part.launches);
                placed.left.extend(part.left);
            }
        }
    }
    // What limits kept out of its pool may find a place in another one.
    for pool in tier.clone() {
        if placed.left.is_empty() {
            break;
        }
        on_new(world, state, &mut placed, pool);
    }
    Trial { headroom: std::mem::replace(&mut state.headroom, before), placed }
}

/// By lot and pool of the tier: what nodes for the lot alone cost there at least, in micro-USD per hour; `None` where
/// it cannot run.
fn quotes(world: &World<'_>, state: &State, lots: &[Lot<'_>], tier: &Range<usize>) -> Vec<Vec<Option<i64>>> {
    lots.iter().map(|lot| tier.clone().map(|pool| quote(world, state, lot, pool)).collect()).collect()
}

fn quote(world: &World<'_>, state: &State, lot: &Lot<'_>, pool: usize) -> Option<i64> {
    let (shape, view, count) = (&world.shapes[lot.shape], &world.pools[pool], lot.pods.len());
    // Nothing if the pods do not tolerate the pool's taints.
    let narrowed = world.narrowed(lot.shape, pool, lot.only.as_deref());
    let cost = |offering: usize| {
        let one = &view.offerings[offering];
        let per_node = how_many(shape.requests, &one.room, count);
        if per_node == 0 || !limits::allows(&state.headroom[pool], &view.types[one.type_index].capacity) {
            return None;
        }
        let nodes = i64::try_from(count.div_ceil(per_node)).unwrap_or(i64::MAX);
        Some(view.price(offering).saturating_add(PER_NODE).saturating_mul(nodes))
    };
    narrowed.iter().flat_map(|one| one.offerings.iter()).filter_map(cost).min()
}

/// Pools of the tier that can take a lot which another of them can take, too.
fn contested(tier: &Range<usize>, quotes: &[Vec<Option<i64>>]) -> BTreeSet<usize> {
    let contested = quotes.iter().filter(|quotes| quotes.iter().flatten().count() > 1);
    contested.flat_map(|quotes| tier.clone().zip(quotes).filter_map(|(pool, quote)| quote.map(|_| pool))).collect()
}

/// The pool with the lowest quote; of several the first.
fn best(tier: &Range<usize>, quotes: &[Option<i64>]) -> Option<usize> {
    let quoted = tier.clone().zip(quotes).filter_map(|(pool, quote)| Some((quote.as_ref()?, pool)));
    quoted.min().map(|(_, pool)| pool)
}

/// The pool that takes the most lots, and among those the one that is the cheapest for all of them together.
fn overall(rivals: &BTreeSet<usize>, tier: &Range<usize>, quotes: &[Vec<Option<i64>>]) -> Option<usize> {
    let total = |pool: usize| {
        let own = quotes.iter().filter_map(|quotes| *quotes.get(pool - tier.start)?);
        let (count, sum) = own.fold((0_usize, 0_i64), |(count, sum), quote| (count + 1, sum.saturating_add(quote)));
        (std::cmp::Reverse(count), sum, pool)
    };
    rivals.iter().map(|pool| total(*pool)).min().map(|(_, _, pool)| pool)
}
