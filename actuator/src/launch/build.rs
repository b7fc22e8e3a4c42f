//! A claim from the live pool and node class (safety rule 5): a plan may narrow what they allow, never add to it.

mod narrow;
mod object;
#[cfg(test)]
mod tests;

pub(super) use object::labels;
pub use object::{GroupFacts, object};

use plimsoll_api::{EC2NodeClass, NodePool};
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::Requirements;
use plimsoll_model::resources::Resources;
use std::sync::Arc;

/// Types in one launch, as Karpenter sends at most.
pub const MAX_TYPES: usize = 60;
/// Overrides in one request, as EC2 takes at most.
pub const MAX_OVERRIDES: usize = 300;

/// What a launch rests on, as the actuator itself sees it now.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    /// The pool.
    pub pool: &'a NodePool,
    /// Its node class.
    pub class: &'a EC2NodeClass,
    /// What the node class can buy.
    pub catalog: &'a Catalog,
}

/// A launch that is within what pool and node class allow.
#[derive(Debug, Clone, PartialEq)]
pub struct Narrowed {
    /// The plan's, with only those offerings that can be asked for now, all bought one way.
    pub launch: Launch,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Requirements of the claim: the pool's and the plan's together.
    pub requirements: Requirements,
    /// What pods may use of any of the types, at the least.
    pub allocatable: Resources,
}

/// Why a launch is not within what pool and node class allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// In the wire's words.
    pub reason: OutcomeReason,
    /// For people.
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

/// Checks a launch against the live pool and keeps those offerings that can be asked for now. `closed` tells of offerings
/// known to have no capacity.
///
/// # Errors
/// The plan asks for what the pool does not allow, or nothing is left.
pub fn narrow(launch: &Launch, live: Live<'_>, closed: impl Fn(&OfferingChoice) -> bool) -> Result<Narrowed, Refusal> {
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
    let offerings = narrow::worth_asking(open, capacity_type);
    let requirements = narrow::to_offerings(requirements, &offerings);
    let allocatable = narrow::least(&offerings, live.catalog);
    Ok(Narrowed {
        launch: Launch { offerings: Arc::new(offerings), ..launch.clone() },
        capacity_type,
        requirements,
        allocatable,
    })
}
