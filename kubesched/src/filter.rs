//! Why a node does not take a pod, and the nominated pods that count there.

use crate::lookup::is_set;
use plimsoll_model::snapshot::HostPort;
use std::borrow::Borrow;
use std::fmt;

/// Why a node does not take a pod. In the order of kube-scheduler's filter plugins, the first that refuses the node is
/// given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// No pod of this shape is pending in the snapshot, so that nothing is known of it.
    NotPending,
    /// The node is cordoned, or on its way out.
    Unschedulable,
    /// The node is not ready.
    NotReady,
    /// The pod does not tolerate a taint.
    Taint,
    /// Node selector or required node affinity.
    NodeAffinity,
    /// Another pod has one of the host ports.
    HostPorts,
    /// Too little of a resource: [`ClusterState::insufficient`](crate::ClusterState::insufficient) says of which.
    Resources,
    /// A volume cannot be attached to the node.
    VolumeAffinity,
    /// The node has no label of the key of a required topology spread constraint.
    MissingTopologyLabel,
    /// A required topology spread constraint.
    TopologySpread,
    /// Required pod affinity.
    PodAffinity,
    /// Required pod anti-affinity of the pod.
    PodAntiAffinity,
    /// Required pod anti-affinity of another pod.
    ExistingPodAntiAffinity,
}

impl Rejection {
    /// Whether the node could take the pod if other pods left it; preemption cannot help otherwise.
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
    /// As kube-scheduler's `FailedScheduling` event says it.
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

/// Pods that are nominated to a node: few shapes, and how many of each.
#[derive(Debug, Clone, Default)]
pub struct Nominated(Vec<(usize, i64)>);

impl Nominated {
    /// One more pod of that shape.
    pub fn add(&mut self, shape: usize) {
        match self.0.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, count)) => *count += 1,
            None => self.0.push((shape, 1)),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, i64)> {
        self.0.iter().copied()
    }

    /// Pods of the shapes that are `selected`.
    pub(crate) fn count(&self, selected: &[bool]) -> i64 {
        self.iter().filter(|(shape, _)| is_set(selected, *shape)).map(|(_, count)| count).sum()
    }

    pub(crate) fn of(&self, shape: usize) -> i64 {
        self.iter().find(|(known, _)| *known == shape).map_or(0, |(_, count)| count)
    }
}

/// Whether any of the `wanted` host ports conflicts with one that is `taken`.
#[must_use]
pub fn ports_conflict(wanted: &[HostPort], taken: &[impl Borrow<HostPort>]) -> bool {
    wanted.iter().any(|port| taken.iter().any(|other| other.borrow().conflicts(port)))
}
