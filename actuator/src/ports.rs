//! The cloud as the actuator sees it: narrow traits with plain types of our own, so that EC2's SDK stays in one adapter
//! and tests can stand in for the cloud.
//!
//! Adapters set a total deadline per call, retries included, and report what they know by [`CloudError`]; they never repeat
//! a mutating call that carries no client token.

mod compute;
mod facts;
mod fleet;
mod instances;
mod launch_templates;
mod network;
mod queue;
mod support;

pub use compute::Compute;
pub use facts::{InstanceTypeFacts, SpotPrice, TypeOffering};
pub use fleet::{FleetAnswer, FleetInstance, FleetRequest, LaunchTemplateConfig, OfferingError, Override};
pub use instances::{Instance, InstanceEvent, InstanceFilter, InstanceState, InstanceStatus, StatusCheck, Termination};
pub use launch_templates::{
    BlockDevice, LaunchTemplate, LaunchTemplateFilter, LaunchTemplateSpec, MetadataOptions, NetworkInterface,
    ReservationSpec,
};
pub use network::{Image, ImageQuery, SecurityGroup, SelectorTerm, Subnet};
pub use queue::{InterruptionQueue, QueueMessage};
pub use support::{InstanceProfile, InstanceProfiles, OnDemandPrice, Parameters, PriceList};

use std::collections::BTreeMap;
use std::sync::Arc;

/// All ports together. Clones share them.
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
}

/// Tags of a resource, by key.
pub type Tags = BTreeMap<String, String>;

/// What a call to the cloud came to, if not to an answer. Closed: whoever calls decides by these kinds alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// What the call is about does not exist. Definite.
    #[error("not found: {message}")]
    NotFound {
        /// What was looked for.
        message: String,
    },
    /// The whole request was refused for lack of capacity or quota. Definite; single offerings are in [`FleetAnswer::errors`].
    #[error("insufficient capacity: {message}")]
    InsufficientCapacity {
        /// The cloud's words.
        message: String,
    },
    /// Too many calls; nothing was done.
    #[error("throttled")]
    Throttled,
    /// Our credentials do not allow this; nothing was done.
    #[error("denied: {message}")]
    Denied {
        /// The cloud's words, without credentials.
        message: String,
    },
    /// The request is wrong and stays so; nothing was done.
    #[error("invalid request: {code}: {message}")]
    InvalidRequest {
        /// The cloud's error code.
        code: String,
        /// The cloud's words.
        message: String,
    },
    /// The client token was used with other parameters: some earlier request of that token was accepted (safety rule 3).
    #[error("the client token was used with other parameters")]
    IdempotentParameterMismatch,
    /// No answer: it may have happened or may yet happen.
    #[error("no answer, it may have happened: {message}")]
    Ambiguous {
        /// What is known, such as `timed out after 10 s`.
        message: String,
    },
    /// The call never left this process, or the service said that it did nothing. Safe to repeat.
    #[error("unavailable: {message}")]
    Unavailable {
        /// What is known.
        message: String,
    },
}

impl CloudError {
    /// Whether the cloud said for certain that nothing was done. Only then may a launch's attempt rise (safety rule 3).
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

    /// Whether the same call may do better later, without any change to it.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Throttled | Self::Ambiguous { .. } | Self::Unavailable { .. })
    }
}
