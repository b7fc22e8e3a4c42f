//! Instances as EC2 describes them.

use super::Tags;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::Timestamp;
use std::fmt;

/// Which instances to describe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceFilter {
    /// These ids. Ids that EC2 does not know are missing from the answer.
    Ids(Vec<String>),
    /// All instances with this launch group's tag, the cluster tag and the owner tag. Includes terminated ones while
    /// EC2 lists them.
    LaunchGroup {
        /// The cluster's name.
        cluster: String,
        /// The group's id.
        group: String,
    },
    /// All instances with our cluster *and* owner tags (safety rule 14).
    Cluster {
        /// The cluster's name.
        cluster: String,
    },
}

/// Instance states of EC2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum InstanceState {
    /// Being started.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Being stopped.
    Stopping,
    /// Stopped; can be started again.
    Stopped,
    /// Being terminated.
    ShuttingDown,
    /// Terminated; listed for about an hour.
    Terminated,
}

impl InstanceState {
    /// Whether the instance can still serve a claim: it is neither terminated nor terminating.
    #[must_use]
    pub fn is_alive(self) -> bool {
        !matches!(self, Self::ShuttingDown | Self::Terminated)
    }

    /// Whether the instance does not run, although it could be started again.
    #[must_use]
    pub fn is_stopped(self) -> bool {
        matches!(self, Self::Stopping | Self::Stopped)
    }
}

/// Why EC2 changed the state of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateReason {
    /// EC2's code, such as `Client.VolumeLimitExceeded`.
    pub code: String,
    /// EC2's message, which may begin with a code.
    pub message: String,
}

impl fmt::Display for StateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, message } = self;
        match (code.as_str(), message.as_str()) {
            ("", "") => f.write_str("EC2 tells no reason"),
            (only, "") | ("", only) => f.write_str(only),
            _ if message.starts_with(code) => f.write_str(message),
            _ => write!(f, "{code}: {message}"),
        }
    }
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Instance {
    /// `i-...`.
    pub id: String,
    /// State.
    pub state: InstanceState,
    /// Why it has its state, if EC2 tells.
    pub state_reason: Option<StateReason>,
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
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// The capacity reservation that the instance runs in.
    pub capacity_reservation_id: Option<String>,
    /// Partition of its placement group, once EC2 has chosen one.
    pub partition: Option<u32>,
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

/// Result of terminating one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Termination {
    /// `i-...`.
    pub instance_id: String,
    /// The current state; `None` if EC2 does not know the instance.
    pub state: Option<InstanceState>,
}

/// Result of an EC2 status check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusCheck {
    /// Passed, or not known yet.
    Ok,
    /// Failed.
    Impaired {
        /// Since when; `None` if EC2 does not say.
        since: Option<Timestamp>,
    },
}

/// A scheduled event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceEvent {
    /// `instance-retirement` or similar.
    pub code: String,
    /// Earliest start of the event.
    pub not_before: Option<Timestamp>,
}

/// Status checks and scheduled events of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceStatus {
    /// `i-...`.
    pub instance_id: String,
    /// The instance status check.
    pub instance: StatusCheck,
    /// The system (host) status check.
    pub system: StatusCheck,
    /// Scheduled events that have not completed.
    pub events: Vec<InstanceEvent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_instance_is_alive() {
        use InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Terminated};
        for (state, is_alive, is_stopped) in [
            (Pending, true, false),
            (Running, true, false),
            (Stopping, true, true),
            (Stopped, true, true),
            (ShuttingDown, false, false),
            (Terminated, false, false),
        ] {
            assert_eq!((state.is_alive(), state.is_stopped()), (is_alive, is_stopped), "{state:?}");
        }
    }

    #[test]
    fn the_code_of_a_reason_is_told_once() {
        let text =
            |code: &str, message: &str| StateReason { code: code.to_owned(), message: message.to_owned() }.to_string();
        let launch = "Client.InternalError: Client error on launch";
        assert_eq!(text("Client.InternalError", launch), launch);
        assert_eq!(text("Server.InternalError", launch), format!("Server.InternalError: {launch}"));
        assert_eq!(text("Client.VolumeLimitExceeded", ""), "Client.VolumeLimitExceeded");
        assert_eq!((text("", "why"), text("", "")), ("why".to_owned(), "EC2 tells no reason".to_owned()));
    }
}
