//! What the pods of a snapshot refer to, as numbers, so that a change of one pod among a hundred thousand need not look at all others.

use super::{Pod, PodState, Snapshot};
use crate::identity::NodeName;
use std::collections::HashMap;

/// The number of nothing.
const NONE: u32 = u32::MAX;
/// The number of a node that the snapshot does not have.
const UNKNOWN: u32 = u32::MAX - 1;

/// Places in one list of a snapshot that a change touched; all ascending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edits {
    /// Objects that went: their places in the former list.
    pub removed: Vec<usize>,
    /// Objects that came: their places in the list as it is now.
    pub inserted: Vec<usize>,
    /// Objects that are different now: their places in the list as it is now.
    pub replaced: Vec<usize>,
}

impl Edits {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.inserted.is_empty() && self.replaced.is_empty()
    }

    fn moves(&self) -> bool {
        !self.removed.is_empty() || !self.inserted.is_empty()
    }

    /// Per place in the former list of `count` objects: where that object is now; [`NONE`] if it went.
    fn places(&self, count: usize) -> Vec<u32> {
        let (mut removed, mut inserted) = (self.removed.iter().peekable(), self.inserted.iter().peekable());
        let mut now = 0;
        let mut places = Vec::with_capacity(count);
        for old in 0..count {
            if removed.next_if(|at| **at == old).is_some() {
                places.push(NONE);
                continue;
            }
            while inserted.next_if(|at| **at == now).is_some() {
                now += 1;
            }
            places.push(number(now));
            now += 1;
        }
        places
    }

    /// The same list of numbers with those of removed objects taken out and `fresh` put in for those that came.
    fn splice<T: Clone>(&self, list: &mut Vec<T>, fresh: &T) {
        if !self.moves() {
            return;
        }
        let mut removed = self.removed.iter().peekable();
        let mut at = 0;
        list.retain(|_| {
            let gone = removed.next_if(|place| **place == at).is_some();
            at += 1;
            !gone
        });
        if self.inserted.is_empty() {
            return;
        }
        let (mut inserted, mut rest) = (self.inserted.iter().peekable(), std::mem::take(list).into_iter());
        list.reserve(rest.len() + self.inserted.len());
        loop {
            if inserted.next_if(|place| **place == list.len()).is_some() {
                list.push(fresh.clone());
            } else if let Some(next) = rest.next() {
                list.push(next);
            } else {
                break;
            }
        }
    }
}

/// Pods of a snapshot in canonical order ([`Snapshot::sort`]) by what they refer to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotIndex {
    /// Per pod: the place of its shape.
    shapes: Vec<u32>,
    /// Per pod: the place of the node that it is bound to or reserved for.
    nodes: Vec<u32>,
    /// Per node, and one more: where its pods begin in `residents`.
    starts: Vec<u32>,
    /// Places of pods by node, ascending for each.
    residents: Vec<u32>,
    /// Places of pods that are to be placed, ascending.
    pending: Vec<u32>,
    /// Per node: changes whenever the node or anything about its pods does, never to a number that it or another node had before.
    revisions: Vec<u64>,
    /// Per shape, likewise.
    shape_revisions: Vec<u64>,
    next_revision: u64,
}

impl SnapshotIndex {
    /// Of `snapshot`, which is in canonical order.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        let shapes = numbers(snapshot.shapes.iter().map(|shape| shape.id.as_str()));
        let nodes = numbers(snapshot.nodes.iter().map(|node| node.name.as_str()));
        let found = |known: &HashMap<&str, u32>, name: &str| known.get(name).copied().unwrap_or(UNKNOWN);
        let mut index = Self {
            shapes: snapshot.pods.iter().map(|pod| found(&shapes, pod.shape.as_str())).collect(),
            nodes: snapshot
                .pods
                .iter()
                .map(|pod| node_of(pod).map_or(NONE, |name| found(&nodes, name.as_str())))
                .collect(),
            revisions: (0..).take(snapshot.nodes.len()).collect(),
            ..Self::default()
        };
        index.next_revision = index.revisions.len() as u64;
        index.shape_revisions = (index.next_revision..).take(snapshot.shapes.len()).collect();
        index.next_revision += index.shape_revisions.len() as u64;
        index.arrange();
        index
    }

    /// Follows `snapshot` through a change of its pods, nodes and shapes.
    pub fn update(&mut self, snapshot: &Snapshot, pods: &Edits, nodes: &Edits, shapes: &Edits) {
        if shapes.moves() {
            let count = snapshot.shapes.len() + shapes.removed.len() - shapes.inserted.len();
            renumber(&mut self.shapes, &shapes.places(count));
            shapes.splice(&mut self.shape_revisions, &u64::MAX);
        }
        for place in shapes.inserted.iter().chain(&shapes.replaced) {
            if let Some(revision) = self.shape_revisions.get_mut(*place) {
                *revision = self.next_revision;
                self.next_revision += 1;
            }
        }
        let mut touched: Vec<u32> = Vec::new();
        if nodes.moves() {
            renumber(&mut self.nodes, &nodes.places(self.revisions.len()));
            nodes.splice(&mut self.revisions, &u64::MAX);
        }
        touched.extend(nodes.inserted.iter().chain(&nodes.replaced).map(|place| number(*place)));
        touched.extend(pods.removed.iter().filter_map(|place| self.nodes.get(*place)));
        pods.splice(&mut self.shapes, &NONE);
        pods.splice(&mut self.nodes, &NONE);
        for place in pods.inserted.iter().chain(&pods.replaced) {
            let Some(pod) = snapshot.pods.get(*place) else { continue };
            let node = node_number(snapshot, pod);
            touched.extend([self.nodes[*place], node]);
            (self.shapes[*place], self.nodes[*place]) = (shape_number(snapshot, pod), node);
        }
        for node in touched {
            if let Some(revision) = self.revisions.get_mut(node as usize) {
                *revision = self.next_revision;
                self.next_revision += 1;
            }
        }
        self.arrange();
    }

    /// Pods by node, and those without.
    fn arrange(&mut self) {
        let count = self.revisions.len();
        let mut ends = vec![0_u32; count + 1];
        for node in &self.nodes {
            if let Some(end) = ends.get_mut(*node as usize + 1).filter(|_| (*node as usize) < count) {
                *end += 1;
            }
        }
        for node in 0..count {
            ends[node + 1] += ends[node];
        }
        self.starts.clone_from(&ends);
        self.residents = vec![0; ends[count] as usize];
        self.pending.clear();
        for (pod, node) in self.nodes.iter().enumerate() {
            if *node == NONE {
                self.pending.push(number(pod));
            } else if (*node as usize) < count {
                let place = &mut ends[*node as usize];
                self.residents[*place as usize] = number(pod);
                *place += 1;
            }
        }
    }

    /// The place of the shape of pod number `pod`, if the snapshot has it.
    #[must_use]
    pub fn shape_of(&self, pod: usize) -> Option<usize> {
        self.shapes.get(pod).filter(|shape| **shape < UNKNOWN).map(|shape| *shape as usize)
    }

    /// The place of the node that pod number `pod` is bound to or reserved for, if the snapshot has it.
    #[must_use]
    pub fn node_of(&self, pod: usize) -> Option<usize> {
        self.nodes.get(pod).filter(|node| **node < UNKNOWN).map(|node| *node as usize)
    }

    /// Places of the pods that are bound to node number `node` or reserved for it, ascending.
    #[must_use]
    pub fn residents(&self, node: usize) -> &[u32] {
        let range = self.starts.get(node).zip(self.starts.get(node + 1));
        range.and_then(|(from, to)| self.residents.get(*from as usize..*to as usize)).unwrap_or_default()
    }

    /// Places of the pods that are to be placed, ascending.
    #[must_use]
    pub fn pending(&self) -> &[u32] {
        &self.pending
    }

    /// Changes whenever node number `node` or anything about its pods does; no two nodes of one index, at whatever time, share one.
    #[must_use]
    pub fn revision(&self, node: usize) -> u64 {
        self.revisions.get(node).copied().unwrap_or(u64::MAX)
    }

    /// Per shape a number that changes whenever the shape does; no two shapes of one index, at whatever time, share one.
    #[must_use]
    pub fn shape_revisions(&self) -> &[u64] {
        &self.shape_revisions
    }

    /// The first pod whose shape, or whose node, the snapshot does not have.
    #[must_use]
    pub fn dangling(&self) -> Option<usize> {
        let lost = |(shape, node): (&u32, &u32)| *shape >= UNKNOWN || *node == UNKNOWN;
        self.shapes.iter().zip(&self.nodes).position(lost)
    }
}

fn renumber(numbers: &mut [u32], places: &[u32]) {
    for one in numbers {
        if let Some(now) = places.get(*one as usize) {
            // What a pod refers to is gone: not to be taken for a pod that refers to nothing.
            *one = if *now == NONE { UNKNOWN } else { *now };
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

/// Names with their places. Only looked up, never walked.
fn numbers<'n>(names: impl Iterator<Item = &'n str>) -> HashMap<&'n str, u32> {
    names.enumerate().map(|(place, name)| (name, number(place))).collect()
}

/// Lists of a snapshot are far shorter.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests;
