//! Two launches as one; the pods of some launches on others; all of them anew, the largest pods first.

use super::bins::{Bin, Part};
use super::desk::{Desk, give};
use crate::limits;
use crate::score::PER_NODE;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Launches that are looked at, those that hold least for their price: the others have little to give, and each is compared with each.
const CLOSEST: usize = 40;
/// How many launches are emptied at once, in turn.
const SIZES: [usize; 4] = [1, 2, 3, 5];

/// Whether anything became cheaper.
pub(super) fn improve(desk: &mut Desk<'_, '_>, small: bool) -> bool {
    let mut changed = false;
    if small {
        let all: Vec<usize> = (0..desk.bins.len()).collect();
        changed |= empty(desk, &all);
    }
    loop {
        let mut better = join_all(desk);
        for size in SIZES {
            let mut start = 0;
            loop {
                let order = wasteful(desk);
                if desk.looks == 0 || start >= order.len() || (start > 0 && start + size > order.len()) {
                    break;
                }
                let set: Vec<usize> = order.iter().copied().skip(start).take(size).collect();
                better |= empty(desk, &set);
                start += size.div_ceil(2);
            }
        }
        changed |= better;
        if !better || desk.looks == 0 {
            return changed;
        }
    }
}

/// Launches that hold least for their price, the worst first.
fn wasteful(desk: &Desk<'_, '_>) -> Vec<usize> {
    let waste = |bin: &Bin<'_>| {
        let worth: i64 = bin
            .parts
            .iter()
            .map(|part| desk.share[part.kind].saturating_mul(i64::try_from(part.pods.len()).unwrap_or(0)))
            .sum();
        bin.price(desk.world).saturating_sub(worth)
    };
    let there = desk.bins.iter().enumerate().filter_map(|(index, bin)| Some((Reverse(waste(bin.as_ref()?)), index)));
    let mut order: Vec<(Reverse<i64>, usize)> = there.collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).take(CLOSEST).collect()
}

/// Makes one launch of two as long as that is cheaper.
fn join_all(desk: &mut Desk<'_, '_>) -> bool {
    let mut any = false;
    let order = wasteful(desk);
    for (place, one) in order.iter().enumerate() {
        for other in &order[place + 1..] {
            if desk.looks == 0 {
                return any;
            }
            any |= join(desk, *one, *other) || join(desk, *other, *one);
        }
    }
    any
}

/// Puts all pods of `other` on `one`, if that is cheaper.
fn join(desk: &mut Desk<'_, '_>, one: usize, other: usize) -> bool {
    let world = desk.world;
    let (Some(to), Some(from)) = (&desk.bins[one], &desk.bins[other]) else { return false };
    if !from.parts.iter().all(|part| to.welcome(world, &desk.kinds[part.kind], part.pods.len()) == part.pods.len()) {
        return false;
    }
    desk.looks = desk.looks.saturating_sub(2);
    let mut room = desk.headroom[to.pool].clone();
    give(&mut room, &to.charge);
    if to.pool == from.pool {
        give(&mut room, &from.charge);
    }
    let before = to.price(world) + from.price(world) + PER_NODE;
    let (mut both, parts) = (to.clone(), from.parts.clone());
    for part in parts {
        if both.extend(world, &desk.kinds, part).is_none() {
            return false;
        }
    }
    if both.settle(world, &room).is_none() || both.price(world) >= before {
        return false;
    }
    let mut log = desk.log();
    desk.remove(one, &mut log);
    desk.remove(other, &mut log);
    desk.put(Some(one), both, &mut log);
    let due = desk.changed(&log).all(|bin| is_due(desk, bin));
    if !due {
        desk.rollback(log);
    }
    due
}

/// Takes launches away and puts their pods elsewhere, if that is cheaper.
fn empty(desk: &mut Desk<'_, '_>, set: &[usize]) -> bool {
    if set.is_empty() || desk.looks == 0 {
        return false;
    }
    let mut log = desk.log();
    let mut parts: BTreeMap<usize, Part<'_>> = BTreeMap::new();
    for index in set {
        for part in desk.remove(*index, &mut log) {
            let known = parts.entry(part.kind).or_insert_with(|| Part { kind: part.kind, pods: Vec::new() });
            known.pods.extend(part.pods);
        }
    }
    let mut order: Vec<Part<'_>> = parts.into_values().collect();
    let key = |part: &Part<'_>| {
        let kind = &desk.kinds[part.kind];
        let pools = kind.fits.iter().filter(|fits| !fits.is_empty()).count();
        (kind.follows(), pools, Reverse(desk.world.shapes[kind.shape].requests.clone()), part.kind)
    };
    order.sort_by_cached_key(key);
    let targets: Vec<usize> = wasteful(desk);
    for part in order {
        if log.cost >= 0 || desk.looks == 0 || !desk.insert(part, &targets, &mut log) {
            desk.rollback(log);
            return false;
        }
    }
    let cheaper = log.cost < 0 && desk.changed(&log).all(|bin| is_due(desk, bin));
    if !cheaper {
        desk.rollback(log);
    }
    cheaper
}

/// Whether a launch of that pool is called for: one of its pods at least can go to no pool that comes before it, within what limits leave.
fn is_due(desk: &Desk<'_, '_>, bin: &Bin<'_>) -> bool {
    let world = desk.world;
    let weight = world.pools[bin.pool].pool.weight;
    let before = world.pools.iter().take_while(|pool| pool.pool.weight > weight).count();
    let takes = |pool: usize, kind: usize| {
        let view = &world.pools[pool];
        let mut offerings = desk.kinds[kind].fits[pool].iter().flat_map(|one| one.offerings.iter());
        offerings.any(|one| limits::allows(&desk.headroom[pool], &view.types[view.offerings[one].type_index].capacity))
    };
    bin.draft.is_some() || bin.parts.iter().any(|part| !(0..before).any(|pool| takes(pool, part.kind)))
}
