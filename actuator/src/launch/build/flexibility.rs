//! Which types a launch keeps beside its cheapest one: `minValues` of the pool, and no bare metal or accelerators that
//! nobody asked for.

use super::Refusal;
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::snapshot::LaunchLabels;
use std::collections::BTreeSet;

/// Whether the launch must keep a number of values of some label. The plan has lowered `minValues` that cannot be met,
/// if the policy allows that.
pub(super) fn has_min_values(launch: &Launch) -> bool {
    launch.requirements.iter().any(|requirement| requirement.min_values.is_some())
}

/// Checks that the offerings that are available now still have the number of values that `minValues` asks for.
pub(super) fn check_min_values(launch: &Launch, open: &[OfferingChoice], catalog: &Catalog) -> Result<(), Refusal> {
    for requirement in launch.requirements.iter() {
        let Some(wanted) = requirement.min_values else { continue };
        let key = label::normalized(&requirement.key);
        let values: BTreeSet<&str> = open.iter().filter_map(|choice| value(choice, key, launch, catalog)).collect();
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        if values.len() < wanted {
            let message = format!(
                "NodePool {}: minValues asks for {wanted} values of {}, but only {} are available now",
                launch.node_pool,
                requirement.key,
                values.len()
            );
            return Err(Refusal::new(OutcomeReason::NoCapacity, message));
        }
    }
    Ok(())
}

/// The value of a label of the node that is bought as `choice`.
fn value<'a>(choice: &OfferingChoice, key: &str, launch: &'a Launch, catalog: &'a Catalog) -> Option<&'a str> {
    let (kind, offering) = catalog.find(choice)?;
    LaunchLabels { launch, catalog, kind, offering }.get(key)
}

/// Drops bare metal types and types with accelerators unless nothing else remains: pods that need them fit no other
/// type. Reserved instances are paid for anyway. A plan lists such types only for pods that need them.
pub(super) fn prefer_ordinary_types(open: &mut Vec<OfferingChoice>, catalog: &Catalog) {
    let is_kept = |choice: &OfferingChoice| {
        choice.capacity_type == CapacityType::Reserved
            || catalog.get(&choice.instance_type).is_some_and(|instance_type| !instance_type.is_exotic())
    };
    if open.iter().any(is_kept) {
        open.retain(is_kept);
    }
}
