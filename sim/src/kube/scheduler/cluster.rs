//! The cluster as the scheduler sees it: a snapshot of all nodes and pods of the mirrors.

use super::shape::{Namespaces, of_pod, resources, strings, term};
use crate::apiserver::object;
use crate::apiserver::store::{Key, Object};
use crate::kube::view::{NodeView, PodView, Taint as TaintView};
use plimsoll_kubesched::ClusterState;
use plimsoll_model::identity::{NodeName, PodUid, ShapeId};
use plimsoll_model::names::ATTACHABLE_VOLUMES_PREFIX;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodeState, Pod, PodShape, PodState, Snapshot, SnapshotIndex, VolumeTopology};
use plimsoll_model::taints::{Taint, TaintEffect};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// Taint of nodes with the unschedulable flag.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Other objects that affect the placement of pods.
pub(super) struct PlacementObjects<'a> {
    pub(super) namespaces: Vec<&'a Object>,
    pub(super) claims: BTreeMap<&'a Key, &'a Object>,
    pub(super) volumes: BTreeMap<&'a str, &'a Object>,
    pub(super) csi_nodes: BTreeMap<&'a str, &'a Object>,
}

/// All nodes and pods. Nodes are sorted by name.
pub(super) struct SchedulerCluster<'a> {
    pub(super) state: ClusterState,
    pub(super) snapshot: Snapshot,
    nodes: Vec<&'a NodeView>,
}

impl<'a> SchedulerCluster<'a> {
    /// `is_pending` selects the pods to schedule.
    pub(super) fn new(
        nodes: impl Iterator<Item = &'a NodeView>,
        pods: impl Iterator<Item = &'a PodView>,
        objects: &PlacementObjects<'_>,
        is_pending: fn(&PodView) -> bool,
    ) -> Self {
        let mut nodes: Vec<&NodeView> = nodes.collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let namespaces = objects.namespaces.iter();
        let namespaces: Namespaces<'_> =
            namespaces.map(|it| (object::name(it), strings(object::at(it, &["metadata", "labels"])))).collect();
        let mut shapes: BTreeMap<ShapeId, PodShape> = BTreeMap::new();
        let mut snapshot = Snapshot::default();
        for pod in pods.filter(|pod| !pod.is_over()) {
            let state = match is_pending(pod) {
                true => PodState::Pending,
                false if !pod.node.is_empty() => PodState::Bound(NodeName::from(pod.node.as_str())),
                false => continue,
            };
            let shape = of_pod(pod, &namespaces, volumes(pod, objects));
            snapshot.pods.push(model_pod(pod, shape.id.clone(), state));
            shapes.entry(shape.id.clone()).or_insert(shape);
        }
        snapshot.shapes = shapes.into_values().collect();
        snapshot.nodes = nodes.iter().map(|node| model_node(node, objects)).collect();
        snapshot.sort();
        let state = ClusterState::new(&snapshot, &SnapshotIndex::new(&snapshot));
        Self { state, snapshot, nodes }
    }

    /// Index of a node.
    pub(super) fn node(&self, name: &str) -> Option<usize> {
        self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()
    }

    /// Whether the unschedulable flag of the node rejects pods of the shape.
    pub(super) fn is_flagged(&self, shape: usize, node: usize) -> bool {
        let tolerations = &self.snapshot.shapes[shape].tolerations;
        self.nodes[node].unschedulable && !tolerations.iter().any(|toleration| toleration.tolerates(&flag()))
    }

    /// Whether the node would have enough of a resource without its pods.
    pub(super) fn could_have(&self, shape: usize, node: usize, resource: &str) -> bool {
        let (request, node) = (&self.snapshot.shapes[shape].requests, &self.snapshot.nodes[node]);
        request.get(resource) <= node.allocatable.get(resource)
    }
}

fn flag() -> Taint {
    Taint { key: UNSCHEDULABLE.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule }
}

fn model_pod(pod: &PodView, shape: ShapeId, state: PodState) -> Pod {
    let created = object::time_at(&pod.object, &["metadata", "creationTimestamp"]);
    Pod {
        uid: PodUid::from(pod.uid.as_str()),
        namespace: pod.key.namespace.clone(),
        name: pod.key.name.clone(),
        shape,
        state,
        created: Timestamp(created.map_or(0, |time| time.as_millisecond())),
        terminating: pod.deletion.is_some(),
        ..Pod::default()
    }
}

/// kube-scheduler uses the taints of a node, not its conditions, so every node counts as in service.
fn model_node(node: &NodeView, objects: &PlacementObjects<'_>) -> Node {
    let taint = |taint: &TaintView| {
        let effect = TaintEffect::parse(&taint.effect)?;
        Some(Taint { key: taint.key.clone(), value: taint.value.clone(), effect })
    };
    let flag = node.unschedulable.then(flag);
    let mut allocatable = resources(&node.allocatable, |whole| whole.div_euclid(1000));
    limit_volumes(&mut allocatable, objects.csi_nodes.get(node.name.as_str()).copied());
    Node {
        name: NodeName::from(node.name.as_str()),
        state: NodeState::Initialized,
        labels: strings(object::at(&node.object, &["metadata", "labels"])),
        taints: node.taints.iter().filter_map(taint).chain(flag).collect(),
        allocatable,
        ready: true,
        ..Node::default()
    }
}

/// Applies the volume limits of the node's CSINode.
fn limit_volumes(allocatable: &mut Resources, csi_node: Option<&Object>) {
    let drivers = csi_node.map_or(&[][..], |csi_node| object::items(csi_node, &["spec", "drivers"]));
    for driver in drivers {
        if let Some(count) = object::integer(driver, &["allocatable", "count"]) {
            let name = object::text(driver, &["name"]);
            allocatable.set(&format!("{ATTACHABLE_VOLUMES_PREFIX}{name}"), count);
        }
    }
}

/// Topology of the pod's volumes. A claim without a volume is bound wherever the pod is scheduled.
fn volumes(pod: &PodView, objects: &PlacementObjects<'_>) -> Vec<VolumeTopology> {
    let volume = |volume: &serde_json::Value| {
        let claim = object::text(volume, &["persistentVolumeClaim", "claimName"]);
        let bound = objects.claims.get(&Key::new(&pod.key.namespace, claim))?;
        let volume = objects.volumes.get(object::text(bound, &["spec", "volumeName"]))?;
        let terms = object::items(volume, &["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
        Some(VolumeTopology {
            claim: claim.to_owned(),
            driver: object::text(volume, &["spec", "csi", "driver"]).to_owned(),
            alternatives: terms.iter().map(term).collect(),
            problem: None,
        })
    };
    object::items(&pod.object, &["spec", "volumes"]).iter().filter_map(volume).collect()
}
