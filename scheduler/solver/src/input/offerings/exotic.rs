//! Bare metal and types with accelerators, which nodes use only if one of their pods has no other offering: EC2 is
//! asked for no others as long as one remains, as in Karpenter.

use super::{PoolData, PoolView};
use crate::input::intern::{Amounts, Bits};
use crate::place::limits;
use plimsoll_model::catalog::{CapacityType, Offering};
use plimsoll_model::index::Id;

/// Offerings by whether pods have to need them.
#[derive(Debug, Default)]
pub(super) struct Exotic {
    /// Offerings that only pods without an ordinary one use. Reserved instances are paid for anyway. Empty if the pool
    /// sets `minValues`, which may need all types.
    exotic: Bits<Offering>,
    /// Offerings that make exotic ones unnecessary. Those of capacity reservations may be in use.
    ordinary: Bits<Offering>,
}

impl Exotic {
    pub(super) fn new(view: &PoolView<'_>) -> Self {
        let size = view.offerings.len();
        let is_bought = |one: Id<Offering>| view.offering(one).capacity_type != CapacityType::Reserved;
        let is_exotic = |one: Id<Offering>| view.types[view.offerings[one].type_index].is_exotic;
        let has_min_values = view.pool.requirements.iter().any(|one| one.min_values.is_some());
        let exotic =
            if has_min_values { Bits::none(size) } else { Bits::of(size, |one| is_exotic(one) && is_bought(one)) };
        Self { exotic, ordinary: Bits::of(size, |one| !is_exotic(one) && is_bought(one)) }
    }
}

impl PoolData {
    /// Whether only pods without an ordinary offering use this one.
    pub(crate) fn is_exotic(&self, offering: Id<Offering>) -> bool {
        self.exotic.exotic.has(offering)
    }

    /// Whether `offerings` has one that makes exotic ones unnecessary.
    pub(crate) fn has_ordinary(&self, offerings: &Bits<Offering>) -> bool {
        offerings.meets(&self.exotic.ordinary)
    }

    /// Whether this offering makes exotic ones unnecessary.
    pub(crate) fn is_ordinary(&self, offering: Id<Offering>) -> bool {
        self.exotic.ordinary.has(offering)
    }

    /// `offerings`, without exotic ones unless they are necessary: none of them is in `ordinary`.
    pub(crate) fn preferred(&self, offerings: &Bits<Offering>, ordinary: &Bits<Offering>) -> Bits<Offering> {
        let mut preferred = offerings.clone();
        if offerings.meets(ordinary) {
            preferred.retain(|one| !self.is_exotic(one));
        }
        preferred
    }

    /// Whether pods that can run on `any` need an exotic offering: none of `ordinary` has capacity for `count` of them
    /// together.
    pub(crate) fn needs_exotic(
        &self,
        any: &Bits<Offering>,
        (requests, count): (&[i64], usize),
        ordinary: &Bits<Offering>,
    ) -> bool {
        if self.exotic.exotic.is_empty() {
            return false;
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let requests: Amounts = requests.iter().map(|one| one.saturating_mul(count)).collect();
        !any.and(&self.roomy(&requests)).meets(ordinary)
    }
}

impl PoolView<'_> {
    /// Offerings that make exotic ones unnecessary and that a pool with `room` may launch.
    pub(crate) fn ordinary(&self, room: &[Option<i64>]) -> Bits<Offering> {
        let mut ordinary = self.exotic.ordinary.clone();
        if !self.exotic.exotic.is_empty() && room.iter().any(Option::is_some) {
            ordinary.retain(|one| limits::allows(room, self.capacity(one)));
        }
        ordinary
    }
}
