//! The kinds that the index holds.

use super::Held;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Container, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, PodTemplateSpec,
    ReplicationController,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::Resource;
use plimsoll_api::{CapacityBuffer, EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
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
    /// Room that is kept for pods to come.
    CapacityBuffer => "capacitybuffers", objects.capacity_buffers;
    /// What it is kept for.
    PodTemplate => "podtemplates", objects.pod_templates;
    /// Likewise.
    Deployment => "deployments", objects.deployments;
    /// Owners of pods; room may be kept for more of them.
    ReplicaSet => "replicasets", objects.replica_sets;
    /// Likewise.
    StatefulSet => "statefulsets", objects.stateful_sets;
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

impl Simplify for CapacityBuffer {
    /// What others say of it changes no room.
    fn simplify(&mut self) {
        self.status = None;
    }
}

impl Simplify for PodTemplate {
    fn simplify(&mut self) {
        self.template.iter_mut().for_each(slim);
    }
}

impl Simplify for Deployment {
    fn simplify(&mut self) {
        self.status = None;
        if let Some(spec) = &mut self.spec {
            slim(&mut spec.template);
        }
    }
}

/// Of owners the number matters, which is in their spec, and for CapacityBuffers the template. That of a ReplicaSet which a Deployment made is the
/// Deployment's, and there may be ten such for each.
impl Simplify for ReplicaSet {
    fn simplify(&mut self) {
        self.status = None;
        let owned = self.metadata.owner_references.iter().flatten().next().is_some();
        if let Some(spec) = &mut self.spec {
            spec.template.take_if(|_| owned);
            spec.template.iter_mut().for_each(slim);
        }
    }
}

impl Simplify for StatefulSet {
    fn simplify(&mut self) {
        self.status = None;
        if let Some(spec) = &mut self.spec {
            slim(&mut spec.template);
            spec.volume_claim_templates = None;
        }
    }
}

/// Takes out of a template what says nothing about where its pods can run: most of it, and all that may be secret.
fn slim(template: &mut PodTemplateSpec) {
    if let Some(metadata) = &mut template.metadata {
        metadata.annotations = None;
    }
    let Some(spec) = &mut template.spec else { return };
    (spec.volumes, spec.security_context, spec.image_pull_secrets, spec.dns_config) = (None, None, None, None);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        *container = Container {
            name: std::mem::take(&mut container.name),
            ports: container.ports.take(),
            resources: container.resources.take(),
            restart_policy: container.restart_policy.take(),
            ..Container::default()
        };
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
