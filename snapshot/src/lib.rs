//! Kubernetes objects become a [`Snapshot`]: the one place that reads what a pod asks for, how far a node has come and how
//! many nodes of a pool may go. The watcher and the command line both use it, so that they see a cluster alike.
//!
//! Pure: no clock, no IO. An object that cannot be read becomes a [`Problem`] and is left out; the rest goes on. A node whose pods cannot be read
//! keeps them: it takes no others and stays.

pub mod buffers;
mod costs;
mod daemon_sets;
mod decimal;
mod in_flight;
mod kube_time;
mod nodes;
pub mod nominations;
mod on_demand;
mod overlays;
mod pdbs;
mod places;
mod pods;
mod pools;
mod problems;
mod replicas;
mod requests;
mod selectors;
mod shapes;
mod volumes;

pub use pods::{ignored_wish, is_decided};
pub use problems::Problem;
pub use replicas::Replicas;
pub use requests::effective_requests;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use plimsoll_api::{CapacityBuffer, EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
use plimsoll_model::execution::InFlightClaim;
use plimsoll_model::identity::{CatalogId, NodeName, PodUid};
use plimsoll_model::snapshot::{LedgerPosition, Snapshot, UnavailableOffering};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// A cluster's objects, in any order. Objects that live in a namespace name it.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// Pods.
    pub pods: Vec<Pod>,
    /// Further pods, by workload.
    pub replicas: Vec<Replicas>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Pools.
    pub node_pools: Vec<NodePool>,
    /// Claims.
    pub node_claims: Vec<NodeClaim>,
    /// Node classes.
    pub node_classes: Vec<EC2NodeClass>,
    /// Overlays of prices and capacity.
    pub node_overlays: Vec<NodeOverlay>,
    /// DaemonSets.
    pub daemon_sets: Vec<DaemonSet>,
    /// Disruption budgets of pods.
    pub pod_disruption_budgets: Vec<PodDisruptionBudget>,
    /// Priority classes.
    pub priority_classes: Vec<PriorityClass>,
    /// Namespaces; one that only other objects name counts as well, with no labels but its name.
    pub namespaces: Vec<Namespace>,
    /// Volumes.
    pub persistent_volumes: Vec<PersistentVolume>,
    /// Claims of volumes.
    pub persistent_volume_claims: Vec<PersistentVolumeClaim>,
    /// Storage classes.
    pub storage_classes: Vec<StorageClass>,
    /// How many volumes each node takes.
    pub csi_nodes: Vec<CSINode>,
    /// Room that is kept for pods to come.
    pub capacity_buffers: Vec<CapacityBuffer>,
    /// What it is kept for.
    pub pod_templates: Vec<PodTemplate>,
    /// Likewise.
    pub deployments: Vec<Deployment>,
    /// Likewise.
    pub replica_sets: Vec<ReplicaSet>,
    /// Likewise.
    pub stateful_sets: Vec<StatefulSet>,
}

impl Objects {
    /// The same objects with every replica as a pod of its own, for readers that need whole pods.
    #[must_use]
    pub fn expanded(mut self) -> Self {
        let replicas = std::mem::take(&mut self.replicas);
        self.pods.extend(replicas.iter().flat_map(Replicas::pods));
        self
    }
}

/// Where the objects are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// A cluster that runs: kube-scheduler says which pods it cannot place, controllers fill in every status.
    #[default]
    Cluster,
    /// Files: no controller has looked at the objects. Every unbound pod is to be placed, and a missing status means nothing.
    Files,
}

/// What the cluster does not show.
#[derive(Debug, Clone, Default)]
pub struct Extra {
    /// Where the objects are from.
    pub source: Source,
    /// The time.
    pub now: Timestamp,
    /// Number of this snapshot.
    pub sequence: u64,
    /// Up to which ledger change this is known.
    pub ledger: LedgerPosition,
    /// The catalog of each node class, by the class's name.
    pub catalogs: BTreeMap<String, CatalogId>,
    /// Offerings known to have no capacity.
    pub unavailable_offerings: Vec<UnavailableOffering>,
    /// Why a node class has no catalog, by the class's name.
    pub catalog_problems: BTreeMap<String, String>,
    /// Claims on their way in or out, as the actuator's ledger has them: the cluster may not show them yet. Their pods are reserved.
    pub in_flight: Vec<InFlightClaim>,
    /// Further pods for which a node was chosen.
    pub reserved_pods: BTreeMap<PodUid, NodeName>,
}

/// The snapshot of `objects`, and which of them were left out or not read in full, and why.
///
/// ```
/// use plimsoll_snapshot::{Extra, Objects, Source, build};
/// use serde_json::json;
///
/// let pod = |name: &str, cpu: &str| {
///     serde_json::from_value(json!({
///         "metadata": {"namespace": "shop", "name": name},
///         "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]},
///     }))
/// };
/// let objects = Objects { pods: vec![pod("web-0", "500m")?, pod("web-1", "lots")?], ..Objects::default() };
/// let (snapshot, problems) = build(&objects, &Extra { source: Source::Files, ..Extra::default() });
///
/// assert_eq!(snapshot.pods[0].full_name(), "shop/web-0");
/// assert_eq!(snapshot.shapes[0].requests.get("cpu"), 500);
/// assert_eq!((problems.len(), problems[0].name.as_str()), (1, "shop/web-1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn build(objects: &Objects, extra: &Extra) -> (Snapshot, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut shapes = shapes::Shapes::new(objects, extra.source);
    let budgets = pdbs::Budgets::new(objects, extra.source, &mut problems);
    let mut nodes = nodes::build(objects, extra, &mut problems);
    let places = places::Places::new(&nodes, extra);
    let pods::Pods { mut pods, ignored, unread } =
        pods::build(objects, extra, &places, &budgets, &mut shapes, &mut problems);
    pods.extend(buffers::pods(objects, extra, &nodes, &mut shapes, &mut problems));
    let daemon_sets = daemon_sets::build(objects, &mut shapes, &mut problems);
    let node_pools = pools::build(objects, extra, &nodes, &mut problems);
    // What cannot be read still runs there: nobody is sent to its node, and nothing is taken from it.
    for node in nodes.iter_mut().filter(|node| unread.contains(&node.name)) {
        (node.cordoned, node.do_not_disrupt) = (true, true);
    }
    let mut snapshot = Snapshot {
        sequence: extra.sequence,
        ledger: extra.ledger,
        now: extra.now,
        shapes: shapes.into_shapes(),
        pods,
        nodes,
        node_pools,
        daemon_sets,
        pod_disruption_budgets: budgets.into_model(),
        unavailable_offerings: extra.unavailable_offerings.clone(),
        ignored,
    };
    snapshot.sort();
    problems.sort();
    (snapshot, problems)
}
