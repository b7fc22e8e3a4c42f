//! Kinds of objects in the index.

use super::Store;
use super::owners::OwnerPods;
use k8s_openapi::api::apps::v1::{
    DaemonSet, Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec, StatefulSet, StatefulSetSpec,
};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{
    Namespace, Node, NodeCondition, NodeStatus, PersistentVolume, PersistentVolumeClaim, PodTemplate, PodTemplateSpec,
    ReplicationController, ReplicationControllerSpec,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use plimsoll_api::condition::READY;
use plimsoll_api::{CapacityBuffer, CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, Pod, SharedParts};
use plimsoll_model::names::annotation;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt::Debug;
use std::sync::Arc;

macro_rules! stored {
    ($kind:ty) => {
        $kind
    };
    ($kind:ty, $stored:ty) => {
        $stored
    };
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident => $name:literal, $($field:ident).+ $(as $stored:ty)?;)+) => {
        /// A kind of object.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ObjectKind { $($(#[$doc])* $kind),+ }

        impl ObjectKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Plural resource name in the Kubernetes API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }
        }

        $(impl Indexed for $kind {
            const KIND: ObjectKind = ObjectKind::$kind;
            type Stored = stored!(Self $(, $stored)?);
            fn stored(store: &Store) -> &[Self::Stored] {
                &store.$($field).+
            }
            fn stored_mut(store: &mut Store) -> &mut Vec<Self::Stored> {
                &mut store.$($field).+
            }
            fn simplify(&mut self) {
                Simplify::simplify(self);
            }
            fn share(&mut self, parts: &mut SharedParts) {
                Simplify::share(self, parts);
            }
            fn count(owners: &mut OwnerPods, before: Option<&Self>, after: Option<&Self>) {
                Simplify::count(owners, before, after);
            }
        })+
    };
}

/// An object type that the index stores.
pub trait Indexed:
    Resource<DynamicType = ()> + Clone + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
    /// The kind.
    const KIND: ObjectKind;
    /// How the list of this kind holds its objects.
    type Stored: Borrow<Self> + From<Self> + Debug + Send;
    /// The objects of this kind in `store`.
    fn stored(store: &Store) -> &[Self::Stored];
    /// The list of the objects of this kind in `store`.
    fn stored_mut(store: &mut Store) -> &mut Vec<Self::Stored>;
    /// Clears fields that are irrelevant to plans.
    fn simplify(&mut self);
    /// Shares what the object has in common with others.
    fn share(&mut self, parts: &mut SharedParts);
    /// Updates the pods of each owner after an object was inserted, replaced or removed.
    fn count(owners: &mut OwnerPods, before: Option<&Self>, after: Option<&Self>);
}

kinds! {
    /// Nodes.
    Node => "nodes", objects.nodes;
    /// NodeClaims.
    NodeClaim => "nodeclaims", objects.node_claims;
    /// NodePools.
    NodePool => "nodepools", objects.node_pools;
    /// Node classes.
    EC2NodeClass => "ec2nodeclasses", objects.node_classes;
    /// Overrides of prices and capacity.
    NodeOverlay => "nodeoverlays", objects.node_overlays;
    /// Pods.
    Pod => "pods", objects.pods as Arc<Pod>;
    /// DaemonSets.
    DaemonSet => "daemonsets", objects.daemon_sets;
    /// PodDisruptionBudgets.
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
    /// Volume limits of nodes.
    CSINode => "csinodes", objects.csi_nodes;
    /// CapacityBuffers, which reserve capacity for future pods.
    CapacityBuffer => "capacitybuffers", objects.capacity_buffers;
    /// CapacityQuotas, which limit nodes across NodePools.
    CapacityQuota => "capacityquotas", objects.capacity_quotas;
    /// Pod templates that CapacityBuffers refer to.
    PodTemplate => "podtemplates", objects.pod_templates;
    /// Owners of pods; CapacityBuffers may refer to them.
    Deployment => "deployments", objects.deployments;
    /// Owners of pods; CapacityBuffers may refer to them.
    ReplicaSet => "replicasets", objects.replica_sets;
    /// Owners of pods; CapacityBuffers may refer to them.
    StatefulSet => "statefulsets", objects.stateful_sets;
    /// Owners of pods.
    Job => "jobs", workloads.jobs;
    /// Owners of pods.
    ReplicationController => "replicationcontrollers", workloads.replication_controllers;
}

/// Clears fields of a kind that plans do not depend on.
trait Simplify {
    fn simplify(&mut self) {}
    fn share(&mut self, _parts: &mut SharedParts) {}
    fn count(_owners: &mut OwnerPods, _before: Option<&Self>, _after: Option<&Self>) {}
}

impl Simplify for NodeClaim {
    /// The request lists each offering of the launch, and only the actuator reads it.
    fn simplify(&mut self) {
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.remove(annotation::LAUNCH_REQUEST);
        }
    }
}

impl Simplify for NodePool {}
impl Simplify for EC2NodeClass {}

impl Simplify for NodeOverlay {
    fn simplify(&mut self) {
        self.status = None;
    }
}

impl Simplify for DaemonSet {}
impl Simplify for PodDisruptionBudget {}
impl Simplify for PriorityClass {}
impl Simplify for Namespace {}
impl Simplify for PersistentVolume {}
impl Simplify for PersistentVolumeClaim {}
impl Simplify for StorageClass {}
impl Simplify for CSINode {}

impl Simplify for Pod {
    /// Of the conditions, plans depend on whether kube-scheduler has refused the pod, and on whether the pod is not
    /// ready. Most pods keep none. The message of a refusal has some hundred bytes and changes with the cluster.
    fn simplify(&mut self) {
        plimsoll_snapshot::trim::pod(self);
        let status = &mut self.status;
        let (is_refused, is_unready) = (status.unschedulable().is_some(), status.is_unready());
        status.scheduled.take_if(|_| !is_refused);
        status.ready.take_if(|_| !is_unready);
        for condition in status.scheduled.iter_mut().chain(&mut status.ready) {
            (condition.message, condition.last_transition_time, condition.last_probe_time) = (None, None, None);
        }
        if let Some(ready) = &mut status.ready {
            ready.reason = None;
        }
    }

    fn share(&mut self, parts: &mut SharedParts) {
        parts.share(self);
    }

    fn count(owners: &mut OwnerPods, before: Option<&Self>, after: Option<&Self>) {
        owners.replace(before, after);
    }
}

impl Simplify for Node {
    /// Of the status, plans depend on the resources and on when the node became Ready. The rest, such as images,
    /// addresses and heartbeats, is most of a Node and changes often. Agents annotate Nodes, too.
    fn simplify(&mut self) {
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.retain(|key, _| annotation::OF_NODES.contains(&key.as_str()));
        }
        self.metadata.annotations.take_if(|annotations| annotations.is_empty());
        let Some(NodeStatus { capacity, allocatable, conditions, .. }) = self.status.take() else { return };
        let ready = |condition: NodeCondition| {
            let NodeCondition { type_, status, last_transition_time, .. } = condition;
            (type_ == READY).then(|| NodeCondition { type_, status, last_transition_time, ..NodeCondition::default() })
        };
        let conditions = conditions.map(|all| {
            let mut kept: Vec<NodeCondition> = all.into_iter().filter_map(ready).collect();
            // It has the room of all conditions.
            kept.shrink_to_fit();
            kept
        });
        self.status = Some(NodeStatus { capacity, allocatable, conditions, ..NodeStatus::default() });
    }
}

impl Simplify for CapacityBuffer {
    /// The status does not affect capacity.
    fn simplify(&mut self) {
        self.status = None;
    }
}

impl Simplify for CapacityQuota {
    /// The status does not affect plans.
    fn simplify(&mut self) {
        self.status = None;
    }
}

impl Simplify for PodTemplate {
    fn simplify(&mut self) {
        self.template.iter_mut().for_each(retain_scheduling_fields);
    }
}

/// Keeps only what identifies a workload and its owners. Its annotations may hold the whole object once more, and its
/// labels and those in its selector are the pods'.
fn retain_identity(metadata: &mut ObjectMeta) {
    let ObjectMeta { name, namespace, uid, deletion_timestamp, owner_references, .. } = std::mem::take(metadata);
    *metadata = ObjectMeta { name, namespace, uid, deletion_timestamp, owner_references, ..ObjectMeta::default() };
}

impl Simplify for Deployment {
    fn simplify(&mut self) {
        self.status = None;
        retain_identity(&mut self.metadata);
        if let Some(spec) = &mut self.spec {
            let DeploymentSpec { replicas, mut template, .. } = std::mem::take(spec);
            retain_scheduling_fields(&mut template);
            *spec = DeploymentSpec { replicas, template, ..DeploymentSpec::default() };
        }
    }
}

/// Only the replica count is needed, and the template for CapacityBuffers. A ReplicaSet owned by a Deployment has the
/// Deployment's template, and a Deployment may keep ten ReplicaSets, so the template of an owned ReplicaSet is dropped.
impl Simplify for ReplicaSet {
    fn simplify(&mut self) {
        self.status = None;
        retain_identity(&mut self.metadata);
        let owned = self.metadata.owner_references.iter().flatten().next().is_some();
        if let Some(spec) = &mut self.spec {
            let ReplicaSetSpec { replicas, template, .. } = std::mem::take(spec);
            let mut template = template.filter(|_| !owned);
            template.iter_mut().for_each(retain_scheduling_fields);
            *spec = ReplicaSetSpec { replicas, template, ..ReplicaSetSpec::default() };
        }
    }
}

impl Simplify for StatefulSet {
    fn simplify(&mut self) {
        self.status = None;
        retain_identity(&mut self.metadata);
        if let Some(spec) = &mut self.spec {
            let StatefulSetSpec { replicas, pod_management_policy, mut template, .. } = std::mem::take(spec);
            retain_scheduling_fields(&mut template);
            *spec = StatefulSetSpec { replicas, pod_management_policy, template, ..StatefulSetSpec::default() };
        }
    }
}

/// Keeps only the fields of a pod template that affect scheduling. Drops everything that may contain secrets.
fn retain_scheduling_fields(template: &mut PodTemplateSpec) {
    if let Some(metadata) = &mut template.metadata {
        metadata.annotations = None;
    }
    let Some(spec) = &mut template.spec else { return };
    (spec.volumes, spec.security_context, spec.image_pull_secrets, spec.dns_config) = (None, None, None, None);
    plimsoll_snapshot::trim::containers(spec);
}

impl Simplify for Job {
    fn simplify(&mut self) {
        retain_identity(&mut self.metadata);
        if let Some(spec) = &mut self.spec {
            let JobSpec { suspend, parallelism, completions, .. } = *spec;
            *spec = JobSpec { suspend, parallelism, completions, ..JobSpec::default() };
        }
        let succeeded = self.status.take().and_then(|status| status.succeeded);
        self.status = succeeded.map(|number| JobStatus { succeeded: Some(number), ..JobStatus::default() });
    }
}

impl Simplify for ReplicationController {
    fn simplify(&mut self) {
        self.status = None;
        retain_identity(&mut self.metadata);
        if let Some(spec) = &mut self.spec {
            *spec = ReplicationControllerSpec { replicas: spec.replicas, ..ReplicationControllerSpec::default() };
        }
    }
}
