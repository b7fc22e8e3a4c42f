//! Pods are dealt out to domains, the emptiest first; then each domain's share is placed like any other lot.

use super::Dealing;
use super::asked::Asked;
use super::cells::Cell;
use crate::lots::{Lot, Only};
use crate::place::{self, Placed, Search, State};
use crate::score::unplaced;
use crate::world::World;
use plimsoll_model::snapshot::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How many pods of a shape a cell turned out to have room for.
pub(crate) type Caps = BTreeMap<(usize, BTreeMap<String, String>), usize>;

/// How often pods are assigned anew after a domain turned out to be too small. Each time at least one share shrinks.
const ATTEMPTS: usize = 8;

/// How often pods are assigned anew to share a limit: about so many are needed to halve their number until they fit,
/// then to add single pods.
const SHARING_ATTEMPTS: usize = 24;
/// Plans for more pods are assigned anew as often as without limits: each attempt takes as long as the plan.
const SHARING_PODS: usize = 500;

/// Places as many of `lots` as it can, within what topology allows.
pub(crate) fn place<'a>(world: &World<'a>, state: &mut State, lots: Vec<Lot<'a>>, search: Search) -> Placed<'a> {
    if !lots.iter().any(|lot| world.topology.concerns(lot.shape)) {
        return place::place(world, state, lots, search);
    }
    let limited = state.headroom.iter().flatten().any(Option::is_some);
    if !limited {
        return place_capped(world, state, lots, search);
    }
    let before = state.clone();
    let capped = place_capped(world, state, lots.clone(), search);
    if unplaced(&capped) == 0 {
        return capped;
    }
    // A domain may be short only because another one has used up the limit that they share.
    let mut shared = before;
    shared.work = state.work;
    match place_sharing(world, &mut shared, &lots, search) {
        Some(placed) if unplaced(&placed) < unplaced(&capped) => {
            *state = shared;
            placed
        }
        _ => capped,
    }
}

/// Assigns pods to domains, with fewer for those that turn out to be too small.
fn place_capped<'a>(world: &World<'a>, state: &mut State, lots: Vec<Lot<'a>>, search: Search) -> Placed<'a> {
    let mut bounds = Bounds::default();
    let (mut lots, mut refused) = (lots, Vec::new());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut short = Vec::new();
        let placed = state.trial(|state| {
            let attempt = place_once(world, state, lots.clone(), &bounds, search);
            short = attempt.short;
            short.is_empty().then_some(attempt.placed)
        });
        if let Some(mut placed) = placed {
            placed.left.extend(refused);
            return placed;
        }
        bounds.caps.extend(short.iter().map(|short| (short.cell.clone(), short.fitting)));
        if attempt >= ATTEMPTS {
            // Shapes that still do not come out are given up, so that the others keep to their rules: one at least goes
            // each time.
            let (given_up, rest) =
                lots.into_iter().partition(|lot| short.iter().any(|short| short.cell.0 == lot.shape));
            refused.extend::<Vec<Lot<'a>>>(given_up);
            lots = rest;
        }
    }
}

/// Assigns fewer pods of each shape that does not fit, evenly over its domains, until all fit; then single pods more as
/// long as a domain has room for them. `None` if that comes to nothing in time.
fn place_sharing<'a>(world: &World<'a>, state: &mut State, lots: &[Lot<'a>], search: Search) -> Option<Placed<'a>> {
    let mut bounds = Bounds::default();
    let mut best: Option<(usize, State, Placed<'a>)> = None;
    let mut assigned = Caps::new();
    let pods: usize = lots.iter().map(|lot| lot.pods.len()).sum();
    let attempts = if pods > SHARING_PODS { ATTEMPTS } else { SHARING_ATTEMPTS };
    // Shapes of which fewer pods are assigned than there are.
    let mut reduced: BTreeSet<usize> = BTreeSet::new();
    let mut grown = None;
    for _ in 0..attempts {
        let mut tried = state.clone();
        let Attempt { placed, short, assigned: tried_with } =
            place_once(world, &mut tried, lots.to_vec(), &bounds, search);
        state.work = tried.work;
        if !short.is_empty() {
            if best.is_some() {
                // The domain that was to take one more has no room for it, or takes it from another one.
                for (cell, pods) in tried_with {
                    let known = assigned.get(&cell).copied().unwrap_or(0);
                    if pods > known {
                        bounds.caps.insert(cell, known);
                    }
                }
            } else {
                reduced.extend(short.iter().map(|one| one.cell.0));
                bounds.totals.extend(short.iter().map(|one| (one.cell.0, one.fitting_in_all)));
            }
            continue;
        }
        let left = unplaced(&placed);
        if best.as_ref().is_none_or(|(known, ..)| left < *known) {
            (best, assigned) = (Some((left, tried, placed)), tried_with);
        } else if let Some(shape) = grown {
            // None of its domains has room for one more.
            reduced.remove(&shape);
        }
        let waits = |shape: &&usize| best.iter().any(|(_, _, known)| known.left.iter().any(|lot| lot.shape == **shape));
        grown = reduced.iter().find(waits).copied();
        let Some(shape) = grown else { break };
        *bounds.totals.entry(shape).or_default() += 1;
    }
    let (_, mut after, placed) = best?;
    after.work = state.work;
    *state = after;
    Some(placed)
}

/// What is known of how many pods domains and limits have room for.
#[derive(Default)]
struct Bounds {
    caps: Caps,
    /// Pods of a shape that are assigned at most, over all domains.
    totals: BTreeMap<usize, usize>,
}

/// A cell that has room for fewer pods than it was assigned.
struct Short {
    /// See [`Caps`].
    cell: (usize, BTreeMap<String, String>),
    fitting: usize,
    /// How many of the shape fit in all cells.
    fitting_in_all: usize,
}

/// What came of one assignment.
struct Attempt<'a> {
    /// Holds only if no cell is short.
    placed: Placed<'a>,
    short: Vec<Short>,
    /// Pods by cell.
    assigned: Caps,
}

/// Assigns pods to domains within `bounds` and places them there.
fn place_once<'a>(
    world: &World<'a>,
    state: &mut State,
    mut lots: Vec<Lot<'a>>,
    bounds: &Bounds,
    search: Search,
) -> Attempt<'a> {
    let beyond = split_off(&mut lots, &bounds.totals);
    let (ready, waiting) = assign_within(world, state, lots, &bounds.caps);
    let all: Vec<Share> = ready.iter().filter_map(Share::of).collect();
    let mut placed = place::place(world, state, ready, search);
    let short_of = shares(placed.left.iter().filter_map(Share::of));
    let assigned = shares(all.into_iter());
    let in_all = |shares: &Caps, shape: usize| -> usize {
        shares.iter().filter(|(cell, _)| cell.0 == shape).map(|(_, pods)| pods).sum()
    };
    let mut short = Vec::new();
    for (cell, left) in &short_of {
        let fitting = assigned.get(cell).copied().unwrap_or(0) - left;
        if fitting > 0 && world.topology.lenient[cell.0] {
            let count = i64::try_from(*left).unwrap_or(i64::MAX);
            state.counts.add(world, cell.0, -count, |label| cell.1.get(label).map(String::as_str));
            continue;
        }
        let fitting_in_all = in_all(&assigned, cell.0) - in_all(&short_of, cell.0);
        short.push(Short { cell: cell.clone(), fitting, fitting_in_all });
    }
    placed.left.extend(waiting);
    placed.left.extend(beyond);
    Attempt { placed, short, assigned }
}

/// Takes the last pods of shapes of which there are more than `totals` allow, and returns these.
fn split_off<'a>(lots: &mut Vec<Lot<'a>>, totals: &BTreeMap<usize, usize>) -> Vec<Lot<'a>> {
    let mut left = totals.clone();
    let mut beyond = Vec::new();
    for lot in lots.iter_mut() {
        let Some(left) = left.get_mut(&lot.shape) else { continue };
        let kept = lot.pods.len().min(*left);
        *left -= kept;
        let rest = lot.pods.split_off(kept);
        if !rest.is_empty() {
            beyond.push(Lot { pods: rest, only: lot.only.clone(), ..*lot });
        }
    }
    lots.retain(|lot| !lot.pods.is_empty());
    beyond
}

/// Pods of a shape in a cell.
struct Share {
    shape: usize,
    only: Rc<Only>,
    pods: usize,
}

impl Share {
    fn of(lot: &Lot<'_>) -> Option<Self> {
        let only = Rc::clone(lot.only.as_ref()?);
        Some(Self { shape: lot.shape, only, pods: lot.pods.len() })
    }
}

fn shares(all: impl Iterator<Item = Share>) -> Caps {
    let mut shares = Caps::new();
    for share in all {
        *shares.entry((share.shape, share.only.values())).or_default() += share.pods;
    }
    shares
}

/// Lots with their domains, and those that have none.
pub(crate) fn assign<'a>(world: &World<'a>, state: &mut State, lots: Vec<Lot<'a>>) -> (Vec<Lot<'a>>, Vec<Lot<'a>>) {
    if lots.iter().any(|lot| world.topology.concerns(lot.shape)) {
        assign_within(world, state, lots, &Caps::new())
    } else {
        (lots, Vec::new())
    }
}

/// The same, with no share above its cap.
fn assign_within<'a>(
    world: &World<'a>,
    state: &mut State,
    lots: Vec<Lot<'a>>,
    caps: &Caps,
) -> (Vec<Lot<'a>>, Vec<Lot<'a>>) {
    let mut ready = Vec::new();
    let mut waiting = lots;
    // Those that others wait for first; those that nothing binds, then those that only others look at, then those with
    // the least choice, so that whoever must follow finds them there; large ones before small ones.
    waiting.sort_by_cached_key(|lot| {
        let topology = &world.topology;
        let bound = match (topology.relevant(lot.shape).is_empty(), topology.shapes[lot.shape].owns.is_empty()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        let requests = std::cmp::Reverse(world.shapes[lot.shape].requests.clone());
        // What pods only prefer they can give up.
        let choice = world.cells(world.ladders.base(lot.shape)).all.len();
        (topology.joins(lot.shape).count(), bound, choice, requests, world.ladders.order(lot.shape))
    });
    let mut last = Vec::new();
    if world.topology.waits {
        let shapes: Vec<usize> = waiting.iter().map(|lot| lot.shape).collect();
        (last, waiting) = waiting.into_iter().partition(|lot| world.topology.counts_any(lot.shape, &shapes));
    }
    let mut used = Caps::new();
    loop {
        let before: usize = waiting.iter().map(|lot| lot.pods.len()).sum();
        let mut rest = Vec::new();
        for lot in std::mem::take(&mut waiting) {
            let left = deal(world, state, lot, caps, &mut used, &mut ready);
            rest.extend(left);
        }
        waiting = rest;
        let after: usize = waiting.iter().map(|lot| lot.pods.len()).sum();
        if after == 0 || after == before {
            if last.is_empty() {
                return (ready, waiting);
            }
            waiting.append(&mut last);
        }
    }
}

/// Deals out one lot; what is left of it. `used` is what cells with a cap have been given.
fn deal<'a>(
    world: &World<'a>,
    state: &mut State,
    mut lot: Lot<'a>,
    caps: &Caps,
    used: &mut Caps,
    ready: &mut Vec<Lot<'a>>,
) -> Option<Lot<'a>> {
    let shape = lot.shape;
    lot.whole = false;
    let membership = &world.topology.hosts[shape];
    let (there, nowhere): (Vec<usize>, Vec<usize>) =
        world.topology.joins(shape).partition(|group| state.counts.hosts[*group] > 0);
    let own = |group: &usize| membership.matches.contains(group);
    // They wait for others; or they would start a group of their own where they do not follow the one that there is.
    if !nowhere.iter().all(own) || (!nowhere.is_empty() && there.iter().any(own)) {
        return Some(lot);
    }
    // Nobody is there: they start on one host together.
    lot.whole = !nowhere.is_empty();
    let cells = world.cells(shape);
    let relevant = world.topology.relevant(shape);
    if relevant.is_empty() {
        let count = i64::try_from(lot.pods.len()).unwrap_or(i64::MAX);
        // They go wherever there is room; where they ask for one domain it is known.
        let selector = &world.shapes[shape].shape.node_selector;
        state.counts.add(world, shape, count, |key| crate::facts::lookup(selector, key));
        ready.push(lot);
        return None;
    }
    let mut dealt: Vec<usize> = vec![0; cells.all.len()];
    let cap = |cell: &Cell| {
        let key = (shape, cell.values.clone());
        let cap = caps.get(&key).copied().unwrap_or(usize::MAX);
        cap.saturating_sub(used.get(&key).copied().unwrap_or(0))
    };
    let most: Vec<usize> = cells.all.iter().map(|cell| if caps.is_empty() { usize::MAX } else { cap(cell) }).collect();
    let mut asked: Vec<Asked<'_>> =
        relevant.iter().map(|group| Asked::new(world, state, shape, *group, &cells)).collect();
    // Pods that a spread binds but does not count fill no domain: they are wherever there is room, or all in the zone
    // that is favoured.
    let spread = || asked.iter().filter(|one| one.owner && one.spreads());
    let counted = spread().next().is_none() || spread().any(|one| one.itself);
    let level = world.topology.dealing == Dealing::Level && spread().filter(|one| one.itself).count() > 1;
    // Those that start on one host are in one cell.
    let mut started = None;
    let favours = |cell: &Cell| state.favoured.as_ref().is_some_and(|zone| cell.values.values().any(|one| one == zone));
    let favoured: Vec<bool> = cells.all.iter().map(favours).collect();
    let mut picked = Vec::with_capacity(lot.pods.len());
    for _ in 0..lot.pods.len() {
        let fits = |index: usize, even: bool| {
            dealt[index] < most[index]
                && started.is_none_or(|one| one == index)
                && asked.iter().all(|one| one.permits(index, even))
        };
        let rank = |index: &usize| {
            let among = |some: fn(&Asked<'_>) -> bool| -> i64 {
                asked.iter().filter(|one| some(one)).map(|one| one.crowd(*index)).sum()
            };
            // In a large plan those that others count fill domains evenly from the start, or else those others find no
            // domain that does for all.
            let crowded = if state.even { among(|one| one.itself) } else { 0 };
            let crowd = if counted {
                among(|one| one.owner)
            } else if state.favoured.is_some() {
                0
            } else {
                i64::try_from(dealt[*index]).unwrap_or(i64::MAX)
            };
            let level = if level { dealt[*index] } else { 0 };
            (crowded, crowd, level, !favoured[*index], cells.all[*index].price.unwrap_or(i64::MAX), *index)
        };
        let pick = |even: bool| (0..cells.all.len()).filter(|index| fits(*index, even)).min_by_key(rank);
        let best = if state.even { pick(true).or_else(|| pick(false)) } else { pick(false) };
        let Some(best) = best else { break };
        dealt[best] += 1;
        picked.push(best);
        started = started.or_else(|| lot.whole.then_some(best));
        asked.iter_mut().for_each(|one| one.add(best));
    }
    // In turn: kube-scheduler takes them one after another, and each spread is to hold after every one of them.
    let mut shares: Vec<Vec<&Pod>> = dealt.iter().map(|count| Vec::with_capacity(*count)).collect();
    for (pod, index) in lot.pods.drain(..picked.len()).zip(picked) {
        shares[index].push(pod);
    }
    for (index, pods) in shares.into_iter().enumerate().filter(|(_, pods)| !pods.is_empty()) {
        let (count, values) = (pods.len(), &cells.all[index].values);
        state
            .counts
            .add(world, shape, i64::try_from(count).unwrap_or(i64::MAX), |key| values.get(key).map(String::as_str));
        if !caps.is_empty() {
            *used.entry((shape, values.clone())).or_default() += count;
        }
        ready.push(Lot { shape, pods, only: Some(Rc::clone(&cells.all[index].only)), whole: lot.whole });
    }
    (!lot.pods.is_empty()).then_some(lot)
}
