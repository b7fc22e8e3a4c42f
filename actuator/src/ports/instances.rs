//! Instances as EC2 describes them.

use super::Tags;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::Timestamp;

/// Which instances to describe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceFilter {
    /// These; ids that EC2 does not know are missing from the answer, not an error.
    Ids(Vec<String>),
    /// All with this launch group's tag, cluster and owner tags too; terminated ones included as long as EC2 shows them.
    LaunchGroup {
        /// The cluster's name.
        cluster: String,
        /// The group's id.
        group: String,
    },
    /// All with our cluster *and* owner tags (safety rule 14).
    Cluster {
        /// The cluster's name.
        cluster: String,
    },
}

/// EC2's states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceState {
    /// Being started.
    Pending,
    /// Running.
    Running,
    /// Being stopped.
    Stopping,
    /// Stopped; it can be started again.
    Stopped,
    /// On its way to terminated.
    ShuttingDown,
    /// Gone; shown for about an hour.
    Terminated,
}

impl InstanceState {
    /// Whether it can still serve a claim: neither gone nor going.
    #[must_use]
    pub fn is_alive(self) -> bool {
        !matches!(self, Self::ShuttingDown | Self::Terminated)
    }
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// `i-...`.
    pub id: String,
    /// State.
    pub state: InstanceState,
    /// Instance type.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// Image.
    pub image_id: String,
    /// Subnet.
    pub subnet_id: String,
    /// Security groups, sorted.
    pub security_group_ids: Vec<String>,
    /// How it was bought.
    pub capacity_type: CapacityType,
    /// The reservation it runs in.
    pub capacity_reservation_id: Option<String>,
    /// Private DNS name; empty while there is none.
    pub private_dns_name: String,
    /// When it was launched.
    pub launched: Timestamp,
    /// Tags.
    pub tags: Tags,
}

impl Instance {
    /// The providerID of its Node: `aws:///<zone>/<id>`.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }
}

/// What became of one instance that was to be terminated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Termination {
    /// `i-...`.
    pub instance_id: String,
    /// Its state now; `None` if EC2 does not know it.
    pub state: Option<InstanceState>,
}

/// One of EC2's checks of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusCheck {
    /// Nothing wrong, or not known yet.
    Ok,
    /// Failed.
    Impaired {
        /// Since when; `None` where EC2 does not say.
        since: Option<Timestamp>,
    },
}

/// A scheduled event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceEvent {
    /// `instance-retirement` and the like.
    pub code: String,
    /// Not before.
    pub not_before: Option<Timestamp>,
}

/// How an instance fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceStatus {
    /// `i-...`.
    pub instance_id: String,
    /// The instance's own reachability.
    pub instance: StatusCheck,
    /// The host's.
    pub system: StatusCheck,
    /// Scheduled events that are not over.
    pub events: Vec<InstanceEvent>,
}
