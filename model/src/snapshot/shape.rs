//! The scheduling shape of a pod: everything that affects where it can run.

use super::OnDemandRatio;
use crate::identity::{ContentHasher, ShapeId};
use crate::names::label;
pub use crate::requirements::LabelSelector;
use crate::requirements::{NodeSelectorTerm, selects_node};
use crate::resources::Resources;
use crate::taints::Toleration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All scheduling properties of a pod. Pods of one shape are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct PodShape {
    /// [`PodShape::content_id`] of the other fields.
    pub id: ShapeId,
    /// Namespace, in which selectors of topology spread apply.
    pub namespace: String,
    /// Labels that selectors of topology spread and pod affinity match.
    pub labels: BTreeMap<String, String>,
    /// Effective requests as kube-scheduler counts them (init containers, sidecars, pod level, overhead), with `pods:
    /// 1`.
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity. Terms are alternatives; empty means no constraint.
    pub required_node_affinity: Vec<NodeSelectorTerm>,
    /// Preferred node affinity.
    pub preferred_node_affinity: Vec<PreferredTerm>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports.
    pub host_ports: Vec<HostPort>,
    /// Topology spread constraints.
    pub topology_spread: Vec<TopologySpread>,
    /// Pod affinity and anti-affinity, required and preferred.
    pub pod_affinity: Vec<PodAffinityTerm>,
    /// Topology of each volume; all must be attachable.
    pub volumes: Vec<VolumeTopology>,
    /// Names of dynamic resource claims.
    pub resource_claims: Vec<String>,
    /// Priority.
    pub priority: i32,
    /// On-demand ratio of the pod's workload, if it is set.
    pub on_demand: Option<OnDemandRatio>,
}

impl PodShape {
    /// Hash of all fields but `id`; 32 hexadecimal digits.
    #[must_use]
    pub fn content_id(&self) -> ShapeId {
        let mut hasher = ContentHasher::new("pod shape");
        let without_id = Self { id: ShapeId::default(), ..self.clone() };
        // The debug output of ordered collections contains every field in a deterministic form.
        hasher.text(&format!("{without_id:?}"));
        ShapeId(hasher.hex(32))
    }

    /// Whether the node with this name and these labels satisfies the node selector and the required node affinity.
    #[must_use]
    pub fn selects_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        selects_node(&self.node_selector, &self.required_node_affinity, name, |key| label::lookup(labels, key))
    }

    /// Whether all volumes can be attached to the node with this name and these labels. A volume with a problem cannot
    /// be attached anywhere.
    #[must_use]
    pub fn attaches_to_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let is_attachable = |term: &NodeSelectorTerm| term.matches_node_with(name, |key| label::lookup(labels, key));
        self.volumes.iter().all(|volume| {
            volume.problem.is_none()
                && (volume.alternatives.is_empty() || volume.alternatives.iter().any(is_attachable))
        })
    }
}

/// A term of preferred node affinity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// Weight, 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: NodeSelectorTerm,
}

/// A host port of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// Host IP; `0.0.0.0` if the pod sets none.
    pub ip: String,
    /// Port, 1 to 65535.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

impl HostPort {
    /// Whether both ports cannot be used on one host.
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
    /// Topology key.
    pub topology_key: String,
    /// Maximum skew, at least 1.
    pub max_skew: i32,
    /// Minimum number of domains; `None` means 1.
    pub min_domains: Option<i32>,
    /// True for DoNotSchedule, false for ScheduleAnyway.
    pub required: bool,
    /// Pods that are counted; `None` selects nothing.
    pub selector: Option<LabelSelector>,
    /// True if nodeAffinityPolicy is Honor.
    pub honor_node_affinity: bool,
    /// True if nodeTaintsPolicy is Honor.
    pub honor_node_taints: bool,
}

/// A term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodAffinityTerm {
    /// True for anti-affinity.
    pub anti: bool,
    /// Weight of a preferred term, 1 to 100; `None` for a required term.
    pub weight: Option<i32>,
    /// Topology key.
    pub topology_key: String,
    /// Pods that the term selects; `None` selects nothing.
    pub selector: Option<LabelSelector>,
    /// Resolved namespaces of the selected pods.
    pub namespaces: Vec<String>,
}

impl PodAffinityTerm {
    /// Whether the term selects the pods of this shape.
    #[must_use]
    pub fn selects(&self, shape: &PodShape) -> bool {
        self.namespaces.contains(&shape.namespace)
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&shape.labels))
    }
}

/// Topology of a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeTopology {
    /// Name of the claim.
    pub claim: String,
    /// CSI driver; empty if unknown.
    pub driver: String,
    /// Alternative node selector terms; empty means any node.
    pub alternatives: Vec<NodeSelectorTerm>,
    /// Reason why the pod cannot be scheduled at all, such as `persistent volume claim "data" not found`.
    pub problem: Option<String>,
}
