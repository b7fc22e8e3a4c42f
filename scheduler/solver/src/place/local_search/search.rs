//! Empties launches by moving their pods to other launches, largest pods first.

use super::bins::{Bin, BinId, BinKind, Part};
use super::workspace::Workspace;
use crate::input::offerings::PoolView;
use crate::place::limits;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::NodePool;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of launches that are considered: those with the least worth of pods for their price. The others waste
/// little.
const CLOSEST: usize = 40;
/// Numbers of launches that are emptied together.
const SIZES: [usize; 4] = [1, 2, 3, 5];

/// Searches for improvements. Returns whether the launches became cheaper.
pub(super) fn improve(workspace: &mut Workspace<'_, '_>) -> bool {
    let mut changed = false;
    loop {
        let mut better = false;
        for size in SIZES {
            let mut start = 0;
            loop {
                let order = wasteful(workspace);
                if workspace.price_lookups == 0 || start >= order.len() || (start > 0 && start + size > order.len()) {
                    break;
                }
                let set: Vec<BinId> = order.iter().copied().skip(start).take(size).collect();
                better |= empty(workspace, &set);
                start += size.div_ceil(2);
            }
        }
        changed |= better;
        if !better || workspace.price_lookups == 0 {
            return changed;
        }
    }
}

/// Launches with the least worth of pods for their price, worst first.
fn wasteful(workspace: &Workspace<'_, '_>) -> Vec<BinId> {
    let waste = |bin: &Bin<'_>| {
        let worth: i64 = bin
            .parts
            .iter()
            .map(|part| workspace.share[part.kind].saturating_mul(i64::try_from(part.pods.len()).unwrap_or(0)))
            .sum();
        bin.price(workspace.context).saturating_sub(worth)
    };
    let there = workspace.bins.iter_enumerated().filter_map(|(id, bin)| Some((Reverse(waste(bin.as_ref()?)), id)));
    let mut order: Vec<(Reverse<i64>, BinId)> = there.collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).take(CLOSEST).collect()
}

/// Removes launches and places their pods elsewhere, if this is cheaper.
fn empty(workspace: &mut Workspace<'_, '_>, set: &[BinId]) -> bool {
    if set.is_empty() || workspace.price_lookups == 0 {
        return false;
    }
    let mut log = workspace.log();
    let mut parts: BTreeMap<Id<BinKind>, Part<'_>> = BTreeMap::new();
    for index in set {
        for part in workspace.remove(*index, &mut log) {
            let known = parts.entry(part.kind).or_insert_with(|| Part { kind: part.kind, pods: Vec::new() });
            known.pods.extend(part.pods);
        }
    }
    let mut order: Vec<Part<'_>> = parts.into_values().collect();
    let key = |part: &Part<'_>| {
        let kind = &workspace.kinds[part.kind];
        let pools = kind.fits.iter().filter(|fits| !fits.is_empty()).count();
        (kind.follows(), pools, Reverse(workspace.context.shapes[kind.shape].requests.clone()), part.kind)
    };
    order.sort_by_cached_key(key);
    let targets = wasteful(workspace);
    for part in order {
        if log.cost >= 0 || workspace.price_lookups == 0 || !workspace.insert(part, &targets, &mut log) {
            workspace.rollback(log);
            return false;
        }
    }
    let cheaper = log.cost < 0 && workspace.changed(&log).all(|bin| is_due(workspace, bin));
    if !cheaper {
        workspace.rollback(log);
    }
    cheaper
}

/// Whether a launch of the pool is needed: no pool of a higher weight can run one of its pods within its limits. Also
/// true for unchanged launches.
fn is_due(workspace: &Workspace<'_, '_>, bin: &Bin<'_>) -> bool {
    let context = workspace.context;
    let weight = context.pools[bin.pool].pool.weight;
    let before = || context.pools.iter_enumerated().take_while(|(_, view)| view.pool.weight > weight);
    let takes = |(pool, view): (Id<NodePool>, &PoolView<'_>), kind: Id<BinKind>| {
        let kind = &workspace.kinds[kind];
        let mut offerings = kind.offerings(pool).filter(|one| kind.may_use(context, pool, *one));
        offerings.any(|one| limits::allows(&workspace.headroom[pool], view.capacity(one)))
    };
    bin.draft.is_some() || bin.parts.iter().any(|part| !before().any(|pool| takes(pool, part.kind)))
}
