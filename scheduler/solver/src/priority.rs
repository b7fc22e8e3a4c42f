//! Who goes without where there is not room for all: pods of lower priority.
//!
//! All are placed together, since that is cheapest. Only where a pod is left while one of lower priority has a place, priorities are
//! taken one after another, each together with those above it.

use crate::lots::Lot;
use crate::place::{Placed, Search, State};
use crate::preferences;
use crate::world::World;
use plimsoll_model::identity::PodUid;
use std::collections::{BTreeMap, BTreeSet};

/// Priorities that are told apart; those below count as one. Each costs a placing of all above it.
const MAX_TIERS: usize = 16;

/// Placings for parts of priorities that do not go beside those above as they are: shape by shape, each with half as many until it does.
const TRIES: usize = 24;

/// Places as many of `lots` as it can, those of the highest priority first.
pub(crate) fn place<'a>(world: &World<'a>, state: &mut State, lots: Vec<Lot<'a>>) -> Placed<'a> {
    let priority = |lot: &Lot<'_>| world.shapes[lot.shape].shape.priority;
    let tiers: BTreeSet<i32> = lots.iter().map(&priority).collect();
    if tiers.len() < 2 {
        return preferences::place(world, state, lots, Search::default());
    }
    let mut first = None;
    let kept = state.trial(|state| {
        let placed = preferences::place(world, state, lots.clone(), Search::default());
        if is_in_order(world, &lots, &placed.left) {
            return Some(placed);
        }
        first = Some(placed);
        None
    });
    if let Some(placed) = kept {
        return placed;
    }
    let mut chosen: Vec<Lot<'a>> = Vec::new();
    let mut refused: Vec<Lot<'a>> = Vec::new();
    let mut tries = TRIES;
    for tier in by_tier(lots, priority) {
        if let Some(left) = join(world, state, &mut chosen, &tier) {
            refused.extend(left);
            continue;
        }
        for lot in tier {
            let mut count = lot.pods.len();
            while count > 0 {
                count = if tries > 0 { count } else { 0 };
                tries = tries.saturating_sub(1);
                let part = Lot { pods: lot.pods[..count].to_vec(), ..lot.clone() };
                if let Some(left) = join(world, state, &mut chosen, &[part]) {
                    refused.extend(left);
                    break;
                }
                count /= 2;
            }
            if count < lot.pods.len() {
                refused.push(Lot::plain(world.ladders.base(lot.shape), lot.pods[count..].to_vec()));
            }
        }
    }
    let mut placed = preferences::place(world, state, chosen, Search::default());
    placed.left.extend(refused);
    placed
}

/// Adds `lots` to those that are `chosen`, but for pods that have no place beside them, which it gives back. `None` if those that are chosen
/// do not all come out beside these.
fn join<'a>(world: &World<'a>, state: &mut State, chosen: &mut Vec<Lot<'a>>, lots: &[Lot<'a>]) -> Option<Vec<Lot<'a>>> {
    let mut asked: Vec<Lot<'a>> = chosen.iter().chain(lots).filter(|lot| !lot.pods.is_empty()).cloned().collect();
    let mut left = Vec::new();
    state.trial(|state| -> Option<()> {
        left = preferences::place(world, state, asked.clone(), Search::default()).left;
        None
    });
    let above: BTreeSet<&PodUid> = chosen.iter().flat_map(|lot| &lot.pods).map(|pod| &pod.uid).collect();
    let out: BTreeSet<&PodUid> = left.iter().flat_map(|lot| &lot.pods).map(|pod| &pod.uid).collect();
    if !above.is_disjoint(&out) {
        return None;
    }
    asked.iter_mut().for_each(|lot| lot.pods.retain(|pod| !out.contains(&pod.uid)));
    asked.retain(|lot| !lot.pods.is_empty());
    drop(above);
    *chosen = asked;
    Some(left.into_iter().map(|lot| Lot::plain(world.ladders.base(lot.shape), lot.pods)).collect())
}

/// Whether no pod is left above one that has a place.
fn is_in_order(world: &World<'_>, lots: &[Lot<'_>], left: &[Lot<'_>]) -> bool {
    let priority = |shape: usize| world.shapes[shape].shape.priority;
    let Some(highest) = left.iter().map(|lot| priority(lot.shape)).max() else { return true };
    let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
    left.iter().for_each(|lot| *missing.entry(world.ladders.base(lot.shape)).or_default() += lot.pods.len());
    let has_place = |lot: &Lot<'_>| lot.pods.len() > missing.get(&lot.shape).copied().unwrap_or(0);
    !lots.iter().any(|lot| priority(lot.shape) < highest && has_place(lot))
}

/// Lots by priority, the highest first.
fn by_tier<'a>(lots: Vec<Lot<'a>>, priority: impl Fn(&Lot<'_>) -> i32) -> Vec<Vec<Lot<'a>>> {
    let mut tiers: BTreeMap<std::cmp::Reverse<i32>, Vec<Lot<'a>>> = BTreeMap::new();
    for lot in lots {
        tiers.entry(std::cmp::Reverse(priority(&lot))).or_default().push(lot);
    }
    let mut all: Vec<Vec<Lot<'a>>> = tiers.into_values().collect();
    if all.len() > MAX_TIERS {
        let low = all.split_off(MAX_TIERS - 1);
        all.push(low.into_iter().flatten().collect());
    }
    all
}
