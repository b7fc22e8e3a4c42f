//! The cloud as the actuator sees it: narrow traits with our own plain types. The EC2 SDK stays in one adapter, and
//! tests can substitute the cloud.
//!
//! Adapters set a total timeout per call, retries included, and report errors as [`CloudError`]. They never retry a
//! mutating call that has no client token.

mod compute;
mod facts;
mod fleet;
mod instances;
mod launch_templates;
mod network;
mod placement;
mod queue;
mod reservations;
mod support;
mod zonal_shift;

pub use compute::Compute;
pub use facts::{InstanceTypeFacts, SpotPrice, TypeOffering};
pub use fleet::{
    FleetAnswer, FleetInstance, FleetRequest, InstanceRequest, LaunchTemplateConfig, OfferingError, Override,
};
pub use instances::{
    Instance, InstanceEvent, InstanceFilter, InstanceState, InstanceStatus, StateReason, StatusCheck, Termination,
};
pub use launch_templates::{
    BlockDevice, LaunchTemplate, LaunchTemplateFilter, LaunchTemplateSpec, MarketType, MetadataOptions,
    NetworkInterface, ReservationSpec,
};
pub use network::{Image, ImageQuery, SecurityGroup, SelectorTerm, Subnet};
pub use placement::{PlacementGroup, PlacementGroupTerm, PlacementStrategy};
pub use queue::{InterruptionQueue, QueueMessage};
pub use reservations::{CapacityReservation, InstanceMatchCriteria, ReservationTerm, ReservationType};
pub use support::{
    ClusterDescription, InstanceProfile, InstanceProfiles, ManagedControlPlane, OnDemandPrice, Parameters, PriceList,
};
pub use zonal_shift::{ManagedResource, ZonalShift};

use std::collections::BTreeMap;
use std::sync::Arc;

/// All ports. Clones share them.
#[derive(Debug, Clone)]
pub struct Cloud {
    /// EC2.
    pub compute: Arc<dyn Compute>,
    /// SSM.
    pub parameters: Arc<dyn Parameters>,
    /// IAM.
    pub profiles: Arc<dyn InstanceProfiles>,
    /// The price list.
    pub prices: Arc<dyn PriceList>,
    /// The interruption queue, if there is one.
    pub queue: Option<Arc<dyn InterruptionQueue>>,
    /// ARC's answers about the cluster, if zonal shifts are followed.
    pub managed_resource: Option<Arc<dyn ManagedResource>>,
}

/// Tags of a resource, by key.
pub type Tags = BTreeMap<String, String>;

/// Outcome of a failed cloud call. The enum is exhaustive: callers decide by its variants alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// The subject of the call does not exist. Definite.
    #[error("not found: {message}")]
    NotFound {
        /// What was looked up.
        message: String,
    },
    /// The whole request was refused for lack of capacity or quota. Definite. Refused offerings are reported in
    /// [`FleetAnswer::errors`].
    #[error("insufficient capacity: {message}")]
    InsufficientCapacity {
        /// The cloud's message.
        message: String,
    },
    /// Rate limited. Nothing was done.
    #[error("throttled")]
    Throttled,
    /// Our credentials do not permit the call. Nothing was done.
    #[error("denied: {message}")]
    Denied {
        /// The cloud's code and message, as in `UnauthorizedOperation: ...`.
        message: String,
    },
    /// The request is invalid and would fail again. Nothing was done.
    #[error("invalid request: {code}: {message}")]
    InvalidRequest {
        /// The cloud's error code.
        code: String,
        /// The cloud's message.
        message: String,
    },
    /// The client token was used with other parameters: an earlier request with that token was accepted (safety rule
    /// 3).
    #[error("the client token was used with other parameters")]
    IdempotentParameterMismatch,
    /// No response. The call may have taken effect, or may yet.
    #[error("no response, the call may have taken effect: {message}")]
    Ambiguous {
        /// Detail, such as `timed out after 10 s`.
        message: String,
    },
    /// The call never left this process, or the service reported that nothing was done. Safe to retry.
    #[error("unavailable: {message}")]
    Unavailable {
        /// Detail.
        message: String,
    },
}

impl CloudError {
    /// Whether the error proves that nothing was done. Only then may the attempt number of a launch increase (safety
    /// rule 3).
    #[must_use]
    pub fn nothing_happened(&self) -> bool {
        match self {
            Self::NotFound { .. }
            | Self::InsufficientCapacity { .. }
            | Self::Throttled
            | Self::Denied { .. }
            | Self::InvalidRequest { .. }
            | Self::Unavailable { .. } => true,
            Self::IdempotentParameterMismatch | Self::Ambiguous { .. } => false,
        }
    }

    /// Whether the same call may succeed later without changes.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Throttled | Self::Ambiguous { .. } | Self::Unavailable { .. })
    }
}
