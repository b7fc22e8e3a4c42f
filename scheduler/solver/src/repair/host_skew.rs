//! Topology spread over hosts if no further host can be launched.
//!
//! The minimum over hosts is zero as long as a further host could be launched. Limits or pod affinity may prevent this.
//! kube-scheduler counts existing hosts only: once each host has a pod, it binds further pods. The plan is therefore
//! computed again with `maxSkew` raised by the number of pods that every host has.

use super::{Attempt, Best, projection, unplaced_by_shape};
use crate::retries;
use plimsoll_kubesched::spread;
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{PodShape, Snapshot, SnapshotIndex, TopologySpread};
use std::collections::BTreeMap;

/// A spread over hosts, by namespace.
type Spread<'a> = (&'a str, &'a TopologySpread);

/// Accepts a plan with a higher `maxSkew` over hosts if it leaves fewer pods unplaced.
pub(super) fn raise(best: &mut Best<'_>) {
    let snapshot = best.inputs.snapshot;
    for (spread, (owner, waiting)) in blocked_spreads(snapshot, &best.plan).into_iter().take(retries::FEW) {
        let now = projection::project(best.inputs, &best.plan);
        let counts = spread::counts(&now, &SnapshotIndex::new(&now), owner, spread.1);
        // If an existing host has no pods, this host limits the spread, not a host that could be launched.
        let Some(least) = counts.values().min().copied().filter(|least| *least > 0) else { continue };
        let even = (counts.values().sum::<usize>() + waiting).div_ceil(counts.len());
        let skew = usize::try_from(spread.1.max_skew).unwrap_or(1);
        let mut more = even.saturating_sub(skew).max(least);
        // Tries an even distribution first, then the minimum that this plan reaches.
        for _ in 0..retries::PLANS {
            let mut changed_snapshot = best.start();
            changed_snapshot.shapes.iter_mut().for_each(|shape| raise_skew(shape, spread, more));
            let Attempt::Rejected(tried) = best.attempt(changed_snapshot, false) else { break };
            let after = projection::project(best.inputs, &tried);
            let then = spread::counts(&after, &SnapshotIndex::new(&after), owner, spread.1);
            let reached = then.into_values().min().unwrap_or(0);
            if reached == 0 || reached >= more {
                break;
            }
            more = reached;
        }
    }
}

/// Spreads over hosts of unplaced pods, each with a shape that has it and the number of unplaced pods.
fn blocked_spreads<'a>(snapshot: &'a Snapshot, plan: &Plan) -> BTreeMap<Spread<'a>, (&'a PodShape, usize)> {
    let mut spreads = BTreeMap::new();
    let unplaced_by_shape = unplaced_by_shape(snapshot, plan);
    for shape in &snapshot.shapes {
        let Some(count) = unplaced_by_shape.get(&shape.id) else { continue };
        for spread in shape.topology_spread.iter().filter(|one| is_over_hosts(one)) {
            spreads.entry((shape.namespace.as_str(), spread)).or_insert((shape, 0)).1 += count;
        }
    }
    spreads
}

/// Whether the constraint is a required spread over hosts.
pub(super) fn is_over_hosts(spread: &TopologySpread) -> bool {
    spread.required && label::normalized(&spread.topology_key) == label::HOSTNAME && spread.selector.is_some()
}

/// Raises `maxSkew` by `more` in constraints of the shape that count the same pods.
fn raise_skew(shape: &mut PodShape, (namespace, spread): Spread<'_>, more: usize) {
    if shape.namespace != namespace {
        return;
    }
    let like = |one: &&mut TopologySpread| {
        is_over_hosts(one) && one.selector == spread.selector && one.max_skew == spread.max_skew
    };
    for one in shape.topology_spread.iter_mut().filter(like) {
        one.max_skew = one.max_skew.saturating_add(i32::try_from(more).unwrap_or(i32::MAX));
    }
}
