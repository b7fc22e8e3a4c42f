//! Multi-start: places the same pods in several ways and keeps the best. If topology leaves open in which zone pods
//! start, each zone is preferred once, since only pods of the same zone can share nodes. Each of several pools of equal
//! weight is tried first once.

use crate::input::context::SolveContext;
use crate::place::local_search;
use crate::place::market;
use crate::place::pod_groups::{self, PodGroup};
use crate::place::priority;
use crate::place::{Placed, State};
use crate::retries;
use crate::score::Score;
use plimsoll_model::names::label;
use std::collections::BTreeSet;

/// Number of pods and nodes up to which several starts are tried. With more pods, the zones fill up anyway.
const PODS: usize = 200;
/// Maximum product of pods, pools and zones for which all pairs of pool and zone are tried; takes some milliseconds.
const PODS_IN_PAIRS: usize = 2_000;

/// Places as many of `pod_groups` as possible, at the lowest cost.
pub(crate) fn place<'a>(context: &SolveContext<'a>, state: &mut State, pod_groups: Vec<PodGroup<'a>>) -> Placed<'a> {
    let pods = pod_groups::count(&pod_groups);
    if pods > PODS || context.nodes.len() > PODS {
        return attempt(context, state, pod_groups);
    }
    let strictest = |pod_group: &PodGroup<'_>| context.relaxation.strictest(pod_group.shape);
    let open = pod_groups.iter().any(|pod_group| context.topology.concerns(strictest(pod_group)));
    let zones = if open { zones(context) } else { Vec::new() };
    let competing_pools = market::competing_pools(context, state, &pod_groups);
    let start = state.clone();
    let mut best = attempt(context, state, pod_groups.clone());
    // Pairs ensure that several pools never cost more than the best single pool.
    let every_pair = pods * (competing_pools.len() + 1) * (zones.len() + 1) <= PODS_IN_PAIRS;
    for pool in std::iter::once(None).chain(competing_pools.into_iter().map(Some)) {
        for zone in std::iter::once(None).chain(zones.iter().map(Some)) {
            let both = pool.is_some() && zone.is_some();
            if (pool.is_none() && zone.is_none()) || (both && !every_pair) {
                continue;
            }
            let mut other = State { preferred_pool: pool, preferred_zone: zone.cloned(), ..start.clone() };
            let placed = attempt(context, &mut other, pod_groups.clone());
            if Score::of(context, &placed) < Score::of(context, &best) {
                (best, *state) = (placed, other);
            }
        }
    }
    (state.preferred_zone, state.preferred_pool) = (None, None);
    best
}

fn attempt<'a>(context: &SolveContext<'a>, state: &mut State, pod_groups: Vec<PodGroup<'a>>) -> Placed<'a> {
    let mut placed = priority::place(context, state, pod_groups);
    local_search::improve(context, state, &mut placed);
    placed
}

/// Zones with usable offerings; empty if there is only one, and no node is in another zone.
fn zones(context: &SolveContext<'_>) -> Vec<String> {
    let mut zones: BTreeSet<&str> = BTreeSet::new();
    for view in &context.pools {
        zones.extend(view.usable.iter().filter_map(|offering| view.label(offering, label::ZONE)));
    }
    let nodes = context.column(label::ZONE);
    if zones.len() < 2 && nodes.values().iter().all(|zone| zones.contains(zone.as_str())) {
        return Vec::new();
    }
    zones.into_iter().take(retries::FEW).map(str::to_owned).collect()
}
