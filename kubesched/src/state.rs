//! State of a cluster while kube-scheduler binds pods.

use crate::filter::{Nominated, Rejection, ports_conflict};
use crate::node::{self, Machine, SCORED, Verdicts};
use crate::nomination::{self, Candidate};
use crate::resources::{Amounts, ResourceTable, add, fits};
use crate::spread::pods_on_nodes;
use crate::topology::Topology;
use crate::{queue, score, volumes};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, Node, Pod, PodShape, PodState, Snapshot, SnapshotIndex};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A pending pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSlot {
    /// UID of the pod.
    pub uid: PodUid,
    /// Index of its shape in the snapshot.
    pub shape: usize,
    /// Priority of the pod.
    pub priority: i32,
}

/// Facts of a shape with pending pods.
#[derive(Debug)]
struct Shape {
    requests: Amounts,
    ports: Vec<HostPort>,
    priority: i32,
    /// By node: why the node rejects the shape regardless of other pods.
    verdicts: Rc<[Option<Rejection>]>,
    /// By node.
    preference: Vec<score::Preference>,
}

/// Data that does not change while pods are bound.
#[derive(Debug)]
struct Facts {
    nodes: IndexVec<Node, (NodeName, Resources)>,
    /// By shape index in the snapshot; `None` for shapes without pending pods.
    shapes: Vec<Option<Shape>>,
    pods: Vec<PodSlot>,
    table: ResourceTable,
    /// Indices of the [`SCORED`] resources in amounts.
    scored: [Option<usize>; 2],
}

/// An entry of the undo log.
#[derive(Debug, Clone)]
enum Change {
    Bound {
        shape: usize,
        node: usize,
    },
    /// The node had the machine `before` until this change.
    Resized {
        node: usize,
        before: Machine,
    },
}

/// A state to roll back to.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoint(usize);

/// Nodes and pods of a cluster. Nodes and shapes are identified by their index in the snapshot. Immutable data is
/// shared among clones.
#[derive(Debug, Clone)]
pub struct ClusterState {
    facts: Rc<Facts>,
    machines: IndexVec<Node, Machine>,
    /// Host ports in use.
    ports: IndexVec<Node, Vec<HostPort>>,
    topology: Topology,
    log: Vec<Change>,
}

impl ClusterState {
    /// Creates the state of the cluster in `snapshot`, with no pending pod bound. `snapshot` must be in canonical
    /// order. Reserved pods count as if they ran on their nodes. Virtual pods are omitted, since they do not exist for
    /// kube-scheduler. Terminating pods use resources, but do not count for topology spread and affinity.
    #[must_use]
    pub fn new(snapshot: &Snapshot, index: &SnapshotIndex) -> Self {
        let pods = pending_pods(snapshot, index);
        let mut pending = vec![false; snapshot.shapes.len()];
        for pod in &pods {
            if let Some(pending) = pending.get_mut(pod.shape) {
                *pending = true;
            }
        }
        let drivers = volumes::limited_drivers(snapshot, &BTreeMap::new());
        let table = ResourceTable::new(snapshot.shapes.iter().map(|shape| &shape.requests), drivers);
        let requests: Vec<Amounts> = snapshot.shapes.iter().map(|shape| table.request(shape)).collect();
        let (machines, ports): (Vec<_>, Vec<_>) = node::usage(snapshot, index, &table, &requests).into_iter().unzip();
        let shared = volumes::shared_claims(snapshot);
        let mut verdicts = Verdicts::new(&snapshot.nodes);
        let shape = |((shape, requests), pending): ((_, &Amounts), &bool)| {
            pending.then(|| Shape::new(shape, requests, &table, &shared, &mut verdicts, snapshot))
        };
        let shapes = snapshot.shapes.iter().zip(&requests).zip(&pending).map(shape).collect();
        let mut topology = Topology::new(snapshot, &pending);
        pods_on_nodes(snapshot, index, false).for_each(|(shape, node)| topology.add(shape, node));
        let nodes = snapshot.nodes.iter().map(|node| (node.name.clone(), node.allocatable.clone())).collect();
        let facts = Facts { nodes, shapes, pods, scored: SCORED.map(|name| table.place(name)), table };
        Self { facts: Rc::new(facts), machines: machines.into(), ports: ports.into(), topology, log: Vec::new() }
    }

    /// Counts terminating pods for affinity too: kube-scheduler does so until they are gone. Its topology spread
    /// ignores them.
    #[must_use]
    pub fn with_terminating_pods(mut self, snapshot: &Snapshot, index: &SnapshotIndex) -> Self {
        pods_on_nodes(snapshot, index, true).for_each(|(shape, node)| self.topology.add_to_affinity(shape, node));
        self
    }

    /// Pending pods in the order of the scheduling queue.
    #[must_use]
    pub fn pods(&self) -> &[PodSlot] {
        &self.facts.pods
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.machines.len()
    }

    /// Name of a node.
    #[must_use]
    pub fn node_name(&self, node: usize) -> &NodeName {
        &self.facts.nodes[Id::new(node)].0
    }

    /// Requests of a shape's pods, in the order of [`ResourceTable`]; empty if no pods of the shape are pending.
    #[must_use]
    pub fn requests(&self, shape: usize) -> &[i64] {
        self.facts.shape(shape).map_or(&[], |shape| &shape.requests)
    }

    /// Current machine of the node.
    #[must_use]
    pub fn machine(&self, node: usize) -> &Machine {
        &self.machines[Id::new(node)]
    }

    /// The machine of `node` if the node had these `allocatable` resources.
    #[must_use]
    pub fn resized(&self, node: usize, allocatable: &Resources) -> Machine {
        let id = Id::new(node);
        self.machines[id].resized(&self.facts.table, &self.facts.nodes[id].1, allocatable)
    }

    /// Replaces the machine of the node.
    pub fn resize(&mut self, node: usize, machine: Machine) {
        let before = std::mem::replace(&mut self.machines[Id::new(node)], machine);
        self.log.push(Change::Resized { node, before });
    }

    /// Checks whether a pending pod of `shape` may run on `node`, both with the pods that are `nominated` to the node
    /// and without these pods.
    ///
    /// # Errors
    ///
    /// The first filter that rejects the pod.
    pub fn filter(&self, shape: usize, node: usize, nominated: &Nominated) -> Result<(), Rejection> {
        self.filter_node(shape, node)?;
        self.filter_pods(shape, node)?;
        if nominated.is_empty() { Ok(()) } else { self.filter_beside(shape, node, nominated) }
    }

    /// The part of [`Self::filter`] that does not depend on other pods: the node's state, taints and labels, and volume
    /// topology.
    ///
    /// # Errors
    ///
    /// The first filter that rejects the pod.
    pub fn filter_node(&self, shape: usize, node: usize) -> Result<(), Rejection> {
        let shape = self.facts.shape(shape).ok_or(Rejection::NotPending)?;
        shape.verdicts.get(node).copied().flatten().map_or(Ok(()), Err)
    }

    /// The part of [`Self::filter`] that depends on bound pods: ports, resources, topology spread and affinity.
    ///
    /// # Errors
    ///
    /// The first filter that rejects the pod.
    pub fn filter_pods(&self, shape: usize, node: usize) -> Result<(), Rejection> {
        let pod = self.facts.shape(shape).ok_or(Rejection::NotPending)?;
        if ports_conflict(&pod.ports, &self.ports[Id::new(node)]) {
            return Err(Rejection::HostPorts);
        }
        if !fits(&pod.requests, &self.machines[Id::new(node)].free) {
            return Err(Rejection::Resources);
        }
        self.topology.filter(shape, node, &Nominated::default())
    }

    /// The part of [`Self::filter`] that depends on bound and `nominated` pods together.
    ///
    /// # Errors
    ///
    /// The first filter that rejects the pod.
    pub fn filter_beside(&self, shape: usize, node: usize, nominated: &Nominated) -> Result<(), Rejection> {
        let pod = self.facts.shape(shape).ok_or(Rejection::NotPending)?;
        let mut others = self.nominated_shapes(nominated);
        if ports_conflict(&pod.ports, &self.ports[Id::new(node)])
            || others.any(|(other, _)| ports_conflict(&pod.ports, &other.ports))
        {
            return Err(Rejection::HostPorts);
        }
        if self.lacking(pod, node, nominated).next().is_some() {
            return Err(Rejection::Resources);
        }
        self.topology.filter(shape, node, nominated)
    }

    /// Resources of which `node` has too little for a pod of `shape` in addition to the `nominated` pods.
    pub fn insufficient(&self, shape: usize, node: usize, nominated: &Nominated) -> impl Iterator<Item = &str> {
        let pod = self.facts.shape(shape).into_iter();
        pod.flat_map(move |pod| self.lacking(pod, node, nominated)).map(|place| self.facts.table.name(place))
    }

    /// Indices of these resources in amounts.
    fn lacking(&self, pod: &Shape, node: usize, nominated: &Nominated) -> impl Iterator<Item = usize> {
        let left = move |place: usize, free: i64| {
            let others = self.nominated_shapes(nominated);
            let taken = others.filter_map(|(other, count)| Some(other.requests.get(place)?.saturating_mul(count)));
            taken.fold(free, i64::saturating_sub)
        };
        let amounts = pod.requests.iter().zip(&self.machines[Id::new(node)].free).enumerate();
        amounts.filter(move |(place, (need, free))| **need > 0 && **need > left(*place, **free)).map(|(place, _)| place)
    }

    fn nominated_shapes(&self, nominated: &Nominated) -> impl Iterator<Item = (&Shape, i64)> {
        nominated.iter().filter_map(|(shape, count)| Some((self.facts.shape(shape)?, count)))
    }

    /// Whether the required topology spread constraints of `shape` hold for its pods on `node`. For use after all pods
    /// are bound.
    #[must_use]
    pub fn spreads_hold(&self, shape: usize, node: usize) -> bool {
        self.topology.spreads_hold(shape, node)
    }

    /// Scores of `nodes` for a pod of `shape`; higher is better. All `nodes` must pass the filters.
    #[must_use]
    pub fn scores(&self, shape: usize, nodes: &[usize]) -> Vec<i64> {
        let Some(pod) = self.facts.shape(shape) else { return vec![0; nodes.len()] };
        let spread: Vec<Option<i64>> = nodes.iter().map(|node| self.topology.spread_score(shape, *node)).collect();
        let affinity: Vec<Option<i64>> =
            nodes.iter().map(|node| Some(self.topology.affinity_score(shape, *node))).collect();
        let topology = score::normalized(&spread, false).into_iter().zip(score::normalized(&affinity, true));
        let preferences: Vec<score::Preference> =
            nodes.iter().map(|node| pod.preference.get(*node).copied().unwrap_or_default()).collect();
        let total = |((node, (spread, affinity)), preferred): ((&usize, (i64, i64)), i64)| {
            score::resources(&self.machines[Id::new(*node)], &pod.requests, self.facts.scored)
                + preferred
                + score::TOPOLOGY_SPREAD * spread
                + score::POD_AFFINITY * affinity
        };
        nodes.iter().zip(topology).zip(score::preferred(&preferences)).map(total).collect()
    }

    /// The node with the highest score for a pod of `shape`; the first among equals. All `nodes` must pass the filters.
    #[must_use]
    pub fn best(&self, shape: usize, nodes: &[usize]) -> Option<usize> {
        let scores = self.scores(shape, nodes).into_iter();
        let best = nodes.iter().zip(scores).min_by_key(|(_, score)| Reverse(*score));
        best.map(|(node, _)| *node)
    }

    /// Binds a pending pod of `shape` to its best node. Returns the node, if one passes the filters.
    pub fn schedule(&mut self, shape: usize) -> Option<usize> {
        let fits = |node: &usize| self.filter(shape, *node, &Nominated::default()).is_ok();
        let nodes: Vec<usize> = (0..self.nodes()).filter(fits).collect();
        let best = self.best(shape, &nodes)?;
        self.bind(shape, best);
        Some(best)
    }

    /// Returns which `candidates` for one node may be nominated to it at the same time. A candidate is the shape of a
    /// pending pod, and whether the pod is nominated to the node now.
    #[must_use]
    pub fn admissible(&self, candidates: &[(usize, bool)]) -> Vec<bool> {
        if candidates.iter().all(|(shape, _)| self.topology.is_always_admissible(*shape)) {
            return vec![true; candidates.len()];
        }
        let mut shapes: Vec<usize> = candidates.iter().map(|(shape, _)| *shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let candidate = |(shape, is_current): &(usize, bool)| {
            let priority = self.facts.shape(*shape).map_or(0, |shape| shape.priority);
            Candidate { group: shapes.binary_search(shape).unwrap_or(0), priority, is_current: *is_current }
        };
        let candidates: Vec<Candidate> = candidates.iter().map(candidate).collect();
        nomination::admissible(&self.topology.nomination_groups(&shapes), &candidates)
    }

    /// Binds a pending pod of `shape` to `node`.
    pub fn bind(&mut self, shape: usize, node: usize) {
        let Some(pod) = self.facts.shape(shape) else { return };
        add(&mut self.machines[Id::new(node)].free, &pod.requests, -1);
        self.ports[Id::new(node)].extend(pod.ports.iter().cloned());
        self.topology.add(shape, node);
        self.log.push(Change::Bound { shape, node });
    }

    /// The current state, for [`Self::rollback`].
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint(self.log.len())
    }

    /// Undoes all changes since the checkpoint.
    pub fn rollback(&mut self, to: Checkpoint) {
        while self.log.len() > to.0 {
            match self.log.pop() {
                Some(Change::Bound { shape, node }) => self.unbind(shape, node),
                Some(Change::Resized { node, before }) => self.machines[Id::new(node)] = before,
                None => return,
            }
        }
    }

    /// Undoes the last binding to `node`.
    fn unbind(&mut self, shape: usize, node: usize) {
        let Some(pod) = self.facts.shape(shape) else { return };
        add(&mut self.machines[Id::new(node)].free, &pod.requests, 1);
        let ports = &mut self.ports[Id::new(node)];
        ports.truncate(ports.len().saturating_sub(pod.ports.len()));
        self.topology.remove(shape, node);
    }
}

impl Facts {
    fn shape(&self, shape: usize) -> Option<&Shape> {
        self.shapes.get(shape)?.as_ref()
    }
}

impl Shape {
    fn new<'s>(
        shape: &'s PodShape,
        requests: &Amounts,
        table: &ResourceTable,
        shared: &BTreeSet<(&str, &str)>,
        verdicts: &mut Verdicts<'s>,
        snapshot: &Snapshot,
    ) -> Self {
        let mut requests = requests.clone();
        for volume in &shape.volumes {
            // A shared volume may be attached to the node already. It is not counted, since few volumes are shared.
            if shared.contains(&(shape.namespace.as_str(), volume.claim.as_str()))
                && let Some(request) = table.attached(&volume.driver).and_then(|place| requests.get_mut(place))
            {
                *request -= 1;
            }
        }
        Self {
            requests,
            ports: shape.host_ports.clone(),
            priority: shape.priority,
            verdicts: verdicts.of(shape),
            preference: snapshot.nodes.iter().map(|node| score::Preference::of(shape, node)).collect(),
        }
    }
}

fn pending_pods(snapshot: &Snapshot, index: &SnapshotIndex) -> Vec<PodSlot> {
    let mut pods: Vec<(&Pod, PodSlot)> = Vec::new();
    for (place, pod) in snapshot.pods.iter().enumerate() {
        if let (PodState::Pending, false, Some(shape)) = (&pod.state, pod.is_virtual(), index.shape_of(place)) {
            let priority = snapshot.shapes.get(shape).map_or(0, |shape| shape.priority);
            pods.push((pod, PodSlot { uid: pod.uid.clone(), shape, priority }));
        }
    }
    pods.sort_by_key(|(pod, slot)| queue::key(pod, slot.priority));
    pods.into_iter().map(|(_, slot)| slot).collect()
}
