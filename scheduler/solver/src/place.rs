//! Finding places for pods: room that is paid for first, then launches, pool by pool.

use crate::existing::{Room, takes};
use crate::intern::add;
use crate::limits::{self, Headroom};
use crate::pack::{Item, pack};
use crate::select;
use crate::world::World;
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::Pod;
use std::collections::BTreeMap;

/// Pods by shape, each list in a fixed order.
pub(crate) type Groups<'a> = BTreeMap<usize, Vec<&'a Pod>>;

/// What is left of nodes, limits and work as a plan goes on.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) rooms: Vec<Room>,
    pub(crate) headroom: Vec<Headroom>,
    pub(crate) work: u64,
}

/// Where pods went.
#[derive(Debug, Default)]
pub(crate) struct Placed<'a> {
    /// By node number.
    pub(crate) existing: BTreeMap<usize, Vec<&'a Pod>>,
    pub(crate) launches: Vec<Launch>,
    pub(crate) left: Groups<'a>,
}

/// Restrictions on one search.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Search {
    /// Only offerings below this price may be launched.
    pub(crate) below: Option<i64>,
    /// Only nodes in service may take pods.
    pub(crate) in_service: bool,
}

impl State {
    pub(crate) fn new(world: &World<'_>, work: u64) -> Self {
        let room = |view: &crate::existing::NodeView<'_>| Room {
            free: view.free.clone(),
            ports: view.ports.clone(),
            closed: false,
        };
        Self { rooms: world.nodes.iter().map(room).collect(), headroom: limits::headroom(world), work }
    }
}

/// Places as many of `groups` as it can. PreferNoSchedule taints are avoided first and given way on for what is left then.
pub(crate) fn place<'a>(world: &World<'a>, state: &mut State, groups: Groups<'a>, search: Search) -> Placed<'a> {
    let mut placed = Placed { left: groups, ..Placed::default() };
    for relaxed in [false, true] {
        on_existing(world, state, &mut placed, relaxed, search);
        for pool in 0..world.pools.len() {
            on_new(world, state, &mut placed, pool, relaxed, search);
        }
    }
    placed
}

fn on_existing<'a>(world: &World<'a>, state: &mut State, placed: &mut Placed<'a>, relaxed: bool, search: Search) {
    let mut order: Vec<usize> = placed.left.keys().copied().collect();
    // Large ones first: small ones find a hole anywhere.
    order.sort_by(|a, b| world.shapes[*b].requests.cmp(&world.shapes[*a].requests).then(a.cmp(b)));
    for shape in order {
        let Some(mut pods) = placed.left.remove(&shape) else { continue };
        for node in 0..world.nodes.len() {
            if pods.is_empty() || state.work == 0 {
                break;
            }
            state.work = state.work.saturating_sub(1);
            if search.in_service && world.nodes[node].node.state != plimsoll_model::snapshot::NodeState::Initialized {
                continue;
            }
            let n = takes(world, node, &state.rooms[node], shape, pods.len(), relaxed);
            if n > 0 {
                let room = &mut state.rooms[node];
                add(&mut room.free, &world.shapes[shape].requests, -i64::try_from(n).unwrap_or(i64::MAX));
                room.ports.extend(world.shapes[shape].shape.host_ports.iter().cloned());
                placed.existing.entry(node).or_default().extend(pods.drain(..n));
            }
        }
        if !pods.is_empty() {
            placed.left.insert(shape, pods);
        }
    }
}

fn on_new<'a>(
    world: &World<'a>,
    state: &mut State,
    placed: &mut Placed<'a>,
    pool: usize,
    relaxed: bool,
    search: Search,
) {
    let view = &world.pools[pool];
    let tolerates =
        |shape: usize| crate::world::tolerated(&view.pool.taints, &world.shapes[shape].shape.tolerations, relaxed);
    let items: Vec<Item> = placed
        .left
        .iter()
        .filter(|(shape, _)| tolerates(**shape))
        .map(|(shape, pods)| Item { shape: *shape, count: pods.len() })
        .collect();
    let packing = pack(world, pool, &items, &state.headroom[pool], &mut state.work, search.below);
    let room = &mut state.headroom[pool];
    for pattern in &packing.patterns {
        let own = &view.types[view.offerings[pattern.offering].type_index].capacity;
        let copies = i64::try_from(pattern.copies).unwrap_or(i64::MAX);
        for (left, amount) in room.iter_mut().zip(own) {
            *left = left.map(|left| left.saturating_sub(amount.saturating_mul(copies)));
        }
    }
    let mut remaining: i64 = packing.patterns.iter().map(|one| i64::try_from(one.copies).unwrap_or(i64::MAX)).sum();
    for pattern in &packing.patterns {
        let own = view.offerings[pattern.offering].type_index;
        for _ in 0..pattern.copies {
            let narrowed = limits::narrow(view, &pattern.accept, own, room, remaining);
            remaining -= 1;
            // A minimum of distinct values may need types that the share of one launch does not allow.
            let Some(offerings) = select::acceptable(view, &narrowed) else { continue };
            let mut pods: Vec<&'a Pod> = Vec::new();
            for (shape, n) in &pattern.take {
                if let Some(left) = placed.left.get_mut(shape) {
                    pods.extend(left.drain(..(*n).min(left.len())));
                }
            }
            limits::charge(view, &offerings, own, room);
            placed.launches.push(select::launch(world, pool, pattern, &offerings, &pods));
        }
    }
    placed.left.retain(|_, pods| !pods.is_empty());
}
