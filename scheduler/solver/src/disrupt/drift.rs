//! Replaces drifted nodes, regardless of cost.
//!
//! Usually a new node is in service before a drifted one goes. A pool at its limits has no room for another node. Its
//! drifted nodes are removed first, in waves as large as the disruption budgets allow.

use super::candidates::Candidate;
use super::{Removal, Removed};
use crate::input::context::SolveContext;
use crate::place::pod_groups::{self, PodGroup};
use crate::place::{self, Placed, State, limits, static_pools};
use plimsoll_model::index::Id;
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::{DisruptionReason, Node, NodePool, NodeState};
use std::collections::BTreeMap;

/// Nodes without pods come first, then nodes whose pods can be evicted at once, since these evictions free budgets
/// sooner.
pub(super) fn remove<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    found: &[Candidate<'a>],
    removal: &mut Removal<'a>,
) {
    let mut order: Vec<&Candidate<'a>> = found.iter().filter(|one| one.drifted).collect();
    order.sort_by_key(|one| {
        (!one.pods.is_empty(), !one.has_grace_period, one.disturbance, &context.nodes[one.node].node.name)
    });
    for candidate in order {
        // Once the budgets are used up, which is usual in a rollout, all that follows would be in vain.
        if !removal.is_open(candidate) || !removal.allowance.permits(context, candidate, DisruptionReason::Drifted) {
            continue;
        }
        if candidate.pool.replicas.is_some() {
            replace_static(context, state, removal, candidate);
            continue;
        }
        // With a terminationGracePeriod, pods that must not be evicted do not block the node: they stay until the
        // period ends.
        let moving = candidate.pods.iter().copied().filter(|pod| pod_groups::can_leave(context, pod));
        let wanted: Vec<PodGroup<'a>> = pod_groups::by_shape(context, moving);
        if wanted.iter().any(|pod_group| crate::explain::unsupported(context.shapes[pod_group.shape].shape).is_some()) {
            continue;
        }
        let replaced = removal.attempt(context, state, candidate, DisruptionReason::Drifted, |state| {
            placed(context, state, wanted.clone())
        });
        if !replaced && may_go_first(context, removal, candidate) {
            removal.attempt(context, state, candidate, DisruptionReason::Drifted, |state| {
                let before = state.headroom.clone();
                give_back(context, state, candidate);
                let mut placed = placed(context, state, wanted)?;
                // These nodes are launched once the instance of the drifted one is gone and no longer counts.
                placed.launches.clear();
                state.headroom = before;
                Some(placed)
            });
        }
    }
}

/// Places all pods of a node, or nothing.
fn placed<'a>(context: &SolveContext<'a>, state: &mut State, wanted: Vec<PodGroup<'a>>) -> Option<Placed<'a>> {
    pod_groups::leave(context, state, &wanted);
    let mut placed = place::relaxation::place(context, state, wanted);
    place::widen(context, state, &mut placed.launches);
    placed.left.is_empty().then_some(placed)
}

/// Replaces a node of a static pool by another node of this pool, as Karpenter does: its pods are not planned. Only
/// pools with exactly as many nodes as `replicas` are concerned. Other pools get their number of nodes first.
fn replace_static<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    removal: &mut Removal<'a>,
    candidate: &Candidate<'a>,
) {
    if !static_pools::is_complete(context.snapshot, candidate.pool) {
        return;
    }
    let others = successors_of(context, removal, candidate.pool);
    let has_room = static_pools::room(context.snapshot, candidate.pool) > others;
    let may_go = has_room || (others == 0 && may_go_first(context, removal, candidate));
    let none = |_: &mut State| may_go.then(Placed::default);
    if removal.attempt(context, state, candidate, DisruptionReason::Drifted, none) && has_room {
        removal.successors.insert(candidate.node, None);
    }
}

/// Whether a drifted node may be removed before its pods have another place: its pool has no room for a node of the
/// same size, and no other node of the pool is on its way or awaits pods, except drifted nodes that are given up. So
/// only the pods of one wave wait for capacity at a time. A node that this plan removes for another reason soon leaves
/// room for a replacement.
fn may_go_first(context: &SolveContext<'_>, removal: &Removal<'_>, candidate: &Candidate<'_>) -> bool {
    let is_own = |node: &Node| node.node_pool.as_ref() == Some(&candidate.pool.name);
    let mut own = context.nodes.iter_enumerated().filter(|(_, view)| is_own(view.node) && !is_given_up(view.node));
    let in_service = own.all(|(node, view)| {
        view.node.state == NodeState::Initialized && !view.node.deleting && !removal.busy.contains(&node)
    });
    let pool = context.pool_id(&candidate.pool.name);
    let leaves_room =
        |one: &Removed<'_>| one.reason != DisruptionReason::Drifted && is_own(context.nodes[one.node].node);
    in_service
        && !removal.removed.iter().any(leaves_room)
        && removal.early.iter().all(|launch| launch.node_pool != candidate.pool.name)
        && removal.launches.iter().all(|draft| Some(draft.pool) != pool)
        && !limits::allows(&limits::own(context, candidate.pool), &context.nodes[candidate.node].data.usage)
}

/// Whether a drifted node was not initialized in time, or its Node is gone. A node of the current specification that
/// fails in this way stops the waves, since the next ones would fail, too.
fn is_given_up(node: &Node) -> bool {
    node.state != NodeState::Initialized && node.cordoned && !node.deleting && node.drifted.is_some()
}

/// Gives the usage of the candidate back to the limits of its pool, but not to CapacityQuotas.
fn give_back(context: &SolveContext<'_>, state: &mut State, candidate: &Candidate<'_>) {
    let Some(pool) = context.pool_id(&candidate.pool.name) else { return };
    let usage = context.nodes[candidate.node].data.usage.iter().enumerate();
    let limited = |(index, amount): (usize, &i64)| {
        if candidate.pool.limits.contains(context.table.name(index)) { *amount } else { 0 }
    };
    let usage: Vec<i64> = usage.map(limited).collect();
    limits::give(&mut state.headroom[pool], &usage);
}

/// Finds the launches of the nodes' successors. A node whose successor could not be launched stays.
pub(crate) fn link_successors(context: &SolveContext<'_>, removal: &mut Removal<'_>, launches: &[Launch]) {
    let mut of_pool: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, launch) in launches.iter().enumerate().rev() {
        of_pool.entry(launch.node_pool.as_str()).or_default().push(index);
    }
    for (node, successor) in &mut removal.successors {
        let pool = context.nodes[*node].node.node_pool.as_ref().map_or("", |pool| pool.as_str());
        *successor = of_pool.get_mut(pool).and_then(Vec::pop);
    }
    let successors = &removal.successors;
    removal.removed.retain(|one| successors.get(&one.node) != Some(&None));
}

/// Number of successors that static pools need.
pub(crate) fn successors_of(context: &SolveContext<'_>, removal: &Removal<'_>, pool: &NodePool) -> u64 {
    let own = |node: &&Id<Node>| context.nodes[**node].node.node_pool.as_ref() == Some(&pool.name);
    u64::try_from(removal.successors.keys().filter(own).count()).unwrap_or(u64::MAX)
}
