//! Finding places for pods: room that is paid for first, then launches, from pools of the highest weight first.

use crate::draft::{Draft, Spare};
use crate::existing::{Room, takes, takes_some};
use crate::holes::Holes;
use crate::hosts::Tally;
use crate::intern::{add, how_many};
use crate::limits::{self, Headroom};
use crate::lots::Lot;
use crate::market;
use crate::pack::{Item, pack};
use crate::select;
use crate::topology::Counts;
use crate::world::World;
use plimsoll_model::snapshot::{NodeState, Pod};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// What is left of nodes, limits and work as a plan goes on.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Those of the nodes until they change.
    rooms: Vec<Arc<Room>>,
    holes: Holes,
    pub(crate) headroom: Vec<Headroom>,
    pub(crate) work: u64,
    /// By topology groups.
    pub(crate) counts: Counts,
    /// Pods that spreads count are dealt out evenly, too.
    pub(crate) even: bool,
    /// The domain in which pods start where several are as good.
    pub(crate) favoured: Option<String>,
    /// The pool that is asked before all others of its weight, whatever it costs.
    pub(crate) first: Option<usize>,
    /// Rooms as they were before a trial changed them, if one is under way.
    journal: Option<Vec<(usize, Arc<Room>)>>,
}

/// Where pods went.
#[derive(Debug, Default)]
pub(crate) struct Placed<'a> {
    /// By node number.
    pub(crate) existing: BTreeMap<usize, Vec<&'a Pod>>,
    pub(crate) launches: Vec<Draft<'a>>,
    pub(crate) left: Vec<Lot<'a>>,
}

/// Restrictions on nodes that may take pods.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Search {
    /// Only nodes in service.
    pub(crate) in_service: bool,
    /// Only nodes that are themselves past `consolidateAfter`, or that it does not concern.
    pub(crate) settled: bool,
}

impl State {
    pub(crate) fn new(world: &World<'_>, work: u64) -> Self {
        let rooms: Vec<Arc<Room>> = world.nodes.iter().map(|view| Arc::clone(&view.data.room)).collect();
        Self {
            holes: Holes::new(&rooms, world.table.len(), |node| world.nodes[node].open),
            rooms,
            headroom: limits::headroom(world),
            work,
            counts: world.counts().clone(),
            even: false,
            favoured: None,
            first: None,
            journal: None,
        }
    }

    pub(crate) fn room(&self, node: usize) -> &Room {
        &self.rooms[node]
    }

    /// The node takes no pods any more.
    pub(crate) fn close(&mut self, node: usize) {
        self.change(node).closed = true;
        self.holes.note(node, &self.rooms[node]);
    }

    /// The room of a node, to be changed.
    fn change(&mut self, node: usize) -> &mut Room {
        let room = &mut self.rooms[node];
        if let Some(journal) = &mut self.journal {
            journal.push((node, Arc::clone(room)));
        }
        Arc::make_mut(room)
    }

    /// Does what `attempt` does if it gives something; else nothing changes but the work left.
    pub(crate) fn trial<T>(&mut self, attempt: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let (headroom, counts) = (self.headroom.clone(), self.counts.clone());
        let outer = self.journal.replace(Vec::new());
        let result = attempt(self);
        let own = std::mem::replace(&mut self.journal, outer).unwrap_or_default();
        if result.is_some() {
            if let Some(journal) = &mut self.journal {
                journal.extend(own);
            }
            return result;
        }
        for (node, room) in own.into_iter().rev() {
            self.holes.note(node, &room);
            self.rooms[node] = room;
        }
        (self.headroom, self.counts) = (headroom, counts);
        None
    }
}

/// Places as many of `lots` as it can, domains being assigned.
pub(crate) fn place<'a>(world: &World<'a>, state: &mut State, lots: Vec<Lot<'a>>, search: Search) -> Placed<'a> {
    let (lots, too_many) = one_host_each(world, state, lots, search);
    let mut placed = Placed { left: lots, ..Placed::default() };
    on_existing(world, state, &mut placed, search);
    for tier in market::tiers(world) {
        market::buy(world, state, &mut placed, &tier);
    }
    placed.left.extend(too_many);
    placed
}

/// Lots that go as a whole, cut to what one host can take, and what is cut off: pods that could only follow the others find it full.
fn one_host_each<'a>(
    world: &World<'a>,
    state: &State,
    lots: Vec<Lot<'a>>,
    search: Search,
) -> (Vec<Lot<'a>>, Vec<Lot<'a>>) {
    let mut cut = Vec::new();
    let mut kept = lots;
    for lot in kept.iter_mut().filter(|lot| lot.whole) {
        let most = on_one_host(world, state, lot, search);
        if most > 0 && most < lot.pods.len() {
            cut.push(Lot { pods: lot.pods.split_off(most), ..lot.clone() });
        }
    }
    (kept, cut)
}

/// How many pods of the lot one host takes at most, be it there or new.
fn on_one_host(world: &World<'_>, state: &State, lot: &Lot<'_>, search: Search) -> usize {
    let nodes = (0..world.nodes.len()).filter(|node| allowed(world, *node, search));
    let there = nodes.map(|node| takes_some(world, node, state.room(node), lot)).max().unwrap_or(0);
    let shape = &world.shapes[lot.shape];
    let alone = Tally::default().limit(&world.topology.host_rules, shape.hosts, true);
    let alone = if shape.shape.host_ports.is_empty() { alone } else { alone.min(1) };
    let mut new = 0;
    for (number, view) in world.pools.iter().enumerate() {
        for offering in
            world.narrowed(lot.shape, number, lot.only.as_deref()).iter().flat_map(|one| one.offerings.iter())
        {
            let one = &view.offerings[offering];
            if limits::allows(&state.headroom[number], &view.types[one.type_index].capacity) {
                new = new.max(how_many(shape.requests, &one.room, lot.pods.len().min(alone)));
            }
        }
    }
    there.max(new)
}

/// Fills nodes that are there with what is left.
pub(crate) fn on_existing<'a>(world: &World<'a>, state: &mut State, placed: &mut Placed<'a>, search: Search) {
    // Large ones first: small ones find a hole anywhere. Those that follow others to their hosts find them there only afterwards.
    let key = |lot: &Lot<'_>| {
        let follows = !lot.whole && world.topology.seeks_host(lot.shape);
        (follows, std::cmp::Reverse(world.shapes[lot.shape].requests), world.ladders.order(lot.shape))
    };
    placed.left.sort_by(|a, b| key(a).cmp(&key(b)));
    for lot in &mut placed.left {
        let mut from = 0;
        while let Some(node) = state.holes.next(from, world.shapes[lot.shape].requests) {
            if lot.pods.is_empty() || state.work == 0 {
                break;
            }
            from = node + 1;
            if !allowed(world, node, search) {
                continue;
            }
            let n = takes(world, node, state.room(node), lot);
            if n > 0 {
                state.work = state.work.saturating_sub(1);
                put(world, state, node, lot.shape, n);
                placed.existing.entry(node).or_default().extend(lot.pods.drain(..n));
            }
        }
    }
    placed.left.retain(|lot| !lot.pods.is_empty());
}

fn allowed(world: &World<'_>, node: usize, search: Search) -> bool {
    let view = world.nodes[node].node;
    (!search.in_service || view.state == NodeState::Initialized) && (!search.settled || world.nodes[node].settled)
}

/// Notes `n` pods of `shape` on a node.
pub(crate) fn put(world: &World<'_>, state: &mut State, node: usize, shape: usize, n: usize) {
    let pods = &world.shapes[shape];
    let room = state.change(node);
    add(&mut room.free, pods.requests, -i64::try_from(n).unwrap_or(i64::MAX));
    room.ports.extend(pods.shape.host_ports.iter().cloned());
    room.tally.add(pods.hosts, n);
    state.holes.note(node, &state.rooms[node]);
}

/// Launches nodes of one pool for what is left.
pub(crate) fn on_new<'a>(world: &World<'a>, state: &mut State, placed: &mut Placed<'a>, pool: usize) {
    let view = &world.pools[pool];
    let tolerates = |shape: usize| {
        // Taints that are to be avoided are given way on last, once there is nothing else to give up.
        let relaxed = world.ladders.is_bare(shape);
        crate::world::tolerated(&view.pool.taints, &world.shapes[shape].shape.tolerations, relaxed)
    };
    let wanted = placed.left.iter().enumerate().filter(|(_, lot)| tolerates(lot.shape));
    let items: Vec<Item<'_>> = wanted
        .map(|(index, lot)| Item {
            lot: index,
            shape: lot.shape,
            count: lot.pods.len(),
            only: lot.only.as_deref(),
            whole: lot.whole,
        })
        .collect();
    let packing = pack(world, pool, &items, &state.headroom[pool], &mut state.work);
    drop(items);
    let room = &mut state.headroom[pool];
    let limited = room.iter().any(Option::is_some);
    packing.patterns.iter().for_each(|pattern| limits::take(room, &pattern.charge, pattern.copies));
    let mut drawn = vec![Drawn::default(); packing.lots.len()];
    for pattern in &packing.patterns {
        let narrow = limits::within(view, &pattern.accept, &pattern.charge, room, 1, false);
        let Some(offerings) = select::acceptable(view, &narrow) else { continue };
        let spare = limited.then(|| Rc::new(Spare { accept: pattern.accept.clone(), charge: pattern.charge.clone() }));
        for _ in 0..pattern.copies {
            let mut lots: Vec<Lot<'a>> = Vec::new();
            for (item, n) in &pattern.take {
                drawn[*item].draw(&mut placed.left, &packing.lots[*item], *n, &mut lots);
            }
            let (load, custom) = (pattern.load.clone(), pattern.custom.clone());
            let (offerings, spare) = (offerings.clone(), spare.clone());
            placed.launches.push(Draft { pool, lots, load, custom, offerings, spare });
        }
    }
    drawn.iter().zip(&packing.lots).for_each(|(drawn, lots)| drawn.finish(&mut placed.left, lots));
    placed.left.retain(|lot| !lot.pods.is_empty());
}

/// How far the lots of one item were used up: they are cut only once, as a lot may go to thousands of nodes.
#[derive(Debug, Clone, Default)]
struct Drawn {
    /// Lots that are used up.
    lots: usize,
    /// Pods of the next one.
    pods: usize,
}

impl Drawn {
    /// Takes `n` pods more, or what there is.
    fn draw<'a>(&mut self, left: &mut [Lot<'a>], lots: &[usize], mut n: usize, node: &mut Vec<Lot<'a>>) {
        while n > 0 {
            let Some(lot) = lots.get(self.lots).map(|lot| &mut left[*lot]) else { return };
            let taken = n.min(lot.pods.len() - self.pods);
            let pods = lot.pods[self.pods..self.pods + taken].to_vec();
            node.push(Lot { pods, only: lot.only.clone(), ..*lot });
            n -= taken;
            self.pods += taken;
            // What such a node could not hold must not start another.
            lot.whole = false;
            if self.pods == lot.pods.len() {
                (self.lots, self.pods) = (self.lots + 1, 0);
            }
        }
    }

    fn finish(&self, left: &mut [Lot<'_>], lots: &[usize]) {
        lots.iter().take(self.lots).for_each(|lot| left[*lot].pods.clear());
        if let Some(lot) = lots.get(self.lots) {
            left[*lot].pods.drain(..self.pods);
        }
    }
}

/// Lets launches list more than they need, as far as limits leave as much for each. Once all pods were looked at: what a launch lists beyond
/// its need is counted, too, and could have been a node for others.
pub(crate) fn widen(world: &World<'_>, state: &mut State, launches: &mut [Draft<'_>]) {
    let mut remaining = vec![0; world.pools.len()];
    launches.iter().filter(|draft| draft.spare.is_some()).for_each(|draft| remaining[draft.pool] += 1);
    for draft in launches {
        let Some(spare) = draft.spare.take() else { continue };
        let (view, room) = (&world.pools[draft.pool], &mut state.headroom[draft.pool]);
        let wide = limits::within(view, &spare.accept, &spare.charge, room, remaining[draft.pool], true);
        remaining[draft.pool] -= 1;
        if let Some(offerings) = select::acceptable(view, &wide) {
            limits::take_extra(view, &offerings, &spare.charge, room);
            draft.offerings = offerings;
        }
    }
}
