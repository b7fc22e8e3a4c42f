//! What pools may still grow by.

use crate::intern::Bits;
use crate::offerings::PoolView;
use crate::world::World;

/// Per resource of the table: how much is left, `None` where the pool sets no limit. Nodes being deleted still count.
pub(crate) type Headroom = Vec<Option<i64>>;

/// Headroom of each pool of the world.
pub(crate) fn headroom(world: &World<'_>) -> Vec<Headroom> {
    let one = |view: &PoolView<'_>| {
        let limits = world.table.vector(&view.pool.limits);
        let mut left: Headroom = limits
            .iter()
            .enumerate()
            .map(|(index, limit)| view.pool.limits.contains(world.table.name(index)).then_some(*limit))
            .collect();
        for node in world.snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&view.pool.name)) {
            let used = world.table.vector(&node.limit_usage);
            left.iter_mut().zip(used).for_each(|(room, used)| *room = room.map(|room| room.saturating_sub(used)));
        }
        left
    };
    world.pools.iter().map(one).collect()
}

/// Whether a pool with `room` may have one more node of type number `kind`.
pub(crate) fn allows(view: &PoolView<'_>, room: &Headroom, kind: usize) -> bool {
    let pairs = room.iter().zip(&view.types[kind].capacity);
    pairs.into_iter().all(|(room, amount)| *amount <= 0 || room.is_none_or(|room| *amount <= room))
}

/// Narrows `accept` to types within the share of `room` that one of `launches` remaining launches may use beyond what its own
/// type needs: a launch counts the most that any of its types has.
pub(crate) fn narrow(view: &PoolView<'_>, accept: &Bits, own: usize, room: &Headroom, launches: i64) -> Bits {
    if room.iter().all(Option::is_none) {
        return accept.clone();
    }
    let base = &view.types[own].capacity;
    Bits::of(view.offerings.len(), |index| {
        let kind = &view.types[view.offerings[index].type_index].capacity;
        accept.has(index)
            && room.iter().zip(kind.iter().zip(base)).all(|(room, (amount, base))| {
                room.is_none_or(|room| *amount <= base.saturating_add(room.max(0) / launches.max(1)))
            })
    })
}

/// Takes from `room` the most that any of `offerings` has beyond `own`, which was taken already.
pub(crate) fn charge(view: &PoolView<'_>, offerings: &[usize], own: usize, room: &mut Headroom) {
    for (resource, left) in room.iter_mut().enumerate() {
        let Some(left) = left else { continue };
        let most = offerings.iter().map(|index| view.types[view.offerings[*index].type_index].capacity[resource]).max();
        let extra = most.unwrap_or(0).saturating_sub(view.types[own].capacity[resource]).max(0);
        *left = left.saturating_sub(extra);
    }
}
