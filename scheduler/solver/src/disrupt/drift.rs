//! Replaces drifted nodes, regardless of cost.
//!
//! Usually a new node is in service before a drifted one goes. A pool at its limits has no room for another node. Its
//! drifted nodes are removed first, in waves as large as the disruption budgets allow.

use super::candidates::Candidate;
use super::{Removal, Removed, with_half_of_work};
use crate::input::context::SolveContext;
use crate::place::pod_groups::{self, PodGroup};
use crate::place::{self, Placed, State, limits, local_search, relaxation, static_pools};
use crate::retries;
use plimsoll_model::index::Id;
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::{DisruptionReason, Node, NodePool, NodeState};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of nodes that are replaced together. Bounds the work of an attempt, which places all their pods.
const MAX_TOGETHER: usize = 50;

/// Nodes without pods come first, then nodes whose pods can be evicted at once, since these evictions free budgets
/// sooner. Nodes are replaced together first, so that they share new nodes, and the rest one by one.
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
    // The attempts one by one need the rest: only they remove nodes of pools at their limits.
    with_half_of_work(state, |state| replace_in_batches(context, state, removal, &order));
    for candidate in order {
        // Once the budgets are used up, which is usual in a rollout, all that follows would be in vain.
        if !removal.is_open(candidate) || !removal.allowance.permits(context, candidate, DisruptionReason::Drifted) {
            continue;
        }
        if candidate.pool.replicas.is_some() {
            replace_static(context, state, removal, candidate);
        } else {
            replace(context, state, removal, candidate);
        }
    }
}

/// Replaces as many nodes together as budgets allow. Canaries have nodes of their own: each must prove itself.
fn replace_in_batches<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    removal: &mut Removal<'a>,
    order: &[&Candidate<'a>],
) {
    let may_share = |one: &&Candidate<'a>| one.pool.replicas.is_none() && one.pool.disruption.rollout_limit.is_none();
    let mut untried: Vec<&Candidate<'a>> = order.iter().copied().filter(may_share).collect();
    // Each round takes two or more candidates. Those that the budgets refuse come later, if others have no place.
    loop {
        let mut allowance = removal.allowance.clone();
        let mut batch: Vec<&Candidate<'a>> = Vec::new();
        state.work = state.work.saturating_sub(u64::try_from(untried.len()).unwrap_or(u64::MAX));
        untried.retain(|candidate| {
            if batch.len() >= MAX_TOGETHER || !allowance.permits(context, candidate, DisruptionReason::Drifted) {
                return true;
            }
            if removal.is_open(candidate) {
                allowance.note(context, candidate, DisruptionReason::Drifted);
                batch.push(*candidate);
            }
            false
        });
        if batch.len() < 2 || state.work == 0 {
            return;
        }
        replace_together(context, state, removal, batch);
    }
}

/// Replaces the nodes together, without those whose pods have no place.
fn replace_together<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    removal: &mut Removal<'a>,
    mut nodes: Vec<&Candidate<'a>>,
) {
    nodes.retain(|one| is_supported(context, &wanted(context, &[*one])));
    // Each attempt leaves out the nodes that failed. The rest usually succeeds at once.
    for _ in 0..retries::FEW {
        // A single node is tried later, like those that are left out.
        if nodes.len() < 2 || state.work == 0 {
            return;
        }
        let wanted = wanted(context, &nodes);
        let found = state.attempt(|state| {
            nodes.iter().for_each(|one| state.close(one.node));
            match placed(context, state, wanted) {
                Ok(placed) => {
                    let must_stay = |node: &Id<Node>| !removal.followed.permits(context, state, *node);
                    let stuck: BTreeSet<Id<Node>> = nodes.iter().map(|one| one.node).filter(must_stay).collect();
                    if stuck.is_empty() { Ok(placed) } else { Err(stuck) }
                }
                Err(left) => {
                    let left = relaxation::uids(&left);
                    let is_left = |one: &&&Candidate<'a>| one.pods.iter().any(|pod| left.contains(&pod.uid));
                    Err(nodes.iter().filter(is_left).map(|one| one.node).collect())
                }
            }
        });
        match found {
            Ok(placed) => {
                nodes.iter().for_each(|one| removal.note(context, one, DisruptionReason::Drifted));
                removal.commit(context, placed);
                return;
            }
            Err(stuck) => nodes.retain(|one| !stuck.contains(&one.node)),
        }
    }
}

/// Replaces one node, or removes it before its pods have another place if its pool is at its limits. Its pods move to
/// other drifted nodes only if nothing else takes them.
fn replace<'a>(context: &SolveContext<'a>, state: &mut State, removal: &mut Removal<'a>, candidate: &Candidate<'a>) {
    let wanted = wanted(context, &[candidate]);
    if !is_supported(context, &wanted) {
        return;
    }
    let mut attempt = |state: &mut State| {
        removal.attempt(context, state, candidate, DisruptionReason::Drifted, |state| {
            placed(context, state, wanted.clone()).ok()
        })
    };
    let mut replaced = attempt(state);
    if !replaced && others_leave(context, state, candidate) {
        state.search.lasting = false;
        replaced = attempt(state);
    }
    if !replaced && may_go_first(context, removal, candidate) {
        removal.attempt(context, state, candidate, DisruptionReason::Drifted, |state| {
            let before = state.headroom.clone();
            give_back(context, state, candidate);
            let mut placed = placed(context, state, wanted).ok()?;
            // These nodes are launched once the instance of the drifted one is gone and no longer counts.
            placed.launches.clear();
            state.headroom = before;
            Some(placed)
        });
    }
    state.search.lasting = true;
}

/// Whether other drifted nodes could take pods of the candidate. Otherwise, it makes no difference whether they may.
fn others_leave(context: &SolveContext<'_>, state: &State, candidate: &Candidate<'_>) -> bool {
    let mut nodes = context.nodes.ids();
    nodes.any(|node| context.nodes[node].leaves && !state.room(node).closed && node != candidate.node)
}

/// The pods of the nodes that need another place. With a terminationGracePeriod, pods that must not be evicted do not
/// block their node: they stay until the period ends.
fn wanted<'a>(context: &SolveContext<'a>, nodes: &[&Candidate<'a>]) -> Vec<PodGroup<'a>> {
    let pods = nodes.iter().flat_map(|one| one.pods.iter().copied());
    pod_groups::by_shape(context, pods.filter(|pod| pod_groups::can_leave(context, pod)))
}

fn is_supported(context: &SolveContext<'_>, wanted: &[PodGroup<'_>]) -> bool {
    let unsupported = |one: &PodGroup<'_>| crate::explain::unsupported(context.shapes[one.shape].shape).is_some();
    !wanted.iter().any(unsupported)
}

/// Places all of these pods.
///
/// # Errors
/// The pods without a place.
fn placed<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    wanted: Vec<PodGroup<'a>>,
) -> Result<Placed<'a>, Vec<PodGroup<'a>>> {
    // Each group looks at the nodes, also at those that drift removes soon, even if no pod has a place.
    let looked = pod_groups::count(&wanted) + context.nodes.len().saturating_mul(1 + wanted.len());
    state.work = state.work.saturating_sub(u64::try_from(looked).unwrap_or(u64::MAX));
    pod_groups::leave(context, state, &wanted);
    let mut placed = relaxation::place(context, state, wanted);
    if !placed.left.is_empty() {
        return Err(placed.left);
    }
    local_search::improve(context, state, &mut placed);
    place::widen(context, state, &mut placed.launches);
    Ok(placed)
}

/// Replaces a node of a static pool by another node of this pool, as Karpenter does: its pods are not planned, which
/// needs no work. Only pools with exactly as many nodes as `replicas` are concerned. Other pools get their number of
/// nodes first. The node is open, and budgets allow its removal.
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
    let closed = state.trial(|state| {
        state.close(candidate.node);
        (may_go && removal.followed.permits(context, state, candidate.node)).then_some(())
    });
    if closed.is_none() {
        return;
    }
    removal.note(context, candidate, DisruptionReason::Drifted);
    if has_room {
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
