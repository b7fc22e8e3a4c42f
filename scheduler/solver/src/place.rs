//! Finding places for pods: room that is paid for first, then launches, from pools of the highest weight first.

pub(crate) mod buffer_pods;
pub(crate) mod columns;
pub(crate) mod draft;
pub(crate) mod early_batch;
pub(crate) mod free_capacity;
pub(crate) mod hostname_topology;
pub(crate) mod launch;
pub(crate) mod limits;
pub(crate) mod local_search;
pub(crate) mod market;
pub(crate) mod multi_start;
pub(crate) mod pack;
pub(crate) mod pod_groups;
pub(crate) mod priority;
pub(crate) mod relaxation;
pub(crate) mod static_pools;
pub(crate) mod topology;

use crate::input::context::SolveContext;
use crate::input::existing_nodes::{Room, takes, takes_some};
use crate::input::intern::{add, how_many};
use crate::place::draft::{Draft, Spare};
use crate::place::free_capacity::FreeCapacityIndex;
use crate::place::hostname_topology::Tally;
use crate::place::limits::Headroom;
use crate::place::pack::{Item, pack};
use crate::place::pod_groups::PodGroup;
use crate::place::topology::Counts;
use plimsoll_model::snapshot::{NodeState, Pod};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// What is left of nodes, limits and work as a plan goes on.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Those of the nodes until they change.
    rooms: Vec<Arc<Room>>,
    free_capacity: FreeCapacityIndex,
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
    pub(crate) left: Vec<PodGroup<'a>>,
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
    pub(crate) fn new(context: &SolveContext<'_>, work: u64) -> Self {
        let rooms: Vec<Arc<Room>> = context.nodes.iter().map(|view| Arc::clone(&view.data.room)).collect();
        Self {
            free_capacity: FreeCapacityIndex::new(&rooms, context.table.len(), |node| context.nodes[node].open),
            rooms,
            headroom: limits::headroom(context),
            work,
            counts: context.counts().clone(),
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
        self.free_capacity.note(node, &self.rooms[node]);
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
            self.free_capacity.note(node, &room);
            self.rooms[node] = room;
        }
        (self.headroom, self.counts) = (headroom, counts);
        None
    }
}

/// Places as many of `pod_groups` as it can, domains being assigned.
pub(crate) fn place<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    search: Search,
) -> Placed<'a> {
    let (pod_groups, too_many) = one_host_each(context, state, pod_groups, search);
    let mut placed = Placed { left: pod_groups, ..Placed::default() };
    on_existing(context, state, &mut placed, search);
    for tier in market::tiers(context) {
        market::buy(context, state, &mut placed, &tier);
    }
    placed.left.extend(too_many);
    placed
}

/// Pod groups that go as a whole, cut to what one host can take, and what is cut off: pods that could only follow the others find it full.
fn one_host_each<'a>(
    context: &SolveContext<'a>,
    state: &State,
    pod_groups: Vec<PodGroup<'a>>,
    search: Search,
) -> (Vec<PodGroup<'a>>, Vec<PodGroup<'a>>) {
    let mut cut = Vec::new();
    let mut kept = pod_groups;
    for pod_group in kept.iter_mut().filter(|pod_group| pod_group.whole) {
        let most = on_one_host(context, state, pod_group, search);
        if most > 0 && most < pod_group.pods.len() {
            cut.push(PodGroup { pods: pod_group.pods.split_off(most), ..pod_group.clone() });
        }
    }
    (kept, cut)
}

/// How many pods of the pod group one host takes at most, be it there or new.
fn on_one_host(context: &SolveContext<'_>, state: &State, pod_group: &PodGroup<'_>, search: Search) -> usize {
    let nodes = (0..context.nodes.len()).filter(|node| allowed(context, *node, search));
    let there = nodes.map(|node| takes_some(context, node, state.room(node), pod_group)).max().unwrap_or(0);
    let shape = &context.shapes[pod_group.shape];
    let alone = Tally::default().limit(&context.topology.host_rules, shape.hosts, true);
    let alone = if shape.shape.host_ports.is_empty() { alone } else { alone.min(1) };
    let mut new = 0;
    for (number, view) in context.pools.iter().enumerate() {
        for offering in context
            .narrowed(pod_group.shape, number, pod_group.only.as_deref())
            .iter()
            .flat_map(|one| one.offerings.iter())
        {
            let one = &view.offerings[offering];
            if limits::allows(&state.headroom[number], &view.types[one.type_index].capacity) {
                new = new.max(how_many(shape.requests, &one.room, pod_group.pods.len().min(alone)));
            }
        }
    }
    there.max(new)
}

/// Fills nodes that are there with what is left.
pub(crate) fn on_existing<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>, search: Search) {
    // Large ones first: small ones find a hole anywhere. Those that follow others to their hosts find them there only afterwards.
    let key = |pod_group: &PodGroup<'_>| {
        let follows = !pod_group.whole && context.topology.seeks_host(pod_group.shape);
        (
            follows,
            std::cmp::Reverse(context.shapes[pod_group.shape].requests),
            context.relaxation.order(pod_group.shape),
        )
    };
    placed.left.sort_by(|a, b| key(a).cmp(&key(b)));
    for pod_group in &mut placed.left {
        let mut from = 0;
        while let Some(node) = state.free_capacity.next(from, context.shapes[pod_group.shape].requests) {
            if pod_group.pods.is_empty() || state.work == 0 {
                break;
            }
            from = node + 1;
            if !allowed(context, node, search) {
                continue;
            }
            let n = takes(context, node, state.room(node), pod_group);
            if n > 0 {
                state.work = state.work.saturating_sub(1);
                put(context, state, node, pod_group.shape, n);
                placed.existing.entry(node).or_default().extend(pod_group.pods.drain(..n));
            }
        }
    }
    placed.left.retain(|pod_group| !pod_group.pods.is_empty());
}

fn allowed(context: &SolveContext<'_>, node: usize, search: Search) -> bool {
    let view = context.nodes[node].node;
    (!search.in_service || view.state == NodeState::Initialized) && (!search.settled || context.nodes[node].settled)
}

/// Notes `n` pods of `shape` on a node.
pub(crate) fn put(context: &SolveContext<'_>, state: &mut State, node: usize, shape: usize, n: usize) {
    let pods = &context.shapes[shape];
    let room = state.change(node);
    add(&mut room.free, pods.requests, -i64::try_from(n).unwrap_or(i64::MAX));
    room.ports.extend(pods.shape.host_ports.iter().cloned());
    room.tally.add(pods.hosts, n);
    state.free_capacity.note(node, &state.rooms[node]);
}

/// Launches nodes of one pool for what is left.
pub(crate) fn on_new<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>, pool: usize) {
    let view = &context.pools[pool];
    let tolerates = |shape: usize| {
        // Taints that are to be avoided are given way on last, once there is nothing else to give up.
        let relaxed = context.relaxation.is_required_only(shape);
        crate::input::context::tolerated(&view.pool.taints, &context.shapes[shape].shape.tolerations, relaxed)
    };
    let wanted = placed.left.iter().enumerate().filter(|(_, pod_group)| tolerates(pod_group.shape));
    let items: Vec<Item<'_>> = wanted
        .map(|(index, pod_group)| Item {
            pod_group: index,
            shape: pod_group.shape,
            count: pod_group.pods.len(),
            only: pod_group.only.as_deref(),
            whole: pod_group.whole,
        })
        .collect();
    if context.is_cancelled() {
        // Packing without work takes the first filling that it finds.
        state.work = 0;
    }
    let packing = pack(context, pool, &items, &state.headroom[pool], &mut state.work);
    drop(items);
    let room = &mut state.headroom[pool];
    let limited = room.iter().any(Option::is_some);
    packing.patterns.iter().for_each(|pattern| limits::take(room, &pattern.charge, pattern.copies));
    let mut drawn = vec![DrawState::default(); packing.pod_groups.len()];
    for pattern in &packing.patterns {
        let narrow = limits::within(view, &pattern.accept, &pattern.charge, room, 1, false);
        let Some(offerings) = launch::acceptable(view, &narrow) else { continue };
        let spare = limited.then(|| Rc::new(Spare { accept: pattern.accept.clone(), charge: pattern.charge.clone() }));
        for _ in 0..pattern.copies {
            let mut pod_groups: Vec<PodGroup<'a>> = Vec::new();
            for (item, n) in &pattern.take {
                drawn[*item].draw(&mut placed.left, &packing.pod_groups[*item], *n, &mut pod_groups);
            }
            let (load, custom) = (pattern.load.clone(), pattern.custom.clone());
            let (offerings, spare) = (offerings.clone(), spare.clone());
            placed.launches.push(Draft { pool, pod_groups, load, custom, offerings, spare });
        }
    }
    drawn.iter().zip(&packing.pod_groups).for_each(|(drawn, pod_groups)| drawn.finish(&mut placed.left, pod_groups));
    placed.left.retain(|pod_group| !pod_group.pods.is_empty());
}

/// How far the pod groups of one item were used up: they are cut only once, as a pod group may go to thousands of nodes.
#[derive(Debug, Clone, Default)]
struct DrawState {
    /// Pod groups that are used up.
    pod_groups: usize,
    /// Pods of the next one.
    pods: usize,
}

impl DrawState {
    /// Takes `n` pods more, or what there is.
    fn draw<'a>(
        &mut self,
        left: &mut [PodGroup<'a>],
        pod_groups: &[usize],
        mut n: usize,
        node: &mut Vec<PodGroup<'a>>,
    ) {
        while n > 0 {
            let Some(pod_group) = pod_groups.get(self.pod_groups).map(|pod_group| &mut left[*pod_group]) else {
                return;
            };
            let taken = n.min(pod_group.pods.len() - self.pods);
            let pods = pod_group.pods[self.pods..self.pods + taken].to_vec();
            node.push(PodGroup { pods, only: pod_group.only.clone(), ..*pod_group });
            n -= taken;
            self.pods += taken;
            // What such a node could not hold must not start another.
            pod_group.whole = false;
            if self.pods == pod_group.pods.len() {
                (self.pod_groups, self.pods) = (self.pod_groups + 1, 0);
            }
        }
    }

    fn finish(&self, left: &mut [PodGroup<'_>], pod_groups: &[usize]) {
        pod_groups.iter().take(self.pod_groups).for_each(|pod_group| left[*pod_group].pods.clear());
        if let Some(pod_group) = pod_groups.get(self.pod_groups) {
            left[*pod_group].pods.drain(..self.pods);
        }
    }
}

/// Lets launches list more than they need, as far as limits leave as much for each. Once all pods were looked at: what a launch lists beyond
/// its need is counted, too, and could have been a node for others.
pub(crate) fn widen(context: &SolveContext<'_>, state: &mut State, launches: &mut [Draft<'_>]) {
    let mut remaining = vec![0; context.pools.len()];
    launches.iter().filter(|draft| draft.spare.is_some()).for_each(|draft| remaining[draft.pool] += 1);
    for draft in launches {
        let Some(spare) = draft.spare.take() else { continue };
        let (view, room) = (&context.pools[draft.pool], &mut state.headroom[draft.pool]);
        let wide = limits::within(view, &spare.accept, &spare.charge, room, remaining[draft.pool], true);
        remaining[draft.pool] -= 1;
        if let Some(offerings) = launch::acceptable(view, &wide) {
            limits::take_extra(view, &offerings, &spare.charge, room);
            draft.offerings = offerings;
        }
    }
}
