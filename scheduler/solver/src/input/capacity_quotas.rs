//! What offerings count against CapacityQuotas. Each limit of a quota is a resource of its own, which all pools share.

use crate::input::custom_labels::Narrowed;
use crate::input::intern::{Amounts, Bits, ResourceTable};
use crate::input::offerings::{Alternative, PoolData, PoolView};
use plimsoll_model::catalog::{Catalog, Offering};
use plimsoll_model::names::NODES_RESOURCE;
use plimsoll_model::snapshot::{CapacityQuota, quota_of_resource};

/// The resource of a NodePool or node that this resource of the table counts.
pub(crate) fn counted_resource(name: &str) -> &str {
    quota_of_resource(name).map_or(name, |(_, resource)| resource)
}

/// What nodes with these usages leave of the limits of `quotas`, by resource of the table. Nodes being deleted still
/// count.
pub(crate) fn left<'u>(
    quotas: &[CapacityQuota],
    table: &ResourceTable,
    usages: &(impl Iterator<Item = &'u Amounts> + Clone),
) -> Vec<(usize, i64)> {
    let left = quotas.iter().flat_map(CapacityQuota::resources).filter_map(|(name, _, limit)| {
        let place = table.place(&name)?;
        let used = usages.clone().filter_map(|usage| usage.get(place));
        Some((place, used.fold(limit, |left, used| left.saturating_sub(*used))))
    });
    left.collect()
}

/// Offerings whose nodes `quota` may count. A custom label that the quota selects by counts if the pool allows such a
/// value, since the launch chooses the value.
pub(super) fn counted_by(view: &PoolView<'_>, quota: &CapacityQuota) -> Bits<Offering> {
    let size = view.offerings.len();
    let mut counted = Alternative { offerings: Bits::all(size), custom: Narrowed::new() };
    let holds = quota.selector.iter().all(|requirement| view.apply(&mut counted, requirement));
    if holds { counted.offerings } else { Bits::none(size) }
}

/// Adds to each offering in `counted` what a node of it counts against `quota`.
pub(super) fn charge(
    data: &mut PoolData,
    catalog: &Catalog,
    table: &ResourceTable,
    (quota, counted): (&CapacityQuota, &Bits<Offering>),
) {
    let resources: Vec<(usize, &str)> =
        quota.resources().filter_map(|(name, resource, _)| Some((table.place(&name)?, resource))).collect();
    for offering in counted.iter() {
        let Some(kind) = catalog.instance_types.get(data.offerings[offering].type_index.number()) else { continue };
        let amounts = data.own_capacity_mut(offering);
        for (place, resource) in &resources {
            let counted = if *resource == NODES_RESOURCE { 1 } else { kind.capacity.get(resource) };
            amounts.get_mut(*place).into_iter().for_each(|amount| *amount = counted);
        }
    }
}
