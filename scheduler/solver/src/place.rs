//! Places pods: existing nodes first, then launches, from pools of the highest weight first.

pub(crate) mod best_fit;
pub(crate) mod buffer_pods;
pub(crate) mod columns;
pub(crate) mod draft;
pub(crate) mod early_batch;
pub(crate) mod fill;
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
use crate::input::existing_nodes::{NodeCapacity, takes, takes_some};
use crate::input::intern::{add, how_many};
use crate::place::draft::{Draft, Spare};
use crate::place::free_capacity::FreeCapacityIndex;
use crate::place::limits::Headroom;
use crate::place::pack::pack;
use crate::place::pod_groups::{PodGroup, PodGroupId};
use crate::place::topology::Counts;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{Node, NodePool, NodeState, Pod, PodShape};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Free capacity of nodes, headroom of limits, pods per domain and work that are left while a plan is made.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Shared with the input until it changes.
    rooms: IndexVec<Node, Arc<NodeCapacity>>,
    free_capacity: FreeCapacityIndex,
    pub(crate) headroom: IndexVec<NodePool, Headroom>,
    pub(crate) work: u64,
    /// Pods per domain of each topology group.
    pub(crate) counts: Counts,
    /// Pods that only other pods' spreads count are assigned evenly, too.
    pub(crate) even: bool,
    pub(crate) search: Search,
    /// Pods of removed nodes are placed: domains in which existing nodes have room come first.
    pub(crate) moving: bool,
    /// Zone in which pods start if several are equally good.
    pub(crate) preferred_zone: Option<String>,
    /// Pool that is asked before all others of its weight, regardless of cost.
    pub(crate) preferred_pool: Option<Id<NodePool>>,
    /// Price of a unit of each resource. If set, existing nodes are filled so that these prices are maximized: see
    /// [`fill`].
    pub(crate) prices: Option<Rc<Vec<f64>>>,
    /// Undo log of a trial: free capacity before each change.
    journal: Option<Vec<(Id<Node>, Arc<NodeCapacity>)>>,
}

#[derive(Debug, Default)]
pub(crate) struct Placed<'a> {
    pub(crate) existing: BTreeMap<Id<Node>, Vec<&'a Pod>>,
    pub(crate) launches: Vec<Draft<'a>>,
    pub(crate) left: Vec<PodGroup<'a>>,
}

impl<'a> Placed<'a> {
    /// Adds what was placed afterwards, and the pods that this left.
    pub(crate) fn add(&mut self, more: Self) {
        for (node, pods) in more.existing {
            self.existing.entry(node).or_default().extend(pods);
        }
        self.launches.extend(more.launches);
        self.left.extend(more.left);
    }
}

/// Restricts which existing nodes may take pods.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Search {
    pub(crate) in_service: bool,
    /// Only nodes past `consolidateAfter`, or to which it does not apply.
    pub(crate) settled: bool,
    /// Only nodes that drift does not remove soon.
    pub(crate) lasting: bool,
}

impl State {
    pub(crate) fn new(context: &SolveContext<'_>, work: u64) -> Self {
        let rooms: IndexVec<Node, Arc<NodeCapacity>> =
            context.nodes.iter().map(|view| Arc::clone(&view.data.room)).collect();
        Self {
            free_capacity: FreeCapacityIndex::new(&rooms, context.table.len(), |node| context.nodes[node].open),
            rooms,
            headroom: context.headroom.clone(),
            work,
            counts: context.known.counts.clone(),
            even: false,
            search: Search::default(),
            moving: false,
            preferred_zone: None,
            preferred_pool: None,
            prices: None,
            journal: None,
        }
    }

    pub(crate) fn room(&self, node: Id<Node>) -> &NodeCapacity {
        &self.rooms[node]
    }

    /// Marks the node as accepting no more pods.
    pub(crate) fn close(&mut self, node: Id<Node>) {
        self.change(node).closed = true;
        self.free_capacity.note(node, &self.rooms[node]);
    }

    /// Returns the free capacity of a node for a change, and records it in the undo log.
    fn change(&mut self, node: Id<Node>) -> &mut NodeCapacity {
        let room = &mut self.rooms[node];
        if let Some(journal) = &mut self.journal {
            journal.push((node, Arc::clone(room)));
        }
        Arc::make_mut(room)
    }

    /// Runs `attempt` and undoes its changes, except for the work.
    pub(crate) fn undone<T>(&mut self, attempt: impl FnOnce(&mut Self) -> T) -> T {
        match self.attempt(|state| Err::<T, T>(attempt(state))) {
            Ok(found) | Err(found) => found,
        }
    }

    /// Runs `attempt` and undoes its changes, except for the work, if it returns `None`.
    pub(crate) fn trial<T>(&mut self, attempt: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.attempt(|state| attempt(state).ok_or(())).ok()
    }

    /// Runs `attempt` and undoes its changes, except for the work, if it fails.
    ///
    /// # Errors
    /// Those of `attempt`.
    pub(crate) fn attempt<T, E>(&mut self, attempt: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let (headroom, counts) = (self.headroom.clone(), self.counts.clone());
        let outer = self.journal.replace(Vec::new());
        let result = attempt(self);
        let own = std::mem::replace(&mut self.journal, outer).unwrap_or_default();
        if result.is_ok() {
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
        result
    }
}

/// Places as many of `pod_groups` as possible. Domains are assigned already.
pub(crate) fn place<'a>(context: &SolveContext<'a>, state: &mut State, pod_groups: Vec<PodGroup<'a>>) -> Placed<'a> {
    let (pod_groups, too_many) = one_host_each(context, state, pod_groups);
    let mut placed = Placed { left: pod_groups, ..Placed::default() };
    on_existing(context, state, &mut placed);
    market::buy_by_weight(context, state, &mut placed);
    placed.left.extend(too_many);
    placed
}

/// Splits pod groups that must share one host into the pods that one host can take and the rest: pods that follow
/// the group would find the host full.
fn one_host_each<'a>(
    context: &SolveContext<'a>,
    state: &State,
    pod_groups: Vec<PodGroup<'a>>,
) -> (Vec<PodGroup<'a>>, Vec<PodGroup<'a>>) {
    let mut cut = Vec::new();
    let mut kept = pod_groups;
    for pod_group in kept.iter_mut().filter(|pod_group| pod_group.on_one_node) {
        let most = on_one_host(context, state, pod_group);
        if most > 0 && most < pod_group.pods.len() {
            cut.push(PodGroup { pods: pod_group.pods.split_off(most), ..pod_group.clone() });
        }
    }
    (kept, cut)
}

/// Pods of the group that one host takes at most, existing or new.
fn on_one_host(context: &SolveContext<'_>, state: &State, pod_group: &PodGroup<'_>) -> usize {
    let nodes = context.nodes.ids().filter(|node| allowed(context, *node, state.search));
    let there = nodes.map(|node| takes_some(context, node, state.room(node), pod_group)).max().unwrap_or(0);
    let shape = &context.shapes[pod_group.shape];
    let most = pod_group.pods.len().min(shape.most_alone);
    let mut new = 0;
    for (pool, view) in context.pools.iter_enumerated() {
        let narrowed = context.narrowed(pod_group.shape, pool, pod_group.only.as_deref());
        for offering in narrowed.iter().flat_map(|one| one.offerings.iter()) {
            if limits::allows(&state.headroom[pool], view.capacity(offering)) {
                new = new.max(how_many(shape.requests, &view.offerings[offering].room, most));
            }
        }
    }
    there.max(new)
}

pub(crate) fn on_existing<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>) {
    if let Some(prices) = state.prices.clone() {
        fill::fill(context, state, placed, &prices);
    }
    // Large pods first, since small pods fit anywhere, but before them those that need an accelerator or a scarce
    // device. Of equal pods, those that must run On-Demand come first: the others run on Spot nodes, too. Pods that
    // follow others to their hosts come after these.
    let key = |pod_group: &PodGroup<'_>| {
        let follows = !pod_group.on_one_node && context.topology.seeks_host(pod_group.shape);
        let requests = context.shapes[pod_group.shape].requests;
        (
            follows,
            !context.free_devices.come_first(requests),
            std::cmp::Reverse(requests),
            context.original(pod_group.shape).is_none(),
            context.relaxation.order(pod_group.shape),
        )
    };
    placed.left.sort_by(|a, b| key(a).cmp(&key(b)));
    for pod_group in &mut placed.left {
        let requests = context.shapes[pod_group.shape].requests;
        // Nodes with devices that the pods do not need: they come last.
        let mut spared = Vec::new();
        let mut from = 0;
        while let Some(node) = state.free_capacity.next(from, requests) {
            if pod_group.pods.is_empty() || state.work == 0 {
                break;
            }
            from = node.number() + 1;
            if !allowed(context, node, state.search) {
                continue;
            }
            if context.free_devices.are_idle(&context.nodes[node], &state.room(node).free, requests) {
                spared.push(node);
            } else {
                put_some(context, state, node, pod_group, &mut placed.existing);
            }
        }
        for node in spared {
            if pod_group.pods.is_empty() || state.work == 0 {
                break;
            }
            put_some(context, state, node, pod_group, &mut placed.existing);
        }
    }
    placed.left.retain(|pod_group| !pod_group.pods.is_empty());
}

/// Places as many pods of the group on the node as it takes.
fn put_some<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    node: Id<Node>,
    pod_group: &mut PodGroup<'a>,
    existing: &mut BTreeMap<Id<Node>, Vec<&'a Pod>>,
) {
    let n = takes(context, node, state.room(node), pod_group);
    if n > 0 {
        state.work = state.work.saturating_sub(1);
        put(context, state, node, pod_group.shape, n);
        existing.entry(node).or_default().extend(pod_group.pods.drain(..n));
    }
}

fn allowed(context: &SolveContext<'_>, node: Id<Node>, search: Search) -> bool {
    let view = &context.nodes[node];
    (!search.in_service || view.node.state == NodeState::Initialized)
        && (!search.settled || view.settled)
        && !(search.lasting && view.leaves)
}

/// Records `n` pods of `shape` on a node.
pub(crate) fn put(context: &SolveContext<'_>, state: &mut State, node: Id<Node>, shape: Id<PodShape>, n: usize) {
    let pods = &context.shapes[shape];
    let room = state.change(node);
    add(&mut room.free, pods.requests, -i64::try_from(n).unwrap_or(i64::MAX));
    room.ports.extend(pods.shape.host_ports.iter().cloned());
    room.tally.add(pods.hosts, n);
    state.free_capacity.note(node, &state.rooms[node]);
}

/// Launches nodes of one pool for the pods that are left.
pub(crate) fn on_new<'a>(context: &SolveContext<'a>, state: &mut State, placed: &mut Placed<'a>, pool: Id<NodePool>) {
    let view = &context.pools[pool];
    let tolerates = |shape: Id<PodShape>| {
        // PreferNoSchedule taints are tolerated last, once nothing else is left to relax.
        let relaxed = context.relaxation.is_required_only(shape);
        crate::input::context::tolerated(&view.pool.taints, &context.shapes[shape].shape.tolerations, relaxed)
    };
    let all = placed.left.iter().enumerate().map(|(number, pod_group)| (Id::new(number), pod_group));
    let wanted: Vec<(PodGroupId, &PodGroup<'a>)> = all.filter(|(_, one)| tolerates(one.shape)).collect();
    if context.is_cancelled() {
        // Packing without work takes the first filling that it finds.
        state.work = 0;
    }
    let before = state.work;
    let packing = pack(context, pool, &wanted, &state.headroom[pool], &mut state.work);
    context.packing_work.update(|sum| sum.saturating_add(before - state.work));
    let room = &mut state.headroom[pool];
    let limited = room.iter().any(Option::is_some);
    packing.patterns.iter().for_each(|pattern| limits::take(room, &pattern.charge, pattern.copies));
    limits::share(context, &mut state.headroom, pool);
    let room = &state.headroom[pool];
    // The pods of a group may go to thousands of nodes. Drawn from the end of a reversed list, they move no others.
    let mut queues = packing.pod_groups;
    queues.iter_mut().for_each(|queue| queue.reverse());
    placed.left.iter_mut().for_each(|pod_group| pod_group.pods.reverse());
    for pattern in &packing.patterns {
        let Some(offerings) = limits::listed(view, &pattern.accept, &pattern.charge, room) else { continue };
        let spare = limited.then(|| Rc::new(Spare { accept: pattern.accept.clone(), charge: pattern.charge.clone() }));
        for _ in 0..pattern.copies {
            let mut pod_groups: Vec<PodGroup<'a>> = Vec::new();
            for (item, n) in &pattern.take {
                draw(&mut placed.left, &mut queues[*item], *n, &mut pod_groups);
            }
            let (load, custom) = (pattern.load.clone(), pattern.custom.clone());
            let (offerings, spare) = (offerings.clone(), spare.clone());
            placed.launches.push(Draft { pool, pod_groups, load, custom, offerings, spare });
        }
    }
    placed.left.retain(|pod_group| !pod_group.pods.is_empty());
    placed.left.iter_mut().for_each(|pod_group| pod_group.pods.reverse());
}

/// Takes up to `n` pods of the groups in `queue` from `left`, each time from the end of the last group.
fn draw<'a>(left: &mut [PodGroup<'a>], queue: &mut Vec<PodGroupId>, mut n: usize, node: &mut Vec<PodGroup<'a>>) {
    while n > 0 {
        let Some(pod_group) = queue.last().and_then(|id| left.get_mut(id.number())) else { return };
        let kept = pod_group.pods.len().saturating_sub(n);
        let mut pods = pod_group.pods.split_off(kept);
        pods.reverse();
        n -= pods.len();
        node.push(PodGroup { pods, only: pod_group.only.clone(), ..*pod_group });
        // The rest does not fit here, and must not start another group on another host.
        pod_group.on_one_node = false;
        if kept == 0 {
            queue.pop();
        }
    }
}

/// Lists more offerings per launch than needed, as far as limits allow. Runs after all pods are placed: offerings
/// beyond the need count against limits, too, and could have been nodes for other pods.
pub(crate) fn widen(context: &SolveContext<'_>, state: &mut State, launches: &mut [Draft<'_>]) {
    let mut remaining = IndexVec::filled(0, context.pools.len());
    launches.iter().filter(|draft| draft.spare.is_some()).for_each(|draft| remaining[draft.pool] += 1);
    for draft in launches {
        let Some(spare) = draft.spare.take() else { continue };
        let (view, room) = (&context.pools[draft.pool], &mut state.headroom[draft.pool]);
        // A launch counts the most that any of its types has. The same share is left for each of the other launches.
        let share = |room: &Option<i64>| room.map_or(0, |room| room.max(0) / remaining[draft.pool].max(1));
        let charge: Vec<i64> =
            spare.charge.iter().zip(room.iter()).map(|(one, room)| one.saturating_add(share(room))).collect();
        remaining[draft.pool] -= 1;
        if let Some(offerings) = limits::listed(view, &spare.accept, &charge, room) {
            limits::take_extra(view, &offerings, &spare.charge, room);
            limits::share(context, &mut state.headroom, draft.pool);
            draft.offerings = offerings;
        }
    }
}
