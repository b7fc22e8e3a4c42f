//! An indexed catalog, shared by all pools that use it: instance types with amounts as numbers, and sorted offerings.

use crate::input::intern::{Amounts, ResourceTable};
use crate::input::volumes;
use plimsoll_model::catalog::{Catalog, InstanceType};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::resources::CPU;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Amounts of an instance type as numbers.
#[derive(Debug)]
pub(crate) struct TypeView {
    pub(crate) allocatable: Amounts,
    /// Usage of limits.
    pub(crate) capacity: Amounts,
    /// See [`InstanceType::is_exotic`].
    pub(super) is_exotic: bool,
}

/// A catalog, indexed once for all pools that use it.
#[derive(Debug, Clone)]
pub(crate) struct CatalogView {
    pub(super) types: Arc<IndexVec<InstanceType, TypeView>>,
    /// All offerings as type, index in the type's list, and price, sorted by (price, CPU capacity of reserved
    /// offerings, type, key). Offerings of capacity reservations have nearly equal prices, so those of small types come
    /// first.
    pub(super) order: Vec<(Id<InstanceType>, usize, MicroUsdPerHour)>,
    /// Labels that at least one type has.
    pub(super) keys: Arc<BTreeSet<String>>,
}

impl CatalogView {
    /// Indexes `catalog` with the resource indices of `table`.
    pub(crate) fn new<'c>(catalog: &'c Catalog, table: &ResourceTable) -> Self {
        let types = catalog.instance_types.iter().map(|one| TypeView::new(one, table)).collect();
        let of_type = |(number, kind): (usize, &'c InstanceType)| {
            kind.offerings.iter().enumerate().map(move |(place, one)| {
                let size = one.reservation.as_ref().map_or(0, |_| kind.capacity.get(CPU));
                ((one.price, size), Id::new(number), one, place)
            })
        };
        let mut order: Vec<_> = catalog.instance_types.iter().enumerate().flat_map(of_type).collect();
        order.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| a.2.key().cmp(&b.2.key())));
        let order = order.into_iter().map(|((price, _), kind, _, place)| (kind, place, price)).collect();
        Self { types: Arc::new(types), order, keys: Arc::new(super::labels::of_types(catalog)) }
    }
}

impl TypeView {
    /// Converts the amounts of a type with the resource indices of `table`.
    pub(super) fn new(instance_type: &InstanceType, table: &ResourceTable) -> Self {
        let mut capacity = instance_type.capacity.clone();
        capacity.set(plimsoll_model::names::NODES_RESOURCE, 1);
        Self {
            allocatable: table.room(&instance_type.allocatable(), |driver| {
                volumes::usual_limit(driver, &instance_type.labels, false)
            }),
            capacity: table.vector(&capacity),
            is_exotic: instance_type.is_exotic(),
        }
    }
}
