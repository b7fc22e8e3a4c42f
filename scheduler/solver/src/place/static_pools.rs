//! Static pools: they have as many nodes as `replicas` says, regardless of pods.

use crate::input::context::SolveContext;
use crate::input::custom_labels::Narrowed;
use crate::input::intern::Bits;
use crate::input::offerings::PoolView;
use crate::place::launch::{self, Listings, NewNode};
use crate::place::limits::{self, Headroom};
use plimsoll_model::catalog::{Offering, reservation_resource};
use plimsoll_model::index::Id;
use plimsoll_model::names::NODES_RESOURCE;
use plimsoll_model::plan::Launch;
use plimsoll_model::snapshot::{Node, NodePool, Snapshot, quota_usage_of_launch};

/// Maximum number of nodes that one plan launches for one pool. The next plan launches more.
const MAX_LAUNCHES: u64 = 500;

/// Launches the nodes that static pools lack, and `successors` of removed nodes, by pool. The launches of `others` have
/// used capacity reservations and CapacityQuotas.
pub(crate) fn launches(
    context: &SolveContext<'_>,
    others: &[&[Launch]],
    successors: impl Fn(&NodePool) -> u64,
) -> Vec<Launch> {
    let (mut all, mut listings) = (Vec::new(), Listings::default());
    let mut room = shared_headroom(context, others);
    for view in &context.static_pools {
        let (load, custom) = (vec![0; context.table.len()], Narrowed::new());
        for number in 0..missing(context.snapshot, view.pool, successors(view.pool)) {
            let Some(accept) = accept(view, &mut room) else { break };
            let Some(offerings) = launch::acceptable(view, &accept) else { break };
            let node = NewNode { view, number, load: &load, custom: &custom, offerings: &offerings };
            all.push(launch::launch(context, &node, &[], &mut listings));
        }
    }
    all
}

/// What nodes and the launches of `others` leave of capacity reservations and CapacityQuotas. Other limits are `None`.
pub(crate) fn shared_headroom(context: &SolveContext<'_>, others: &[&[Launch]]) -> Headroom {
    let mut room: Headroom = vec![None; context.table.len()];
    for (place, free) in context.reservations.iter().chain(&context.quotas) {
        room.get_mut(*place).into_iter().for_each(|room| *room = Some(*free));
    }
    for launch in others.iter().copied().flatten() {
        let mut views = context.pools.iter().chain(&context.static_pools);
        let Some(view) = views.find(|view| view.pool.name == launch.node_pool) else { continue };
        let quotas = &context.snapshot.capacity_quotas;
        let mut usage = quota_usage_of_launch(quotas, launch, view.catalog, usize::MAX);
        let reservations = launch.offerings.iter().filter_map(|choice| choice.reservation.as_deref());
        reservations.for_each(|id| usage.set(&reservation_resource(id), 1));
        limits::take(&mut room, &context.table.vector(&usage), 1);
    }
    room
}

/// Whether quotas and offerings allow the pool one more node, which is taken from `room`. True for a pool that is not
/// ready: it is expected to become ready.
pub(crate) fn has_offering(context: &SolveContext<'_>, pool: &NodePool, room: &mut Headroom) -> bool {
    let view = context.static_pools.iter().find(|view| view.pool.name == pool.name);
    view.is_none_or(|view| accept(view, room).is_some_and(|accept| launch::acceptable(view, &accept).is_some()))
}

/// Offerings that the pool may use for one more node, which is taken from `room`: offerings of at most one capacity
/// reservation, and all that are not reserved. `None` if there are none.
fn accept(view: &PoolView<'_>, room: &mut Headroom) -> Option<Bits<Offering>> {
    let allowed = |one: &Id<Offering>| limits::allows(room, view.capacity(*one));
    let reserved = view.usable.iter().filter(|one| view.is_reserved(*one)).find(allowed);
    let mut accept = view.preferred(&view.usable, &view.ordinary(room));
    accept.retain(|one| !view.is_reserved(one) || Some(one) == reserved);
    let first = reserved.or_else(|| accept.iter().find(allowed))?;
    let charge = limits::charge(view, &accept, first, room)?;
    let kept = limits::within(view, &accept, &charge, room);
    if !limits::allows(room, &charge) {
        return None;
    }
    limits::take(room, &charge, 1);
    Some(kept)
}

/// Number of nodes that the pool lacks if so many of its nodes get successors. Nodes that are being deleted are
/// replaced, but count against the pool's limit. Nodes that exceed `replicas` take the place of successors, also if
/// this plan removes them: the actuator admits no launch beyond `replicas` before they are gone.
fn missing(snapshot: &Snapshot, pool: &NodePool, successors: u64) -> u64 {
    let wanted = pool.replicas.unwrap_or(0).saturating_add(successors).saturating_sub(remaining(snapshot, pool));
    wanted.min(room(snapshot, pool)).min(MAX_LAUNCHES)
}

/// How many nodes of the pool its limits allow to replace by others now. Zero if the pool is being deleted or is not
/// static.
pub(crate) fn successors(snapshot: &Snapshot, pool: &NodePool) -> u64 {
    if pool.replicas.is_none() || pool.deleting {
        return 0;
    }
    missing(snapshot, pool, u64::MAX).saturating_sub(missing(snapshot, pool, 0))
}

/// How many nodes the limits of a static pool still allow.
pub(crate) fn room(snapshot: &Snapshot, pool: &NodePool) -> u64 {
    let limit = pool.limits.contains(NODES_RESOURCE).then(|| pool.limits.get(NODES_RESOURCE));
    limit.map_or(u64::MAX, |limit| u64::try_from(limit).unwrap_or(0).saturating_sub(count(snapshot, pool, |_| true)))
}

/// Whether the pool has exactly as many nodes as `replicas`.
pub(crate) fn is_complete(snapshot: &Snapshot, pool: &NodePool) -> bool {
    pool.replicas == Some(remaining(snapshot, pool))
}

/// Number of nodes that exceed `replicas`, including those that start.
pub(crate) fn excess(snapshot: &Snapshot, pool: &NodePool) -> u64 {
    pool.replicas.map_or(0, |replicas| remaining(snapshot, pool).saturating_sub(replicas))
}

/// Number of the pool's nodes that are not being deleted.
fn remaining(snapshot: &Snapshot, pool: &NodePool) -> u64 {
    count(snapshot, pool, |node| !node.deleting)
}

fn count(snapshot: &Snapshot, pool: &NodePool, counts: impl Fn(&Node) -> bool) -> u64 {
    let own = snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&pool.name) && counts(node));
    u64::try_from(own.count()).unwrap_or(u64::MAX)
}
