//! Builds a claim from the live pool and node class (safety rule 5). A plan may narrow what they allow, but never
//! extend it.

mod flexibility;
mod narrow;
mod object;
pub(super) mod reserved;
#[cfg(test)]
mod tests;

pub(super) use narrow::{offerings, tenancy};
pub(super) use object::instance_profile;
pub use object::object;

use crate::launch_template;
use plimsoll_api::ec2_node_class::PlacementStrategy;
use plimsoll_api::{EC2NodeClass, NodePool};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::Requirements;
use std::sync::Arc;

/// Maximum number of instance types per launch, as in Karpenter.
pub const MAX_TYPES: usize = 60;
/// Maximum number of overrides that EC2 accepts in a request.
pub const MAX_OVERRIDES: usize = 300;

/// Why a launch is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Reason on the wire.
    pub reason: OutcomeReason,
    /// Human-readable message.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(reason: OutcomeReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    pub(super) fn pool(message: impl Into<String>) -> Self {
        Self::new(OutcomeReason::PoolChanged, message)
    }
}

/// Restricts a launch to the offerings that pool and node class allow and that can be requested now, all of one
/// capacity type. Also returns the requirements of its claim: the intersection of the pool's and the plan's. `closed`
/// returns whether an offering is known to lack capacity, `free` the free instances of a capacity reservation.
///
/// # Errors
/// The plan exceeds what the pool allows, or no offering remains.
pub fn narrow(
    launch: &Launch,
    pool: &NodePool,
    class: &EC2NodeClass,
    catalog: &Catalog,
    closed: impl Fn(&OfferingChoice) -> bool,
    free: impl Fn(&str) -> i64,
) -> Result<(Launch, Requirements), Refusal> {
    narrow::check_template(launch, pool, class)?;
    let requirements = narrow::requirements(launch, pool, class)?;
    let partition = requirements.find(label::PLACEMENT_GROUP_PARTITION);
    let placement_group = class.placement_group();
    launch_template::partition(placement_group, partition)
        .map_err(|error| Refusal::pool(format!("EC2NodeClass {}: {error}", launch.node_class)))?;
    let mut open = Vec::new();
    for choice in launch.offerings.iter() {
        let is_full = || choice.reservation.as_deref().is_some_and(|id| free(id) <= 0);
        if narrow::is_offered(choice, launch, catalog, &requirements)? && !closed(choice) && !is_full() {
            open.push(choice.clone());
        }
    }
    let flexible = flexibility::has_min_values(launch);
    if flexible {
        flexibility::check_min_values(launch, &open, catalog)?;
    } else {
        flexibility::prefer_ordinary_types(&mut open, catalog);
    }
    reserved::choose(&mut open, catalog, free);
    if !flexible {
        narrow::drop_dear_spot(&mut open);
    }
    let capacity_type = narrow::capacity_type(&open)
        .ok_or_else(|| Refusal::new(OutcomeReason::NoCapacity, "none of the launch's offerings is available now"))?;
    let mut offerings = narrow::cheapest_offerings(open, capacity_type, flexible);
    if placement_group.is_some_and(|group| group.strategy == PlacementStrategy::Cluster) {
        // A cluster is in one zone.
        let zone = offerings.first().map(|choice| choice.zone.clone());
        offerings.retain(|choice| Some(&choice.zone) == zone.as_ref());
    }
    let requirements = narrow::restrict_to(requirements, &offerings);
    Ok((Launch { offerings: Arc::new(offerings), ..launch.clone() }, requirements))
}
