//! The scheduling shape of a pod: all that decides where it can run.

use super::OnDemandWish;
use crate::identity::{ContentHasher, ShapeId};
use crate::names::label;
pub use crate::requirements::LabelSelector;
use crate::requirements::{NodeSelectorTerm, selects_node};
use crate::resources::Resources;
use crate::taints::Toleration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything about a pod that the solver looks at: pods of one shape are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct PodShape {
    /// [`PodShape::content_id`] of the rest.
    pub id: ShapeId,
    /// Namespace: selectors of spread and affinity count within it.
    pub namespace: String,
    /// Labels that selectors of spread and affinity may look at.
    pub labels: BTreeMap<String, String>,
    /// Effective request as kube-scheduler counts it (init containers, sidecars, pod level, overhead), with `pods: 1`.
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: any one of the terms; empty means no constraint.
    pub required_node_affinity: Vec<NodeSelectorTerm>,
    /// Preferred node affinity.
    pub preferred_node_affinity: Vec<PreferredTerm>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Ports on the host.
    pub host_ports: Vec<HostPort>,
    /// Topology spread constraints.
    pub topology_spread: Vec<TopologySpread>,
    /// Pod affinity and anti-affinity, required and preferred.
    pub pod_affinity: Vec<PodAffinityTerm>,
    /// Where its volumes can be attached: all of these, each with alternatives.
    pub volumes: Vec<VolumeTopology>,
    /// Dynamic resource claims by name.
    pub resource_claims: Vec<String>,
    /// Priority.
    pub priority: i32,
    /// How many pods of its workload run On-Demand at the least, if it says so.
    pub on_demand: Option<OnDemandWish>,
}

impl PodShape {
    /// Hash of all fields but `id`; 32 hexadecimal digits.
    #[must_use]
    pub fn content_id(&self) -> ShapeId {
        let mut hasher = ContentHasher::new("pod shape");
        let bare = Self { id: ShapeId::default(), ..self.clone() };
        // Debug output of ordered collections is a faithful, deterministic rendering of every field.
        hasher.text(&format!("{bare:?}"));
        ShapeId(hasher.hex(32))
    }

    /// Whether the node of that name with these labels satisfies the node selector and the required node affinity.
    #[must_use]
    pub fn selects_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        selects_node(&self.node_selector, &self.required_node_affinity, name, |key| label::lookup(labels, key))
    }

    /// Whether all volumes can be attached to the node of that name with these labels.
    #[must_use]
    pub fn attaches_to_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let near = |term: &NodeSelectorTerm| term.matches_node_with(name, |key| label::lookup(labels, key));
        self.volumes.iter().all(|volume| volume.alternatives.is_empty() || volume.alternatives.iter().any(near))
    }
}

/// One term of preferred node affinity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: NodeSelectorTerm,
}

/// A port that a pod takes on its host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// Address; `0.0.0.0` where the pod names none.
    pub ip: String,
    /// Port, 1 to 65535.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

impl HostPort {
    /// Whether both cannot be on one host.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || any(&self.ip) || any(&other.ip))
    }
}

/// A topology spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopologySpread {
    /// Key of the domains.
    pub topology_key: String,
    /// Allowed difference, at least 1.
    pub max_skew: i32,
    /// Fewest domains; `None` means 1.
    pub min_domains: Option<i32>,
    /// DoNotSchedule if true, ScheduleAnyway if false.
    pub required: bool,
    /// Pods that count; `None` selects nothing.
    pub selector: Option<LabelSelector>,
    /// nodeAffinityPolicy is Honor.
    pub honor_node_affinity: bool,
    /// nodeTaintsPolicy is Honor.
    pub honor_node_taints: bool,
}

/// A term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodAffinityTerm {
    /// Anti-affinity if true.
    pub anti: bool,
    /// `None` if required, else the weight of the preference, 1 to 100.
    pub weight: Option<i32>,
    /// Key of the domains.
    pub topology_key: String,
    /// Pods it is about; `None` selects nothing.
    pub selector: Option<LabelSelector>,
    /// Namespaces of those pods, resolved.
    pub namespaces: Vec<String>,
}

/// Where one volume can be attached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeTopology {
    /// The claim's name.
    pub claim: String,
    /// CSI driver, empty where unknown.
    pub driver: String,
    /// Any one of these; empty means anywhere.
    pub alternatives: Vec<NodeSelectorTerm>,
    /// Why the pod cannot be placed at all: `persistent volume claim "data" not found`.
    pub problem: Option<String>,
}
