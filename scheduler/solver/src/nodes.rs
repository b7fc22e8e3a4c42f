//! What is known of each node and its pods, kept from one plan to the next as long as neither changes.

use crate::daemon;
use crate::existing::Room;
use crate::facts::{lookup, selects};
use crate::frame::Frame;
use crate::hosts::Tally;
use crate::intern::{Amounts, add};
use crate::topology::{Counts, Marks};
use crate::volumes;
use crate::world::{Welcome, tolerated};
use plimsoll_model::snapshot::{Node, NodeState, Pod, PodShape, Snapshot, SnapshotIndex};
use plimsoll_model::taints::Taint;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kinds of nodes that are remembered beyond twice as many as there are nodes: those of nodes that are gone.
const SPARE_CLASSES: usize = 256;

/// A node with its pods.
#[derive(Debug)]
pub(crate) struct NodeData {
    /// What is free at the time of the snapshot.
    pub(crate) room: Arc<Room>,
    /// Nodes of one class differ in nothing that a shape asks for.
    pub(crate) class: usize,
    /// What it counts against its pool's limits.
    pub(crate) usage: Amounts,
    marks: Marks,
}

/// What nodes of one class have in common: labels that shapes ask for, taints, and the name where it matters.
type Likeness = (Vec<Option<String>>, Vec<Taint>, Option<String>);

/// All nodes of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// By revision.
    known: BTreeMap<u64, NodeData>,
    classes: BTreeMap<Likeness, usize>,
    /// Per class and shape; empty for classes that no node has been of since the shapes changed.
    welcome: Vec<Vec<Welcome>>,
    /// Of all pods on nodes.
    counts: Counts,
}

impl Nodes {
    /// Of no nodes.
    pub(crate) fn new(frame: &Frame) -> Self {
        Self { counts: Counts::new(&frame.rules), ..Self::default() }
    }

    /// The numbers of shapes mean others from now on.
    pub(crate) fn forget_shapes(&mut self) {
        self.welcome.iter_mut().for_each(Vec::clear);
    }

    /// Follows the snapshot: what has the same revision is the same.
    pub(crate) fn follow(&mut self, frame: &Frame, snapshot: &Snapshot, index: &SnapshotIndex) {
        if self.welcome.len() > 2 * snapshot.nodes.len() + SPARE_CLASSES {
            *self = Self::new(frame);
        }
        for (number, node) in snapshot.nodes.iter().enumerate() {
            let revision = index.revision(number);
            if let Some(known) = self.known.get(&revision) {
                judge_all(&mut self.welcome[known.class], frame, node);
            } else {
                let data = self.look_at(frame, snapshot, index, number, node);
                self.counts.join(&data.marks, 1);
                self.known.insert(revision, data);
            }
        }
        if self.known.len() > snapshot.nodes.len() {
            let there: BTreeSet<u64> = (0..snapshot.nodes.len()).map(|number| index.revision(number)).collect();
            let counts = &mut self.counts;
            self.known.retain(|revision, data| {
                let stays = there.contains(revision);
                if !stays {
                    counts.join(&data.marks, -1);
                }
                stays
            });
        }
    }

    /// The node of that revision, which was followed.
    pub(crate) fn get(&self, revision: u64) -> Option<&NodeData> {
        self.known.get(&revision)
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn welcome(&self, class: usize, shape: usize) -> Welcome {
        self.welcome[class][shape]
    }

    fn look_at(
        &mut self,
        frame: &Frame,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        number: usize,
        node: &Node,
    ) -> NodeData {
        let residents = index.residents(number).iter().map(|place| *place as usize);
        let pods = residents.filter_map(|place| Some((snapshot.pods.get(place)?, index.shape_of(place)?)));
        let pods: Vec<(&Pod, usize)> = pods.collect();
        let mut staying: BTreeMap<usize, i64> = BTreeMap::new();
        for (_, shape) in pods.iter().filter(|(pod, _)| !pod.terminating) {
            *staying.entry(*shape).or_default() += 1;
        }
        let mut tally = Tally::default();
        for (shape, count) in &staying {
            let count = usize::try_from(*count).unwrap_or(0);
            tally.add_bound(&frame.rules.host_rules, &frame.rules.hosts[*shape], count);
        }
        let (free, ports) = free(frame, snapshot, node, &pods);
        NodeData {
            room: Arc::new(Room { free, ports, tally, closed: false }),
            class: self.class(frame, node),
            usage: frame.table().vector(&node.limit_usage),
            marks: Marks::new(&frame.rules, node, &staying),
        }
    }

    fn class(&mut self, frame: &Frame, node: &Node) -> usize {
        let labels = frame.keys.iter().map(|key| lookup(&node.labels, key).map(str::to_owned)).collect();
        let name = frame.by_name.then(|| node.name.0.clone());
        let next = self.welcome.len();
        let class = *self.classes.entry((labels, node.taints.clone(), name)).or_insert(next);
        if class == next {
            self.welcome.push(Vec::new());
        }
        judge_all(&mut self.welcome[class], frame, node);
        class
    }
}

/// Judges all shapes for the class of `node`, unless that was done.
fn judge_all(welcome: &mut Vec<Welcome>, frame: &Frame, node: &Node) {
    if welcome.is_empty() {
        welcome.extend((0..frame.shapes.len()).map(|shape| judge(frame.shape(shape), node)));
    }
}

/// Whether pods of `shape` may go to `node`, room aside.
fn judge(shape: &PodShape, node: &Node) -> Welcome {
    let name = node.name.as_str();
    if !tolerated(&node.taints, &shape.tolerations, true)
        || !selects(shape, name, &node.labels)
        || !volumes::attachable(shape, name, &node.labels)
    {
        return Welcome::No;
    }
    if tolerated(&node.taints, &shape.tolerations, false) { Welcome::Yes } else { Welcome::Unwanted }
}

/// Amounts and ports: what is free, and what is taken.
fn free(
    frame: &Frame,
    snapshot: &Snapshot,
    node: &Node,
    pods: &[(&Pod, usize)],
) -> (Amounts, Vec<plimsoll_model::snapshot::HostPort>) {
    let in_service = node.state == NodeState::Initialized;
    let table = frame.table();
    let mut free = table.room(&node.allocatable, |driver| volumes::usual_limit(driver, None, in_service));
    let mut shared: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut daemons = vec![0; free.len()];
    let mut ports = Vec::new();
    for (pod, number) in pods {
        let (shape, requests) = (frame.shape(*number), &frame.shapes[*number].requests);
        add(&mut free, requests, -1);
        for volume in shape.volumes.iter().filter(|volume| !volume.claim.is_empty()) {
            // Pods that share a claim share its attachment.
            if !shared.insert((&shape.namespace, &volume.claim))
                && let Some(place) = table.attached(&volume.driver)
            {
                free[place] += 1;
            }
        }
        if pod.stays_with_node {
            add(&mut daemons, requests, 1);
        }
        ports.extend(shape.host_ports.iter().cloned());
    }
    let missing = daemon::missing(frame, &snapshot.daemon_sets, node, &daemons);
    add(&mut free, &missing, -1);
    (free, ports)
}
