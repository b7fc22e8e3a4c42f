//! Index of the references in a snapshot, by number. Allows a change of one pod among a hundred thousand to be
//! processed without looking at the others.

use super::edits::{NONE, UNKNOWN, number};
use super::{Edits, Pod, PodState, Snapshot};
use crate::identity::NodeName;
use std::collections::HashMap;

/// References of the pods in a snapshot in canonical order (see [`Snapshot::sort`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotIndex {
    /// Per pod: number of its shape.
    shapes: Vec<u32>,
    /// Per pod: number of the node that it is bound to or reserved on.
    nodes: Vec<u32>,
    /// Per node, plus one: start of its pods in `residents`.
    starts: Vec<u32>,
    /// Numbers of pods grouped by node, ascending within each node.
    residents: Vec<u32>,
    /// Numbers of pending pods, ascending.
    pending: Vec<u32>,
    /// Per node: unique number that changes whenever the node or its pods change.
    revisions: Vec<u64>,
    /// Per shape: unique number that changes whenever the shape changes.
    shape_revisions: Vec<u64>,
    next_revision: u64,
}

impl SnapshotIndex {
    /// Builds the index of `snapshot`, which must be in canonical order.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        let shapes = numbers(snapshot.shapes.iter().map(|shape| shape.id.as_str()));
        let nodes = numbers(snapshot.nodes.iter().map(|node| node.name.as_str()));
        let lookup = |numbers: &HashMap<&str, u32>, name: &str| numbers.get(name).copied().unwrap_or(UNKNOWN);
        let mut index = Self {
            shapes: snapshot.pods.iter().map(|pod| lookup(&shapes, pod.shape.as_str())).collect(),
            nodes: snapshot
                .pods
                .iter()
                .map(|pod| node_of(pod).map_or(NONE, |name| lookup(&nodes, name.as_str())))
                .collect(),
            revisions: (0..).take(snapshot.nodes.len()).collect(),
            ..Self::default()
        };
        index.next_revision = index.revisions.len() as u64;
        index.shape_revisions = (index.next_revision..).take(snapshot.shapes.len()).collect();
        index.next_revision += index.shape_revisions.len() as u64;
        index.rebuild_lists();
        index
    }

    /// Updates the index after a change of the snapshot's pods, nodes and shapes.
    pub fn update(&mut self, snapshot: &Snapshot, pods: &Edits, nodes: &Edits, shapes: &Edits) {
        if shapes.shifts_numbers() {
            let count = snapshot.shapes.len() + shapes.removed.len() - shapes.inserted.len();
            renumber(&mut self.shapes, &shapes.new_numbers(count));
            shapes.splice(&mut self.shape_revisions, &u64::MAX);
        }
        for place in shapes.inserted.iter().chain(&shapes.replaced) {
            if let Some(revision) = self.shape_revisions.get_mut(*place) {
                *revision = self.next_revision;
                self.next_revision += 1;
            }
        }
        let mut touched: Vec<u32> = Vec::new();
        if nodes.shifts_numbers() {
            renumber(&mut self.nodes, &nodes.new_numbers(self.revisions.len()));
            nodes.splice(&mut self.revisions, &u64::MAX);
        }
        touched.extend(nodes.inserted.iter().chain(&nodes.replaced).map(|place| number(*place)));
        touched.extend(pods.removed.iter().filter_map(|place| self.nodes.get(*place)));
        pods.splice(&mut self.shapes, &NONE);
        pods.splice(&mut self.nodes, &NONE);
        for place in pods.inserted.iter().chain(&pods.replaced) {
            let slot = self.shapes.get_mut(*place).zip(self.nodes.get_mut(*place));
            let (Some(pod), Some((shape, node))) = (snapshot.pods.get(*place), slot) else { continue };
            touched.push(*node);
            (*shape, *node) = (shape_number(snapshot, pod), node_number(snapshot, pod));
            touched.push(*node);
        }
        for node in touched {
            if let Some(revision) = self.revisions.get_mut(node as usize) {
                *revision = self.next_revision;
                self.next_revision += 1;
            }
        }
        self.rebuild_lists();
    }

    /// Rebuilds the lists of pods by node and of pending pods.
    fn rebuild_lists(&mut self) {
        let count = self.revisions.len();
        let mut ends = vec![0_u32; count + 1];
        for node in &self.nodes {
            if let Some(end) = ends.get_mut(*node as usize + 1).filter(|_| (*node as usize) < count) {
                *end += 1;
            }
        }
        let mut total = 0;
        for end in &mut ends {
            total += *end;
            *end = total;
        }
        self.starts.clone_from(&ends);
        self.residents = vec![0; total as usize];
        self.pending.clear();
        for (pod, node) in self.nodes.iter().enumerate() {
            if *node == NONE {
                self.pending.push(number(pod));
            } else if let Some(place) = ends.get_mut(*node as usize).filter(|_| (*node as usize) < count)
                && let Some(resident) = self.residents.get_mut(*place as usize)
            {
                *resident = number(pod);
                *place += 1;
            }
        }
    }

    /// Number of the shape of pod number `pod`, if it is in the snapshot.
    #[must_use]
    pub fn shape_of(&self, pod: usize) -> Option<usize> {
        self.shapes.get(pod).filter(|shape| **shape < UNKNOWN).map(|shape| *shape as usize)
    }

    /// Number of the node that pod number `pod` is bound to or reserved on, if it is in the snapshot.
    #[must_use]
    pub fn node_of(&self, pod: usize) -> Option<usize> {
        self.nodes.get(pod).filter(|node| **node < UNKNOWN).map(|node| *node as usize)
    }

    /// Numbers of the pods that are bound to node number `node` or reserved on it, ascending.
    #[must_use]
    pub fn residents(&self, node: usize) -> &[u32] {
        let range = self.starts.get(node).zip(self.starts.get(node + 1));
        range.and_then(|(from, to)| self.residents.get(*from as usize..*to as usize)).unwrap_or_default()
    }

    /// Numbers of pending pods, ascending.
    #[must_use]
    pub fn pending(&self) -> &[u32] {
        &self.pending
    }

    /// Revision of node number `node`. It changes whenever the node or its pods change, and is never reused within an
    /// index.
    #[must_use]
    pub fn revision(&self, node: usize) -> u64 {
        self.revisions.get(node).copied().unwrap_or(u64::MAX)
    }

    /// Revisions of all shapes. A revision changes whenever the shape changes, and is never reused within an index.
    #[must_use]
    pub fn shape_revisions(&self) -> &[u64] {
        &self.shape_revisions
    }

    /// Returns the first pod whose shape or node is not in the snapshot.
    #[must_use]
    pub fn dangling(&self) -> Option<usize> {
        let is_dangling = |(shape, node): (&u32, &u32)| *shape >= UNKNOWN || *node == UNKNOWN;
        self.shapes.iter().zip(&self.nodes).position(is_dangling)
    }
}

fn renumber(numbers: &mut [u32], new_numbers: &[u32]) {
    for number in numbers {
        if let Some(new_number) = new_numbers.get(*number as usize) {
            // A removed reference must stay distinguishable from no reference.
            *number = if *new_number == NONE { UNKNOWN } else { *new_number };
        }
    }
}

fn shape_number(snapshot: &Snapshot, pod: &Pod) -> u32 {
    snapshot.shapes.binary_search_by(|shape| shape.id.cmp(&pod.shape)).map_or(UNKNOWN, number)
}

fn node_number(snapshot: &Snapshot, pod: &Pod) -> u32 {
    let search = |name: &NodeName| snapshot.nodes.binary_search_by(|node| node.name.cmp(name));
    node_of(pod).map_or(NONE, |name| search(name).map_or(UNKNOWN, number))
}

fn node_of(pod: &Pod) -> Option<&NodeName> {
    match &pod.state {
        PodState::Bound(name) | PodState::Reserved(name) => Some(name),
        PodState::Pending => None,
    }
}

/// Numbers by name. Never iterated, so hash order does not matter.
fn numbers<'n>(names: impl Iterator<Item = &'n str>) -> HashMap<&'n str, u32> {
    names.enumerate().map(|(place, name)| (name, number(place))).collect()
}

#[cfg(test)]
mod tests;
