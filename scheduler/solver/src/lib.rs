//! From a snapshot to a plan: which nodes to launch for pending pods, what existing ones take, which ones can go.
//!
//! Pure and deterministic: the order of the snapshot's lists does not matter, and no clock, environment or randomness
//! is read. Pods are handled by shape, offerings (type x zone x capacity type) as bit sets per pool.
//!
//! Not done yet: pods that have resource claims are reported as unschedulable; reserved capacity is bought like any
//! other offering.

mod bound;
mod columns;
mod custom;
mod daemon;
mod disruption;
mod draft;
mod duals;
mod existing;
mod facts;
mod favour;
mod fixed;
mod frame;
mod holes;
mod hosts;
mod intern;
mod limits;
mod lots;
mod market;
mod mix;
mod moves;
mod nodes;
mod offerings;
mod pack;
mod place;
mod planner;
mod preferences;
mod priority;
mod reasons;
mod refit;
mod rehearsal;
mod repair;
mod rooms;
mod score;
mod select;
mod share;
mod single;
#[cfg(test)]
mod tests;
mod topology;
mod vanguard;
mod volumes;
mod why;
mod world;

use crate::disruption::Removal;
use crate::draft::Demand;
use crate::lots::Lot;
use crate::place::{Placed, State};
use crate::rooms::Guests;
use crate::score::Score;
use crate::select::Listings;
use crate::world::World;
pub use moves::{Move, UnknownMove};
pub use planner::Planner;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Placement, Plan, PlanOptions, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{Pod, Snapshot, SnapshotIndex};
use plimsoll_model::time::Timestamp;
pub use rehearsal::{Rehearsal, rehearse};
use std::collections::{BTreeMap, BTreeSet};

/// How often all is placed anew for spreads that count pods which they do not bind. One more is enough but where new
/// ones show.
const ROUNDS: usize = 4;
/// Pods from which on no such spread is left to chance: so many pods are in all domains anyway.
const LARGE: usize = 500;

/// Plans for one snapshot. `catalogs` are those that its pools name; a pool whose catalog is missing launches nothing.
#[must_use]
pub fn solve(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, options: &PlanOptions) -> Plan {
    let sorted = snapshot.sorted();
    Planner::new().solve(&sorted, &SnapshotIndex::new(&sorted), catalogs, options)
}

/// The same without some of the repairs, to measure what they are worth.
#[must_use]
pub fn solve_without(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    without: &[Move],
) -> Plan {
    let sorted = snapshot.sorted();
    Planner::without(without).solve(&sorted, &SnapshotIndex::new(&sorted), catalogs, options)
}

/// What no plan for these pods costs less than; nodes of static pools cost what they cost.
fn lower_bound(world: &World<'_>, plan: &Plan, demand: &Demand) -> MicroUsdPerHour {
    let fixed: MicroUsdPerHour = plan.launches.iter().filter(|launch| launch.pods.is_empty()).map(Launch::price).sum();
    let enough = MicroUsdPerHour(plan.hourly.0 - fixed.0);
    [bound::lower_bound(world, demand, enough), fixed].into_iter().sum::<MicroUsdPerHour>().min(plan.hourly)
}

/// How many pods of each shape the launches of a plan are for.
fn demand(world: &World<'_>, plan: &Plan) -> Demand {
    let pods = &world.snapshot.pods;
    let mut demand = Demand::new();
    for pod in plan.launches.iter().flat_map(|launch| &launch.pods) {
        let found = pods.binary_search_by(|one| one.uid.cmp(&pod.uid)).ok().and_then(|at| pods.get(at));
        if let Some(shape) = found.and_then(|pod| world.shape_of(pod)) {
            *demand.entry(shape).or_default() += 1;
        }
    }
    demand
}

/// The plan for the world of one snapshot, which is in canonical order. `early` is told its first launches as soon as
/// they stand, if that is before the others do. Without a lower bound unless it is to be `bounded`.
fn planned(world: &mut World<'_>, options: &PlanOptions, bounded: bool, early: &mut dyn FnMut(&[Launch])) -> Plan {
    let facts = world.snapshot;
    let mut plan = Plan {
        snapshot_sequence: facts.sequence,
        ledger: facts.ledger,
        ignored: facts.ignored.clone(),
        pool_problems: reasons::of_pools(world),
        next_time: facts.unavailable_offerings.iter().map(|one| facts.now.plus(one.remaining)).min(),
        ..Plan::default()
    };
    let expired = if options.disruption { disruption::expired(world) } else { Vec::new() };
    let leaving = expired.iter().flat_map(|one| one.pods.iter().copied()).filter(|pod| lots::can_leave(world, pod));
    let leaving: Vec<&Pod> = leaving.collect();
    let (mut wanted, refused) = wanted(world, &leaving);
    let mut state = State::new(world, options.work_budget);
    expired.iter().for_each(|one| state.close(one.node));
    lots::leave(world, &mut state, &wanted);
    let rooms = rooms::split(&mut wanted);
    // Replacements are told with the removals that they are for.
    let mut with_the_rest = |_: &[Launch]| ();
    let early = if leaving.is_empty() { early } else { &mut with_the_rest };
    let ahead = ahead(world, &mut state, &mut wanted, early);
    let (mut state, mut placed) = place(world, &state, &wanted);
    let guests = rooms::place(world, &mut state, rooms, &mut placed);
    place::widen(world, &mut state, &mut placed.launches);
    plan.unschedulable = dangling(world);
    plan.unschedulable.extend(refused);
    for lot in &placed.left {
        let why = reasons::explain(world, &state, lot.shape);
        plan.unschedulable.extend(lot.pods.iter().map(|pod| no_place(pod, why.clone())));
    }
    plan.unschedulable.sort();
    let mut removal = split(&mut plan, world, placed, ahead, &leaving);
    (removal.removed, removal.guests) = (expired, guests);
    if options.disruption {
        disruption::remove(world, &mut state, &mut plan, &mut removal);
    }
    finish(world, &mut plan, &mut removal, bounded);
    plan
}

/// What was placed before all the rest.
#[derive(Default)]
struct Ahead<'a> {
    launches: Vec<Launch>,
    listings: Listings,
    demand: Demand,
    existing: BTreeMap<usize, Vec<&'a Pod>>,
}

/// Takes from `wanted` what goes ahead, and places it.
fn ahead<'a>(
    world: &World<'a>,
    state: &mut State,
    wanted: &mut Vec<Lot<'a>>,
    early: &mut dyn FnMut(&[Launch]),
) -> Ahead<'a> {
    let lots = vanguard::split(world, wanted);
    if lots.is_empty() {
        return Ahead::default();
    }
    wanted.retain(|lot| !lot.pods.is_empty());
    let work = state.work;
    state.work = vanguard::WORK.min(work);
    let placed = favour::place(world, state, lots);
    state.work = work;
    wanted.extend(placed.left);
    let mut ahead = Ahead { existing: placed.existing, ..Ahead::default() };
    ahead.launches = draft::listed(world, &placed.launches, &mut ahead.listings, &mut ahead.demand);
    ahead.launches.sort_by(in_order);
    early(&ahead.launches);
    ahead
}

/// The order of launches in a plan.
fn in_order(a: &Launch, b: &Launch) -> std::cmp::Ordering {
    (&a.node_pool, a.pods.first()).cmp(&(&b.node_pool, b.pods.first()))
}

/// Places what is wanted on what `start` leaves; anew where a spread may come to find too many pods that it does not
/// bind.
fn place<'a>(world: &mut World<'a>, start: &State, wanted: &[Lot<'a>]) -> (State, Placed<'a>) {
    let mut round = 1;
    let large = wanted.iter().map(|lot| lot.pods.len()).sum::<usize>() >= LARGE;
    if large {
        let mixed = world.topology.mixed();
        world.tighten(mixed);
    }
    loop {
        let (state, placed) = once(world, start, wanted, large);
        let uneven = topology::uneven(world, &start.counts, &placed);
        if uneven.is_empty() || round == ROUNDS {
            return (state, placed);
        }
        world.tighten(uneven);
        round += 1;
    }
}

/// The better of two orders in which pods are dealt to domains, where they differ: fewer pods left, then the cheaper
/// one.
fn once<'a>(world: &mut World<'a>, start: &State, wanted: &[Lot<'a>], even: bool) -> (State, Placed<'a>) {
    let place = |world: &World<'a>| {
        let mut state = start.clone();
        state.even = even;
        let placed = favour::place(world, &mut state, wanted.to_vec());
        (state, placed)
    };
    let first = place(world);
    // In a large plan all orders are about as good, and a second one takes as long as the first.
    if even {
        return first;
    }
    let shapes: Vec<usize> = wanted.iter().map(|lot| lot.shape).collect();
    if !world.topology.could_wait(&shapes) {
        return first;
    }
    world.topology.wait(true);
    let second = place(world);
    world.topology.wait(false);
    if Score::of(world, &second.1) < Score::of(world, &first.1) { second } else { first }
}

/// Lots to place, with the pods of expired nodes, and pods that use something that is not done.
fn wanted<'a>(world: &World<'a>, leaving: &[&'a Pod]) -> (Vec<Lot<'a>>, Vec<Unschedulable>) {
    let mut refused = Vec::new();
    let mut wanted = Vec::new();
    for lot in lots::to_place(world, leaving) {
        match reasons::unsupported(world.shapes[lot.shape].shape) {
            Some(reason) => refused.extend(lot.pods.iter().map(|pod| no_place(pod, vec![reason.clone()]))),
            None => wanted.push(lot),
        }
    }
    (wanted, refused)
}

/// Pods of expired nodes that go to existing ones are moves, all others placements.
fn split<'a>(
    plan: &mut Plan,
    world: &World<'a>,
    mut placed: Placed<'a>,
    ahead: Ahead<'a>,
    leaving: &[&'a Pod],
) -> Removal<'a> {
    let Ahead { launches: early, mut listings, mut demand, existing: first } = ahead;
    for (node, pods) in first {
        placed.existing.entry(node).or_default().extend(pods);
    }
    let moved: BTreeSet<&PodUid> = leaving.iter().map(|pod| &pod.uid).collect();
    let busy = placed.existing.keys().copied().collect();
    let mut existing: BTreeMap<usize, Vec<&'a Pod>> = BTreeMap::new();
    for (node, pods) in placed.existing {
        let (moves, stays): (Vec<&Pod>, Vec<&Pod>) = pods.into_iter().partition(|pod| moved.contains(&pod.uid));
        if !stays.is_empty() {
            let node = world.nodes[node].node.name.clone();
            plan.placements.push(Placement { node, pods: select::pod_refs(&stays) });
        }
        if !moves.is_empty() {
            existing.insert(node, moves);
        }
    }
    plan.placements.sort();
    let launches = draft::listed(world, &placed.launches, &mut listings, &mut demand);
    let guests = Guests::new();
    Removal { removed: Vec::new(), existing, guests, early, launches, listings, demand, busy }
}

/// Pending pods whose shape the snapshot does not have.
fn dangling(world: &World<'_>) -> Vec<Unschedulable> {
    let lost = world.pending().filter(|(pod, shape)| pod.moves() && shape.is_none());
    lost.map(|(pod, _)| {
        let message = format!("its shape {} is not in the snapshot", pod.shape);
        no_place(pod, vec![Reason { node_pool: String::new(), code: ReasonCode::InvalidPod, message }])
    })
    .collect()
}

fn no_place(pod: &Pod, reasons: Vec<Reason>) -> Unschedulable {
    Unschedulable { pod: select::pod_ref(pod), reasons }
}

/// Canonical order and sums; the bound, if `bounded`.
fn finish(world: &World<'_>, plan: &mut Plan, removal: &mut Removal<'_>, bounded: bool) {
    let mut rest = std::mem::take(&mut removal.launches);
    rest.extend(fixed::launches(world));
    rest.sort_by(in_order);
    // What was told first comes first: terminations name launches by their places.
    let mut launches = std::mem::take(&mut removal.early);
    launches.extend(rest);
    plan.terminations = disruption::terminations(world, removal, &launches);
    rooms::settle(world, plan, &removal.guests);
    plan.launches = launches;
    plan.hourly = plan.launches.iter().map(Launch::price).sum();
    if bounded {
        plan.lower_bound = lower_bound(world, plan, &removal.demand);
    }
    plan.next_time = plan.next_time.filter(|at| *at > world.snapshot.now && *at < Timestamp(i64::MAX));
}
