//! Capacity of a node, and rules of the node that do not depend on other pods.

use crate::filter::Rejection;
use crate::resources::{Amounts, ResourceTable, add};
use crate::volumes;
use plimsoll_model::names::taint;
use plimsoll_model::resources::{CPU, MEMORY};
use plimsoll_model::snapshot::{HostPort, Node, NodeState, Pod, PodShape, Snapshot, SnapshotIndex};
use plimsoll_model::taints::{TaintEffect, Toleration, TolerationOperator, repelling};
use plimsoll_model::{requirements::NodeSelectorTerm, resources::Resources, snapshot::VolumeTopology};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Resources by which NodeResourcesFit and NodeResourcesBalancedAllocation score nodes.
pub(crate) const SCORED: [&str; 2] = [CPU, MEMORY];

/// Allocatable and free resources of a node. The instance type of a planned node may still change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Allocatable amounts of the [`SCORED`] resources.
    pub(crate) allocatable: [i64; 2],
    pub(crate) free: Amounts,
}

impl Machine {
    /// The same node as a machine with `other` allocatable amounts instead of `allocatable`.
    pub(crate) fn resized(&self, table: &ResourceTable, allocatable: &Resources, other: &Resources) -> Self {
        let mut free = self.free.clone();
        add(&mut free, &table.vector(allocatable), -1);
        add(&mut free, &table.vector(other), 1);
        Self { allocatable: SCORED.map(|name| other.get(name)), free }
    }

    /// Free amounts, in the order of [`ResourceTable`].
    #[must_use]
    pub fn free(&self) -> &[i64] {
        &self.free
    }
}

/// Rules of a shape that do not depend on other pods: node selector, node affinity, tolerations, volumes.
type NodeRules<'s> = (&'s BTreeMap<String, String>, &'s [NodeSelectorTerm], &'s [Toleration], &'s [VolumeTopology]);

/// Caches which nodes reject a shape regardless of other pods. Shapes with the same rules share an entry.
pub(crate) struct Verdicts<'s> {
    nodes: &'s [Node],
    known: BTreeMap<NodeRules<'s>, Rc<[Option<Rejection>]>>,
}

impl<'s> Verdicts<'s> {
    pub(crate) fn new(nodes: &'s [Node]) -> Self {
        Self { nodes, known: BTreeMap::new() }
    }

    /// By node: why the node rejects pods of the shape.
    pub(crate) fn of(&mut self, shape: &'s PodShape) -> Rc<[Option<Rejection>]> {
        let rules: NodeRules<'s> =
            (&shape.node_selector, &shape.required_node_affinity, &shape.tolerations, &shape.volumes);
        let verdicts = || self.nodes.iter().map(|node| verdict(shape, node)).collect();
        Rc::clone(self.known.entry(rules).or_insert_with(verdicts))
    }
}

/// NodeUnschedulable, TaintToleration, NodeAffinity and VolumeBinding.
fn verdict(shape: &PodShape, node: &Node) -> Option<Rejection> {
    let name = node.name.as_str();
    if node.cordoned || node.deleting {
        Some(Rejection::Unschedulable)
    } else if !node.ready {
        Some(Rejection::NotReady)
    } else if repelling(&node.taints, &shape.tolerations).is_some() {
        Some(Rejection::Taint)
    } else if !shape.selects_node(name, &node.labels) {
        Some(Rejection::NodeAffinity)
    } else if !shape.attaches_to_node(name, &node.labels) {
        Some(Rejection::VolumeAffinity)
    } else {
        None
    }
}

/// Free amounts and used host ports by node. Resources are reserved for pods of DaemonSets that do not run yet.
pub(crate) fn usage(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    table: &ResourceTable,
    requests: &[Amounts],
) -> Vec<(Machine, Vec<HostPort>)> {
    let shapes: BTreeMap<_, (&PodShape, &Amounts)> =
        snapshot.shapes.iter().zip(requests).map(|(shape, requests)| (&shape.id, (shape, requests))).collect();
    let daemons: Vec<(&PodShape, &Amounts)> =
        snapshot.daemon_sets.iter().filter_map(|daemon| shapes.get(&daemon.shape).copied()).collect();
    let shape_of = |pod: usize| {
        let number = index.shape_of(pod)?;
        Some((snapshot.pods.get(pod)?, snapshot.shapes.get(number)?, requests.get(number)?))
    };
    let usage = |(number, node): (usize, &Node)| {
        let residents = index.residents(number).iter().filter_map(|place| shape_of(*place as usize));
        let (free, ports) =
            free_capacity(table, node, residents.filter(|(pod, ..)| !pod.is_virtual()), daemons.iter().copied());
        (Machine { allocatable: SCORED.map(|name| node.allocatable.get(name)), free }, ports)
    };
    snapshot.nodes.iter().enumerate().map(usage).collect()
}

/// Whether pods of the shape that stay with their node are static pods, not pods of DaemonSets. A kubelet lets its
/// static pods tolerate every taint with the effect NoExecute. The DaemonSet controller names the taints that pods
/// tolerate.
fn is_of_static_pods(shape: &PodShape) -> bool {
    let all = |one: &Toleration| {
        let exists = one.operator == TolerationOperator::Exists;
        exists && one.key.is_empty() && one.effect == Some(TaintEffect::NoExecute)
    };
    let mut tolerations = shape.tolerations.iter();
    shape.tolerations.iter().any(all) && tolerations.all(|one| one.key != taint::NOT_READY)
}

/// Free amounts of `node` and host ports in use, if `pods` run on the node. Each shape comes with its pods' requests.
/// Resources are reserved for pods of `daemons` that do not run yet, and host ports until the node is initialized.
pub fn free_capacity<'s>(
    table: &ResourceTable,
    node: &Node,
    pods: impl Iterator<Item = (&'s Pod, &'s PodShape, &'s Amounts)>,
    daemons: impl Iterator<Item = (&'s PodShape, &'s Amounts)>,
) -> (Amounts, Vec<HostPort>) {
    let in_service = node.state == NodeState::Initialized;
    let mut free = table.room(&node.allocatable, |driver| volumes::usual_limit(driver, &node.labels, in_service));
    let mut claims: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut of_daemons = vec![0; free.len()];
    let mut ports = Vec::new();
    for (pod, shape, requests) in pods {
        add(&mut free, requests, -1);
        for volume in shape.volumes.iter().filter(|volume| !volume.claim.is_empty()) {
            // Pods that share a claim share its attachment.
            if !claims.insert((&shape.namespace, &volume.claim))
                && let Some(free) = table.attached(&volume.driver).and_then(|place| free.get_mut(place))
            {
                *free += 1;
            }
        }
        if pod.stays_with_node && !is_of_static_pods(shape) {
            add(&mut of_daemons, requests, 1);
        }
        ports.extend(shape.host_ports.iter().cloned());
    }
    let mut due = vec![0; free.len()];
    for (shape, requests) in daemons {
        let tolerated = repelling(&node.taints, &shape.tolerations).is_none();
        if tolerated && shape.selects_node(node.name.as_str(), &node.labels) {
            add(&mut due, requests, 1);
            // kube-scheduler binds these pods before other pods may use the node.
            if !in_service {
                ports.extend(shape.host_ports.iter().cloned());
            }
        }
    }
    let missing: Amounts = due.iter().zip(&of_daemons).map(|(due, there)| (due - there).max(0)).collect();
    add(&mut free, &missing, -1);
    (free, ports)
}
