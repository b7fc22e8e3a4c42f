//! Reasons why a node rejects a pod, and the nominated pods that a filter takes into account.

use crate::domains::is_set;
use plimsoll_model::snapshot::HostPort;
use std::borrow::Borrow;
use std::fmt;

/// Why a node rejects a pod. If several filter plugins reject the node, the first in kube-scheduler's order is
/// reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// No pod of this shape is pending in the snapshot, so the shape's rules are not loaded.
    NotPending,
    /// The node is cordoned or being deleted.
    Unschedulable,
    /// The node is not ready.
    NotReady,
    /// The pod does not tolerate a taint of the node.
    Taint,
    /// The node selector or the required node affinity does not match.
    NodeAffinity,
    /// Another pod uses one of the host ports.
    HostPorts,
    /// Insufficient resources. [`ClusterState::insufficient`](crate::ClusterState::insufficient) returns their names.
    Resources,
    /// A volume cannot be attached to the node.
    VolumeAffinity,
    /// The node does not have the topology key of a required topology spread constraint.
    MissingTopologyLabel,
    /// A required topology spread constraint would be violated.
    TopologySpread,
    /// Required pod affinity of the pod.
    PodAffinity,
    /// Required pod anti-affinity of the pod.
    PodAntiAffinity,
    /// Required pod anti-affinity of another pod.
    ExistingPodAntiAffinity,
}

impl Rejection {
    /// Whether the node could run the pod if other pods left the node. Otherwise preemption cannot help.
    #[must_use]
    pub fn is_resolvable(self) -> bool {
        matches!(
            self,
            Self::HostPorts
                | Self::Resources
                | Self::TopologySpread
                | Self::PodAntiAffinity
                | Self::ExistingPodAntiAffinity
        )
    }
}

impl fmt::Display for Rejection {
    /// The text in kube-scheduler's `FailedScheduling` event.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPending => "node(s) were not tried: the pod is not pending",
            Self::Unschedulable => "node(s) were unschedulable",
            Self::NotReady => "node(s) were not ready",
            Self::Taint => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::HostPorts => "node(s) didn't have free ports for the requested pod ports",
            Self::Resources => "node(s) had insufficient resources",
            Self::VolumeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::MissingTopologyLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::TopologySpread => "node(s) didn't match pod topology spread constraints",
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingPodAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
        })
    }
}

/// Pods that are nominated to a node: count by shape. A list, because few shapes are nominated to one node.
#[derive(Debug, Clone, Default)]
pub struct Nominated(Vec<(usize, i64)>);

impl Nominated {
    /// Adds one pod of the shape.
    pub fn add(&mut self, shape: usize) {
        match self.0.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, count)) => *count += 1,
            None => self.0.push((shape, 1)),
        }
    }

    /// Whether no pod is nominated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, i64)> {
        self.0.iter().copied()
    }

    /// Number of pods of the `selected` shapes.
    pub(crate) fn count(&self, selected: &[bool]) -> i64 {
        self.iter().filter(|(shape, _)| is_set(selected, *shape)).map(|(_, count)| count).sum()
    }

    pub(crate) fn of(&self, shape: usize) -> i64 {
        self.iter().find(|(known, _)| *known == shape).map_or(0, |(_, count)| count)
    }
}

/// Whether any of the `wanted` host ports conflicts with a `taken` host port.
#[must_use]
pub fn ports_conflict(wanted: &[HostPort], taken: &[impl Borrow<HostPort>]) -> bool {
    wanted.iter().any(|port| taken.iter().any(|other| other.borrow().conflicts(port)))
}
