//! Pods are dealt out to domains, the emptiest first; then each domain's share is placed like any other lot.

use super::cells::Cell;
use super::{Cells, Kind};
use crate::lots::Lot;
use crate::place::{self, Placed, Search, State};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How many pods of a shape a cell turned out to have room for.
pub(crate) type Caps = BTreeMap<(usize, BTreeMap<String, String>), usize>;

/// How often pods are dealt out anew after a domain turned out to be too small. Each time at least one share shrinks.
const ATTEMPTS: usize = 8;

/// Places as many of `lots` as it can, within what topology allows.
pub(crate) fn place<'a>(world: &World<'a>, state: &mut State, lots: Vec<Lot<'a>>, search: Search) -> Placed<'a> {
    if !lots.iter().any(|lot| world.topology.concerns(lot.shape)) {
        return place::place(world, state, lots, search);
    }
    let mut caps = Caps::new();
    let (mut lots, mut refused) = (lots, Vec::new());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut short: BTreeSet<usize> = BTreeSet::new();
        let placed = state.trial(|state| {
            let (ready, waiting) = assign_within(world, state, lots.clone(), &caps);
            let dealt = shares(&ready);
            let mut placed = place::place(world, state, ready, search);
            for (key, left) in shares(&placed.left) {
                let fitting = dealt.get(&key).copied().unwrap_or(0) - left;
                if fitting > 0 && world.topology.lenient[key.0] {
                    let count = i64::try_from(left).unwrap_or(i64::MAX);
                    state.counts.add(world, key.0, -count, |label| key.1.get(label).map(String::as_str));
                    continue;
                }
                short.insert(key.0);
                caps.insert(key, fitting);
            }
            placed.left.extend(waiting);
            short.is_empty().then_some(placed)
        });
        if let Some(mut placed) = placed {
            placed.left.extend(refused);
            return placed;
        }
        if attempt >= ATTEMPTS {
            // Shapes that still do not come out are given up, so that the others keep to their rules: one at least goes each time.
            let (given_up, rest) = lots.into_iter().partition(|lot| short.contains(&lot.shape));
            refused.extend::<Vec<Lot<'a>>>(given_up);
            lots = rest;
        }
    }
}

fn shares(lots: &[Lot<'_>]) -> Caps {
    let mut shares = Caps::new();
    for lot in lots {
        if let Some(only) = &lot.only {
            *shares.entry((lot.shape, only.values())).or_default() += lot.pods.len();
        }
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
    // Those that others wait for first; those that nothing binds, then those that only others look at, then those with the least choice, so
    // that whoever must follow finds them there; large ones before small ones.
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
            return (ready, waiting);
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
    let most: Vec<usize> = cells.all.iter().map(cap).collect();
    let membership = &world.topology.shapes[shape];
    let owned: Vec<usize> = relevant.iter().copied().filter(|group| membership.owns.contains(group)).collect();
    // Pods that a spread binds but does not count fill no domain: they are wherever there is room, or all in the zone that is favoured.
    let spread = || owned.iter().filter(|group| matches!(world.topology.groups[**group].kind, Kind::Spread { .. }));
    // In a large plan those that others count fill domains evenly from the start, or else those others find no domain that does for all.
    let counting: Vec<usize> = relevant.iter().copied().filter(|group| membership.matches.contains(group)).collect();
    let counted = spread().next().is_none() || spread().any(|group| membership.matches.contains(group));
    // Those that start on one host are in one cell.
    let mut started = None;
    for _ in 0..lot.pods.len() {
        let asked: Vec<Asked> = relevant.iter().map(|group| Asked::new(world, state, shape, *group)).collect();
        let fits = |index: usize, even: bool| {
            dealt[index] < most[index]
                && started.is_none_or(|one| one == index)
                && asked.iter().all(|one| one.permits(world, state, &cells.all[index], even))
        };
        let rank = |index: &usize| {
            let cell = &cells.all[*index];
            let crowded =
                if state.even { counting.iter().map(|group| crowd(world, state, *group, cell)).sum() } else { 0_i64 };
            let crowd: i64 = if counted {
                owned.iter().map(|group| crowd(world, state, *group, cell)).sum()
            } else if state.favoured.is_some() {
                0
            } else {
                i64::try_from(dealt[*index]).unwrap_or(i64::MAX)
            };
            let favoured = state.favoured.as_ref().is_some_and(|zone| cell.values.values().any(|value| value == zone));
            (crowded, crowd, !favoured, cell.price.unwrap_or(i64::MAX), *index)
        };
        let pick = |even: bool| (0..cells.all.len()).filter(|index| fits(*index, even)).min_by_key(rank);
        let best = if state.even { pick(true).or_else(|| pick(false)) } else { pick(false) };
        let Some(best) = best else { break };
        dealt[best] += 1;
        started = started.or_else(|| lot.whole.then_some(best));
        let values = &cells.all[best].values;
        state.counts.add(world, shape, 1, |key| values.get(key).map(String::as_str));
    }
    for (index, count) in dealt.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        let pods = lot.pods.drain(..count).collect();
        *used.entry((shape, cells.all[index].values.clone())).or_default() += count;
        ready.push(Lot { shape, pods, only: Some(Rc::clone(&cells.all[index].only)), whole: lot.whole });
    }
    (!lot.pods.is_empty()).then_some(lot)
}

/// How full the cell's domain is, for a group that spreads.
fn crowd(world: &World<'_>, state: &State, group: usize, cell: &Cell) -> i64 {
    let one = &world.topology.groups[group];
    match (&one.kind, cell.values.get(&one.key)) {
        (Kind::Spread { .. }, Some(domain)) => state.counts.members(group, domain),
        _ => 0,
    }
}

/// What one group asks of one more pod of a shape.
pub(super) struct Asked {
    group: usize,
    owner: bool,
    itself: bool,
    /// For a spread: its domains, and the least of their counts.
    least: i64,
    cells: Rc<Cells>,
}

impl Asked {
    pub(super) fn new(world: &World<'_>, state: &State, shape: usize, group: usize) -> Self {
        let membership = &world.topology.shapes[shape];
        let cells = world.cells(shape);
        let least = match (&world.topology.groups[group].kind, cells.eligible.get(&group)) {
            (Kind::Spread { min_domains, .. }, Some(eligible)) if eligible.len() >= *min_domains => {
                eligible.iter().map(|domain| state.counts.members(group, domain)).min().unwrap_or(0)
            }
            _ => 0,
        };
        let (owner, itself) = (membership.owns.contains(&group), membership.matches.contains(&group));
        Self { group, owner, itself, least, cells }
    }

    /// Whether the group lets the pod be in the cell; with `even`, as if pods that the group binds were in each of its domains.
    pub(super) fn permits(&self, world: &World<'_>, state: &State, cell: &Cell, even: bool) -> bool {
        let group = &world.topology.groups[self.group];
        // Where there is no such label, nobody shares a domain.
        let Some(domain) = cell.values.get(&group.key) else {
            return !self.owner || matches!(group.kind, Kind::Apart { .. });
        };
        let members = state.counts.members(self.group, domain);
        match group.kind {
            // Only those that are bound must find few; others must not come to be too many for them.
            Kind::Spread { skew, .. } if !self.owner => {
                (!even && state.counts.owners(self.group, domain) == 0) || members + 1 - self.least <= skew
            }
            Kind::Spread { skew, .. } => {
                let eligible = self.cells.eligible.get(&self.group).is_some_and(|all| all.contains(domain));
                eligible && members + i64::from(self.itself) - self.least <= skew
            }
            Kind::Apart { mutual } => {
                let owners = || state.counts.owners(self.group, domain);
                (!self.owner || members == 0) && (!mutual || !self.itself || owners() == 0)
            }
            Kind::Together => !self.owner || members > 0 || (self.itself && !state.counts.any_member(self.group)),
        }
    }
}
