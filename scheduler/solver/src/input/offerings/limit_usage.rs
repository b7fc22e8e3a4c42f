//! What nodes count against the limits of NodePools, and against the limits that all pools share.

use super::{PoolData, PoolView};
use crate::input::intern::{Amounts, ResourceTable};
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::index::Id;
use plimsoll_model::names::USD_PER_HOUR_RESOURCE;
use plimsoll_model::snapshot::Node;

impl PoolData {
    /// Usage of limits by a node of the offering, which no longer is that of its type.
    pub(crate) fn own_capacity_mut(&mut self, offering: Id<Offering>) -> &mut Amounts {
        let view = &mut self.offerings[offering];
        view.counted.get_or_insert_with(|| self.types[view.type_index].capacity.clone())
    }
}

impl<'a> PoolView<'a> {
    /// Usage of limits by a node of the offering.
    pub(crate) fn capacity(&self, offering: Id<Offering>) -> &'a Amounts {
        let view = &self.data.offerings[offering];
        view.counted.as_ref().unwrap_or(&self.data.types[view.type_index].capacity)
    }

    /// Usage of limits by a node of the offering, if it differs from that of the type.
    pub(crate) fn own_capacity(&self, offering: Id<Offering>) -> Option<&'a Amounts> {
        self.data.offerings[offering].counted.as_ref()
    }

    /// What a node of this pool counts against limits. If nobody recorded its price, the catalog's counts.
    pub(crate) fn usage_of(&self, node: &Node, table: &ResourceTable) -> Amounts {
        let mut usage = table.vector(&node.limit_usage);
        let place = table.place(USD_PER_HOUR_RESOURCE).filter(|_| !node.limit_usage.contains(USD_PER_HOUR_RESOURCE));
        if let Some(amount) = place.and_then(|place| usage.get_mut(place)) {
            *amount = self.catalog.offering_of(&node.labels).map_or(0, |one| one.list_price().0);
        }
        usage
    }
}

/// Usage of limits by an offering, if it differs from that of its type: one instance of a capacity reservation, or its
/// price.
pub(super) fn counted(
    catalog: &Catalog,
    (kind, place): (Id<InstanceType>, usize),
    table: &ResourceTable,
) -> Option<Amounts> {
    let kind = catalog.instance_types.get(kind.number())?;
    let offering = kind.offerings.get(place)?;
    let is_more = offering.reservation.is_some() || table.place(USD_PER_HOUR_RESOURCE).is_some();
    is_more.then(|| table.vector(&kind.limit_usage(offering)))
}
