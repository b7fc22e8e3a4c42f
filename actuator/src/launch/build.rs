//! Builds a claim from the live pool and node class (safety rule 5). A plan may narrow what they allow, but never
//! extend it.

mod narrow;
mod object;
#[cfg(test)]
mod tests;

pub(super) use object::labels;
pub use object::{GroupFacts, object};

use plimsoll_api::{EC2NodeClass, NodePool};
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::Requirements;
use plimsoll_model::resources::Resources;
use std::sync::Arc;

/// Maximum number of instance types per launch, as in Karpenter.
pub const MAX_TYPES: usize = 60;
/// Maximum number of overrides that EC2 accepts in a request.
pub const MAX_OVERRIDES: usize = 300;

/// The objects that a launch rests on, as the actuator sees them now.
#[derive(Debug, Clone, Copy)]
pub struct LiveObjects<'a> {
    /// The pool.
    pub pool: &'a NodePool,
    /// Its node class.
    pub class: &'a EC2NodeClass,
    /// The node class's catalog.
    pub catalog: &'a Catalog,
}

/// A launch restricted to what pool and node class allow.
#[derive(Debug, Clone, PartialEq)]
pub struct NarrowedLaunch {
    /// The plan's launch, with only the offerings that can be requested now, all of one capacity type.
    pub launch: Launch,
    /// Capacity type of the launch.
    pub capacity_type: CapacityType,
    /// Requirements of the claim: the intersection of the pool's and the plan's.
    pub requirements: Requirements,
    /// Minimum allocatable resources over all types.
    pub allocatable: Resources,
}

impl NarrowedLaunch {
    /// The tenancy of the instances.
    pub(super) fn tenancy(&self) -> &'static str {
        narrow::tenancy(self.requirements.find(label::INSTANCE_TENANCY)).unwrap_or("default")
    }
}

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
    fn new(reason: OutcomeReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    fn pool(message: impl Into<String>) -> Self {
        Self::new(OutcomeReason::PoolChanged, message)
    }
}

/// Checks a launch against the live pool and keeps the offerings that can be requested now. `closed` returns whether an
/// offering is known to lack capacity.
///
/// # Errors
/// The plan exceeds what the pool allows, or no offering remains.
pub fn narrow(
    launch: &Launch,
    live: LiveObjects<'_>,
    closed: impl Fn(&OfferingChoice) -> bool,
) -> Result<NarrowedLaunch, Refusal> {
    narrow::check_template(launch, live)?;
    let requirements = narrow::requirements(launch, live)?;
    let mut open = Vec::new();
    for choice in launch.offerings.iter() {
        if narrow::is_offered(choice, launch, live, &requirements)? && !closed(choice) {
            open.push(choice.clone());
        }
    }
    let capacity_type = narrow::capacity_type(&open)
        .ok_or_else(|| Refusal::new(OutcomeReason::NoCapacity, "none of the offerings can be asked for now"))?;
    let offerings = narrow::cheapest_offerings(open, capacity_type);
    let requirements = narrow::restrict_to(requirements, &offerings);
    let allocatable = narrow::min_allocatable(&offerings, live.catalog);
    Ok(NarrowedLaunch {
        launch: Launch { offerings: Arc::new(offerings), ..launch.clone() },
        capacity_type,
        requirements,
        allocatable,
    })
}
