//! The kinds that the index holds.

use super::Held;
use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplateSpec, ReplicationController,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::Resource;
use plimsoll_api::{EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident => $name:literal, $($field:ident).+;)+) => {
        /// A kind of object.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind),+ }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Its plural, as the API names it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }
        }

        $(impl Indexed for $kind {
            const KIND: Kind = Kind::$kind;
            fn list(held: &mut Held) -> &mut Vec<Self> {
                &mut held.$($field).+
            }
            fn simplify(&mut self) {
                Simplify::simplify(self);
            }
        })+
    };
}

/// A kind that the index holds.
pub trait Indexed:
    Resource<DynamicType = ()> + Clone + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
    /// Which.
    const KIND: Kind;
    /// Its list.
    fn list(held: &mut Held) -> &mut Vec<Self>;
    /// Takes out what changes without meaning anything here.
    fn simplify(&mut self);
}

kinds! {
    /// Nodes.
    Node => "nodes", objects.nodes;
    /// Claims.
    NodeClaim => "nodeclaims", objects.node_claims;
    /// Pools.
    NodePool => "nodepools", objects.node_pools;
    /// Node classes.
    EC2NodeClass => "ec2nodeclasses", objects.node_classes;
    /// Overlays of prices and capacity.
    NodeOverlay => "nodeoverlays", objects.node_overlays;
    /// Pods.
    Pod => "pods", objects.pods;
    /// DaemonSets.
    DaemonSet => "daemonsets", objects.daemon_sets;
    /// Disruption budgets of pods.
    PodDisruptionBudget => "poddisruptionbudgets", objects.pod_disruption_budgets;
    /// Priority classes.
    PriorityClass => "priorityclasses", objects.priority_classes;
    /// Namespaces.
    Namespace => "namespaces", objects.namespaces;
    /// Volumes.
    PersistentVolume => "persistentvolumes", objects.persistent_volumes;
    /// Claims of volumes.
    PersistentVolumeClaim => "persistentvolumeclaims", objects.persistent_volume_claims;
    /// Storage classes.
    StorageClass => "storageclasses", objects.storage_classes;
    /// How many volumes each node takes.
    CSINode => "csinodes", objects.csi_nodes;
    /// Owners of pods.
    ReplicaSet => "replicasets", workloads.replica_sets;
    /// Owners of pods.
    StatefulSet => "statefulsets", workloads.stateful_sets;
    /// Owners of pods.
    Job => "jobs", workloads.jobs;
    /// Owners of pods.
    ReplicationController => "replicationcontrollers", workloads.replication_controllers;
}

/// What of a kind is left out.
trait Simplify {
    fn simplify(&mut self) {}
}

impl Simplify for NodeClaim {}
impl Simplify for NodePool {}
impl Simplify for EC2NodeClass {}

impl Simplify for NodeOverlay {
    fn simplify(&mut self) {
        self.status = None;
    }
}

impl Simplify for Pod {}
impl Simplify for DaemonSet {}
impl Simplify for PodDisruptionBudget {}
impl Simplify for PriorityClass {}
impl Simplify for Namespace {}
impl Simplify for PersistentVolume {}
impl Simplify for PersistentVolumeClaim {}
impl Simplify for StorageClass {}
impl Simplify for CSINode {}

impl Simplify for Node {
    /// A kubelet's heartbeat and its list of images say nothing about room.
    fn simplify(&mut self) {
        let Some(status) = &mut self.status else { return };
        status.images = None;
        status.volumes_in_use = None;
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
    }
}

/// Of owners only the number matters, which is in their spec and status.
impl Simplify for ReplicaSet {
    fn simplify(&mut self) {
        self.status = None;
        if let Some(spec) = &mut self.spec {
            spec.template = None;
        }
    }
}

impl Simplify for StatefulSet {
    fn simplify(&mut self) {
        self.status = None;
        if let Some(spec) = &mut self.spec {
            spec.template = PodTemplateSpec::default();
            spec.volume_claim_templates = None;
        }
    }
}

impl Simplify for Job {
    fn simplify(&mut self) {
        if let Some(spec) = &mut self.spec {
            spec.template = PodTemplateSpec::default();
        }
    }
}

impl Simplify for ReplicationController {
    fn simplify(&mut self) {
        self.status = None;
        if let Some(spec) = &mut self.spec {
            spec.template = None;
        }
    }
}
