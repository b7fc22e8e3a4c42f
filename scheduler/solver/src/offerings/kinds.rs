//! Instance types with their amounts as numbers.

use crate::intern::{Amounts, ResourceTable};
use crate::volumes;
use plimsoll_model::catalog::InstanceType;

/// An instance type's amounts as numbers.
#[derive(Debug)]
pub(crate) struct TypeView {
    pub(crate) allocatable: Amounts,
    /// What it counts against limits.
    pub(crate) capacity: Amounts,
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
