//! Remaining headroom of NodePool limits, quotas and reservations.

use crate::input::context::SolveContext;
use crate::input::intern::{Amounts, Bits, ResourceTable};
use crate::input::offerings::PoolView;
use crate::place::launch;
use plimsoll_model::catalog::{InstanceType, Offering};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::NodePool;

/// Per resource of the table: how much is left, `None` where the pool sets no limit. Nodes being deleted still count.
pub(crate) type Headroom = Vec<Option<i64>>;

/// Adds to what a pool's own limits leave what all pools share: free instances of capacity reservations, and what is
/// left of CapacityQuotas.
pub(crate) fn with_shared(
    view: &PoolView<'_>,
    mut left: Headroom,
    reservations: &[(usize, i64)],
    quotas: &[(usize, i64)],
) -> Headroom {
    for (place, free) in reservations {
        left.get_mut(*place).into_iter().for_each(|left| *left = Some(*free));
    }
    // A quota that counts no offering of the pool must not make the pool a limited one.
    for (place, free) in quotas {
        let counts = |one| view.capacity(one).get(*place).is_some_and(|amount| *amount > 0);
        if view.usable.iter().any(counts) {
            left.get_mut(*place).into_iter().for_each(|left| *left = Some(*free));
        }
    }
    left
}

/// What a pool's own limits leave, as in [`Headroom`].
pub(crate) fn own(context: &SolveContext<'_>, pool: &NodePool) -> Headroom {
    let nodes = context.nodes.iter().filter(|one| one.node.node_pool.as_ref() == Some(&pool.name));
    left(context.table, pool, nodes.map(|node| &node.data.usage))
}

/// The limits of a pool minus the usage of its nodes, as in [`Headroom`].
pub(crate) fn left(table: &ResourceTable, pool: &NodePool, used: impl Iterator<Item = impl AsRef<[i64]>>) -> Headroom {
    let limits = table.vector(&pool.limits);
    let limit = |(index, limit): (usize, &i64)| pool.limits.contains(table.name(index)).then_some(*limit);
    let mut left: Headroom = limits.iter().enumerate().map(limit).collect();
    if left.iter().any(Option::is_some) {
        used.for_each(|usage| take(&mut left, usage.as_ref(), 1));
    }
    left
}

/// Tells the other pools what `pool` has left of capacity reservations and CapacityQuotas, which they share.
pub(crate) fn share(context: &SolveContext<'_>, headroom: &mut IndexVec<NodePool, Headroom>, pool: Id<NodePool>) {
    for (place, _) in context.reservations.iter().chain(&context.quotas) {
        let Some(left) = headroom[pool].get(*place).copied().flatten() else { continue };
        for room in headroom.iter_mut().filter_map(|other| other.get_mut(*place)?.as_mut()) {
            *room = left;
        }
    }
}

/// Whether a pool with `room` may grow by `amounts`.
pub(crate) fn allows(room: &[Option<i64>], amounts: &[i64]) -> bool {
    room.iter().zip(amounts).all(|(room, amount)| *amount <= 0 || room.is_none_or(|room| *amount <= room))
}

/// How many times a pool with `room` may grow by `amounts`, at most `most`.
pub(crate) fn times(room: &[Option<i64>], amounts: &[i64], most: usize) -> usize {
    let bounds = room.iter().zip(amounts).filter(|(_, amount)| **amount > 0);
    bounds
        .filter_map(|(room, amount)| Some(usize::try_from((*room)?.max(0) / amount).unwrap_or(usize::MAX)))
        .fold(most, usize::min)
}

/// Takes `count` times `amounts` from `room`.
pub(crate) fn take(room: &mut [Option<i64>], amounts: &[i64], count: usize) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    for (left, amount) in room.iter_mut().zip(amounts) {
        *left = left.map(|left| left.saturating_sub(amount.saturating_mul(count)));
    }
}

/// Gives back what a launch counted.
pub(crate) fn give(room: &mut [Option<i64>], charge: &[i64]) {
    room.iter_mut().zip(charge).for_each(|(left, amount)| *left = left.map(|left| left.saturating_add(*amount)));
}

/// Charge of a launch: its offering `own`, raised only as far as `minValues` needs larger types of `accept`. Returns
/// `None` if `minValues` cannot be met.
pub(crate) fn charge(
    view: &PoolView<'_>,
    accept: &Bits<Offering>,
    own: Id<Offering>,
    room: &Headroom,
) -> Option<Amounts> {
    let mut charge = view.capacity(own).clone();
    loop {
        let within = within(view, accept, &charge, room);
        if launch::acceptable(view, &within).is_some() {
            return Some(charge);
        }
        let beyond = accept.iter().filter(|one| !within.has(*one));
        let next = beyond.min_by(|a, b| growth(view, *a, &charge, room).total_cmp(&growth(view, *b, &charge, room)))?;
        for (mine, theirs) in charge.iter_mut().zip(view.capacity(next)) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// How much an offering adds to `charge`, as the largest share of what the limits leave.
#[expect(clippy::cast_precision_loss, reason = "only compared")]
fn growth(view: &PoolView<'_>, offering: Id<Offering>, charge: &[i64], room: &Headroom) -> f64 {
    let parts = room.iter().zip(view.capacity(offering).iter().zip(charge));
    let share = |(room, (amount, have)): (&Option<i64>, (&i64, &i64))| {
        room.map_or(0.0, |room| (amount - have).max(0) as f64 / room.max(1) as f64)
    };
    parts.map(share).fold(0.0, f64::max)
}

/// Of `accept` the offerings of types that count at most `charge` in what `room` limits.
pub(crate) fn within(view: &PoolView<'_>, accept: &Bits<Offering>, charge: &[i64], room: &Headroom) -> Bits<Offering> {
    if room.iter().all(Option::is_none) {
        return accept.clone();
    }
    let allows = |capacity: &Amounts| {
        room.iter().zip(capacity.iter().zip(charge)).all(|(room, (amount, most))| room.is_none() || amount <= most)
    };
    let types: IndexVec<InstanceType, bool> = view.types.iter().map(|kind| allows(&kind.capacity)).collect();
    let mut kept = accept.clone();
    kept.retain(|one| view.own_capacity(one).map_or_else(|| types[view.offerings[one].type_index], allows));
    kept
}

/// The offerings that a launch lists of [`within`]. `None` if there is none, or if strict `minValues` are not met.
pub(crate) fn listed(
    view: &PoolView<'_>,
    accept: &Bits<Offering>,
    charge: &[i64],
    room: &Headroom,
) -> Option<Vec<Id<Offering>>> {
    launch::acceptable(view, &within(view, accept, charge, room))
}

/// Takes from `room` the most that any of `offerings` has beyond `charge`, which was taken already.
pub(crate) fn take_extra(view: &PoolView<'_>, offerings: &[Id<Offering>], charge: &[i64], room: &mut Headroom) {
    if room.iter().all(Option::is_none) {
        return;
    }
    let mut most = charge.to_vec();
    for offering in offerings {
        most.iter_mut().zip(view.capacity(*offering)).for_each(|(most, amount)| *most = (*most).max(*amount));
    }
    for (left, (most, charge)) in room.iter_mut().zip(most.iter().zip(charge)) {
        *left = left.map(|left| left.saturating_sub(most.saturating_sub(*charge)));
    }
}
