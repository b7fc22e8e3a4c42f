//! Responses of the peer.

use serde::{Deserialize, Serialize};

/// Response to one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Version of its module.
    pub(super) karpenter: String,
    /// Why there are no results.
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) results: Option<Vec<Outcome>>,
}

/// A plan for one seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    pub(super) launches: Vec<Launch>,
    pub(super) existing: Vec<Existing>,
    pub(super) unschedulable: Vec<Unschedulable>,
    pub(super) timed_out: bool,
}

/// A node to launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Launch {
    pub(super) node_pool: String,
    pub(super) offering: Option<Offering>,
    #[serde(default)]
    pub(super) requirements: Option<Vec<Requirement>>,
    pub(super) pods: Vec<String>,
}

/// A requirement of the launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Requirement {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) values: Vec<String>,
}

/// The cheapest offering of the launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Offering {
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) capacity_type: String,
    pub(super) price: f64,
}

/// Pods for an existing node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Existing {
    pub(super) node: String,
    pub(super) pods: Vec<String>,
}

/// An unschedulable pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Unschedulable {
    pub(super) pod: String,
    pub(super) reasons: Vec<Reason>,
}

/// Why a pod is unschedulable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Reason {
    pub(super) message: String,
}
