//! What a catalog sells, whichever pool buys it: instance types with their amounts as numbers, offerings in order.

use crate::input::intern::{Amounts, ResourceTable};
use crate::input::volumes;
use plimsoll_model::catalog::{Catalog, InstanceType};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An instance type's amounts as numbers.
#[derive(Debug)]
pub(crate) struct TypeView {
    pub(crate) allocatable: Amounts,
    /// What it counts against limits.
    pub(crate) capacity: Amounts,
}

/// A catalog, looked at once for all pools that buy from it.
#[derive(Debug, Clone)]
pub(crate) struct CatalogView {
    pub(super) types: Arc<Vec<TypeView>>,
    /// All offerings as numbers of type and place among the type's, sorted by (price, type, zone, capacity type).
    pub(super) order: Vec<(usize, usize)>,
    /// Labels that any type has.
    pub(super) keys: Arc<BTreeSet<String>>,
}

impl CatalogView {
    /// Of `catalog`, by the numbers of `table`.
    pub(crate) fn new(catalog: &Catalog, table: &ResourceTable) -> Self {
        let types = catalog.instance_types.iter().map(|one| TypeView::new(one, table)).collect();
        let places =
            |(number, kind): (usize, &InstanceType)| (0..kind.offerings.len()).map(move |place| (number, place));
        let mut order: Vec<(usize, usize)> = catalog.instance_types.iter().enumerate().flat_map(places).collect();
        let bought = |(number, place): (usize, usize)| &catalog.instance_types[number].offerings[place];
        order.sort_by(|a, b| {
            let rest = |one: (usize, usize)| (&bought(one).zone, bought(one).capacity_type);
            (bought(*a).price, a.0).cmp(&(bought(*b).price, b.0)).then_with(|| rest(*a).cmp(&rest(*b)))
        });
        Self { types: Arc::new(types), order, keys: Arc::new(super::labels::of_types(catalog)) }
    }
}

impl TypeView {
    /// Of that type, by the numbers of `table`.
    pub(super) fn new(instance_type: &InstanceType, table: &ResourceTable) -> Self {
        let mut capacity = instance_type.capacity.clone();
        capacity.set(plimsoll_model::names::NODES_RESOURCE, 1);
        Self {
            allocatable: table
                .room(&instance_type.allocatable(), |driver| volumes::usual_limit(driver, Some(instance_type), false)),
            capacity: table.vector(&capacity),
        }
    }
}
