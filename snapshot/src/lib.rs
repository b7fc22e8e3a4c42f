//! Builds a [`Snapshot`] from Kubernetes objects. This crate alone interprets pod requests, node lifecycle and
//! disruption budgets. The watcher and the command line share it, so that both see a cluster the same way.
//!
//! The crate does no I/O and reads no clock. An object that cannot be parsed is reported as a [`Problem`] and left out.
//! A node with an unparsable pod is treated as cordoned and is not disrupted.

#![deny(clippy::indexing_slicing)]

mod annotations;
pub mod buffers;
mod builder;
pub mod capacity_quotas;
mod checked_pools;
mod costs;
mod daemon_pods;
mod daemon_sets;
mod decimal;
mod expiry;
mod extended_resources;
mod in_flight;
mod kube_time;
mod nodes;
pub mod nominations;
mod on_demand;
mod overlays;
mod pdbs;
mod pod_protection;
mod pod_states;
mod pod_table;
mod pods;
mod pools;
mod problems;
mod replicas;
mod requests;
pub mod rollout;
mod selected_labels;
mod selectors;
mod shapes;
mod termination_delay;
pub mod trim;
mod volumes;

pub use builder::{Builder, Built};
pub use expiry::{expires, was_expired};
pub use extended_resources::tolerate_extended_resources;
pub use kube_time::{created, timestamp};
pub use nodes::{is_ready, is_undeclared, node_pool, protecting_annotation};
pub use pdbs::evictions;
pub use pods::{ignored_on_demand_ratio, ignored_protection, is_decided};
pub use pools::{BudgetNodes, allowed_disruptions, budget_nodes, invalid_annotations, limits};
pub use problems::{Problem, full_name};
pub use replicas::Replicas;
pub use requests::effective_requests;
pub use selected_labels::keys as selected_label_keys;
pub use termination_delay::termination_delay;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use plimsoll_api::{CapacityBuffer, CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, Pod};
use plimsoll_model::execution::InFlightClaim;
use plimsoll_model::identity::{CatalogId, NodeName, PodUid};
use plimsoll_model::snapshot::{IgnoredPod, LedgerPosition, PodList, ReservationCount, Snapshot, UnavailableOffering};
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects of a cluster, in any order. Namespaced objects have their namespace set.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// Pods. An object that has not changed keeps its allocation, so that [`Builder`] can tell.
    pub pods: Vec<Arc<Pod>>,
    /// Further pods, stored once per workload.
    pub replicas: Vec<Replicas>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// NodePools.
    pub node_pools: Vec<NodePool>,
    /// NodeClaims.
    pub node_claims: Vec<NodeClaim>,
    /// Node classes.
    pub node_classes: Vec<EC2NodeClass>,
    /// Overrides of prices and capacity.
    pub node_overlays: Vec<NodeOverlay>,
    /// DaemonSets.
    pub daemon_sets: Vec<DaemonSet>,
    /// PodDisruptionBudgets.
    pub pod_disruption_budgets: Vec<PodDisruptionBudget>,
    /// Priority classes.
    pub priority_classes: Vec<PriorityClass>,
    /// Namespaces. A namespace that only other objects refer to is treated as existing, with only its name label.
    pub namespaces: Vec<Namespace>,
    /// PersistentVolumes.
    pub persistent_volumes: Vec<PersistentVolume>,
    /// PersistentVolumeClaims.
    pub persistent_volume_claims: Vec<PersistentVolumeClaim>,
    /// Storage classes.
    pub storage_classes: Vec<StorageClass>,
    /// Volume limits of nodes.
    pub csi_nodes: Vec<CSINode>,
    /// CapacityBuffers.
    pub capacity_buffers: Vec<CapacityBuffer>,
    /// CapacityQuotas.
    pub capacity_quotas: Vec<CapacityQuota>,
    /// Pod templates that CapacityBuffers may refer to.
    pub pod_templates: Vec<PodTemplate>,
    /// Workloads that CapacityBuffers may refer to.
    pub deployments: Vec<Deployment>,
    /// Workloads that CapacityBuffers may refer to.
    pub replica_sets: Vec<ReplicaSet>,
    /// Workloads that CapacityBuffers may refer to.
    pub stateful_sets: Vec<StatefulSet>,
}

impl Objects {
    /// Namespaces of all pods, with repetitions.
    fn pod_namespaces(&self) -> impl Iterator<Item = &String> {
        let replicas = self.replicas.iter().filter(|replicas| !replicas.is_empty()).map(Replicas::template);
        self.pods.iter().map(Arc::as_ref).chain(replicas).filter_map(|pod| pod.metadata.namespace.as_ref())
    }

    /// Keys of the labels by which pods select pods, with repetitions.
    fn pod_label_keys(&self) -> impl Iterator<Item = &String> {
        let replicas = self.replicas.iter().filter(|replicas| !replicas.is_empty()).map(Replicas::template);
        let specs = self.pods.iter().map(Arc::as_ref).chain(replicas).filter_map(|pod| pod.spec.as_deref());
        specs.flat_map(selected_labels::keys)
    }

    /// Returns the objects with each replica as a separate pod.
    #[must_use]
    pub fn expanded(mut self) -> Self {
        let replicas = std::mem::take(&mut self.replicas);
        self.pods.extend(replicas.iter().flat_map(Replicas::pods).map(Arc::new));
        self
    }
}

/// Origin of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// A running cluster: kube-scheduler marks pods it cannot place, and controllers maintain every status.
    #[default]
    Cluster,
    /// Files: no controller has processed the objects. Every unbound pod is pending, and a missing status has no
    /// meaning.
    Files,
}

/// Inputs that are not Kubernetes objects.
#[derive(Debug, Clone, Default)]
pub struct Extra {
    /// Origin of the objects.
    pub source: Source,
    /// Current time.
    pub now: Timestamp,
    /// Sequence number of the snapshot.
    pub sequence: u64,
    /// Position of the ledger.
    pub ledger: LedgerPosition,
    /// Catalog of each node class, by class name.
    pub catalogs: BTreeMap<String, CatalogId>,
    /// Offerings without capacity.
    pub unavailable_offerings: Vec<UnavailableOffering>,
    /// Zones that the cluster is shifted away from. Nodes there are not disrupted.
    pub shifted_zones: BTreeSet<String>,
    /// Free instances of capacity reservations.
    pub reservations: Vec<ReservationCount>,
    /// Reason why a node class has no catalog, by class name.
    pub catalog_problems: BTreeMap<String, String>,
    /// Claims that are launching or terminating, from the actuator's ledger. The cluster may not show them yet. Their
    /// pods are reserved.
    pub in_flight: Vec<Arc<InFlightClaim>>,
    /// Further pods for which a node has been chosen.
    pub reserved_pods: BTreeMap<PodUid, NodeName>,
}

/// Builds the snapshot of `objects`. Also returns the objects that were left out and the fields that were ignored.
///
/// ```
/// use plimsoll_snapshot::{Extra, Objects, Source, build};
/// use serde_json::json;
/// use std::sync::Arc;
///
/// let pod = |name: &str, cpu: &str| {
///     serde_json::from_value(json!({
///         "metadata": {"namespace": "shop", "name": name},
///         "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]},
///     }))
/// };
/// let pods = vec![Arc::new(pod("web-0", "500m")?), Arc::new(pod("web-1", "lots")?)];
/// let objects = Objects { pods, ..Objects::default() };
/// let (snapshot, problems) = build(&objects, &Extra { source: Source::Files, ..Extra::default() });
///
/// assert_eq!(snapshot.pods[0].full_name(), "shop/web-0");
/// assert_eq!(snapshot.shapes[0].requests.get("cpu"), 500);
/// assert_eq!((problems.len(), problems[0].name.as_str()), (1, "shop/web-1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn build(objects: &Objects, extra: &Extra) -> (Snapshot, Vec<Problem>) {
    build_sharing(objects, extra, &PodList::default())
}

/// As [`build`]. Pods that are equal to pods of `known`, which is sorted by UID, are shared with it, so that each is in
/// memory once.
pub(crate) fn build_sharing(objects: &Objects, extra: &Extra, known: &PodList) -> (Snapshot, Vec<Problem>) {
    let mut context = Context::new(objects, extra, objects.pod_namespaces(), objects.pod_label_keys());
    let pod_states = pod_states::PodStates::new(&context.nodes, &objects.node_claims, extra);
    let read = (&mut context.shapes, &context.budgets);
    let pods::Pods { mut pods, ignored, unreadable_pod_nodes, .. } =
        pods::build(objects, (extra, known), &pod_states, read, &mut context.problems);
    pods.extend(context.buffer_pods(objects, extra));
    let daemon_pods = daemon_pods::DaemonPods::of(&objects.pods);
    let checked = &mut checked_pools::CheckedPools::default();
    let (snapshot, problems) = context.finish(objects, extra, checked, &daemon_pods, ignored, &unreadable_pod_nodes);
    let mut snapshot = Snapshot { pods, ..snapshot };
    snapshot.sort();
    (snapshot, problems)
}

/// What pods are read with.
struct Context<'objects> {
    shapes: shapes::Shapes<'objects>,
    buffers: Vec<buffers::Buffer<'objects>>,
    budgets: pdbs::Budgets<'objects>,
    nodes: Vec<plimsoll_model::snapshot::Node>,
    problems: Vec<Problem>,
}

impl<'objects> Context<'objects> {
    /// `pod_namespaces` are the namespaces of all pods, and `pod_label_keys` the keys of labels by which they select
    /// pods.
    fn new<'n>(
        objects: &'objects Objects,
        extra: &Extra,
        pod_namespaces: impl Iterator<Item = &'n String>,
        pod_label_keys: impl Iterator<Item = &'n String>,
    ) -> Self {
        let mut problems = Vec::new();
        let buffers = buffers::resolve(objects);
        let template_keys = selected_labels::keys_of_templates(objects, &buffers);
        let label_keys = pod_label_keys.cloned().chain(template_keys.cloned()).collect();
        let shapes = shapes::Shapes::new(objects, extra.source, pod_namespaces, label_keys);
        let budgets = pdbs::Budgets::new(objects, extra.source, &mut problems);
        let nodes = nodes::build(objects, extra, &mut problems);
        Self { shapes, buffers, budgets, nodes, problems }
    }

    /// The virtual pods of the CapacityBuffers.
    fn buffer_pods(&mut self, objects: &Objects, extra: &Extra) -> Vec<plimsoll_model::snapshot::Pod> {
        buffers::pods((objects, &self.buffers), extra, &self.nodes, &mut self.shapes, &mut self.problems)
    }

    /// Returns the snapshot without its pods, and all problems, both sorted.
    fn finish(
        mut self,
        objects: &Objects,
        extra: &Extra,
        checked: &mut checked_pools::CheckedPools,
        daemon_pods: &daemon_pods::DaemonPods,
        ignored: Vec<IgnoredPod>,
        unreadable_pod_nodes: &BTreeSet<NodeName>,
    ) -> (Snapshot, Vec<Problem>) {
        let daemon_sets = daemon_sets::build(objects, daemon_pods, &mut self.shapes, &mut self.problems);
        let node_pools = pools::build(objects, extra, &self.nodes, checked, &mut self.problems);
        let capacity_quotas = capacity_quotas::build(objects, &mut self.problems);
        // The resources of an unparsable pod are unknown, so its node must neither receive pods nor be disrupted.
        for node in self.nodes.iter_mut().filter(|node| unreadable_pod_nodes.contains(&node.name)) {
            (node.cordoned, node.do_not_disrupt) = (true, true);
        }
        let mut snapshot = Snapshot {
            sequence: extra.sequence,
            ledger: extra.ledger,
            now: extra.now,
            shapes: self.shapes.into_shapes(),
            pods: PodList::default(),
            nodes: self.nodes,
            node_pools,
            daemon_sets,
            pod_disruption_budgets: self.budgets.into_model(),
            unavailable_offerings: extra.unavailable_offerings.clone(),
            reservations: extra.reservations.clone(),
            capacity_quotas,
            ignored,
        };
        snapshot.sort();
        self.problems.sort();
        (snapshot, self.problems)
    }
}
