use super::{Edits, SnapshotIndex};
use crate::identity::{NodeName, PodUid, ShapeId};
use crate::snapshot::{Node, NodeState, Pod, PodShape, PodState, Snapshot};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Objects by name, each with properties that may change.
type ClusterContent = (BTreeMap<u8, (u8, Option<u8>, bool)>, BTreeMap<u8, bool>, BTreeMap<u8, bool>);

fn pod(uid: u8, shape: u8, node: Option<u8>, terminating: bool) -> Pod {
    Pod {
        uid: PodUid(format!("{uid:03}")),
        shape: ShapeId(format!("{shape:03}")),
        state: node.map_or(PodState::Pending, |node| PodState::Bound(NodeName(format!("{node:03}")))),
        terminating,
        ..Pod::default()
    }
}

fn node(name: u8, ready: bool) -> Node {
    Node { name: NodeName(format!("{name:03}")), state: NodeState::Initialized, ready, ..Node::default() }
}

/// Snapshot of the content. Omits pods whose shape or node does not exist.
fn snapshot((pods, nodes, shapes): &ClusterContent) -> Snapshot {
    let has =
        |shape: &u8, node: &Option<u8>| shapes.contains_key(shape) && node.is_none_or(|node| nodes.contains_key(&node));
    let kept = pods.iter().filter(|(_, (shape, node, _))| has(shape, node));
    Snapshot {
        pods: kept.map(|(uid, (shape, node, terminating))| pod(*uid, *shape, *node, *terminating)).collect(),
        nodes: nodes.iter().map(|(name, ready)| node(*name, *ready)).collect(),
        shapes: shapes.keys().map(|id| PodShape { id: ShapeId(format!("{id:03}")), ..PodShape::default() }).collect(),
        ..Snapshot::default()
    }
}

/// Computes the edits between two lists.
fn edits<T: PartialEq>(old: &[T], new: &[T], key: fn(&T) -> &str) -> Edits {
    let find = |list: &[T], wanted: &str| list.iter().position(|object| key(object) == wanted);
    let mut edits = Edits::default();
    edits.removed.extend((0..old.len()).filter(|at| find(new, key(&old[*at])).is_none()));
    for (at, object) in new.iter().enumerate() {
        match find(old, key(object)) {
            None => edits.inserted.push(at),
            Some(before) if old[before] != *object => edits.replaced.push(at),
            Some(_) => {}
        }
    }
    edits
}

fn follow(index: &mut SnapshotIndex, old: &Snapshot, new: &Snapshot) {
    let pods = edits(&old.pods, &new.pods, |pod| pod.uid.as_str());
    let nodes = edits(&old.nodes, &new.nodes, |node| node.name.as_str());
    let shapes = edits(&old.shapes, &new.shapes, |shape| shape.id.as_str());
    index.update(new, &pods, &nodes, &shapes);
}

fn without_revisions(index: SnapshotIndex) -> SnapshotIndex {
    SnapshotIndex { revisions: Vec::new(), shape_revisions: Vec::new(), next_revision: 0, ..index }
}

fn cluster_content() -> impl Strategy<Value = ClusterContent> {
    let pods = prop::collection::btree_map(0..24_u8, (0..4_u8, prop::option::of(0..6_u8), any::<bool>()), 0..24);
    let named = |most: u8| prop::collection::btree_map(0..most, any::<bool>(), 0..usize::from(most));
    (pods, named(6), named(4))
}

proptest! {
    #[test]
    fn an_updated_index_equals_a_new_index(contents in prop::collection::vec(cluster_content(), 1..6)) {
        let snapshots: Vec<Snapshot> = contents.iter().map(snapshot).collect();
        let mut index = SnapshotIndex::new(&snapshots[0]);
        for pair in snapshots.windows(2) {
            follow(&mut index, &pair[0], &pair[1]);
            let rebuilt = SnapshotIndex::new(&pair[1]);
            let revisions = |index: &SnapshotIndex| (index.revisions.len(), index.shape_revisions.len());
            prop_assert_eq!(revisions(&index), revisions(&rebuilt));
            prop_assert_eq!(without_revisions(index.clone()), without_revisions(rebuilt));
            prop_assert_eq!(index.dangling(), None);
        }
    }

    #[test]
    fn a_node_revision_identifies_a_node_with_its_pods(contents in prop::collection::vec(cluster_content(), 1..6)) {
        let snapshots: Vec<Snapshot> = contents.iter().map(snapshot).collect();
        let mut index = SnapshotIndex::new(&snapshots[0]);
        let mut known: HashMap<u64, (Node, Vec<Pod>)> = HashMap::new();
        for (at, snapshot) in snapshots.iter().enumerate() {
            if at > 0 {
                follow(&mut index, &snapshots[at - 1], snapshot);
            }
            for (number, node) in snapshot.nodes.iter().enumerate() {
                let pods = index.residents(number).iter().map(|pod| Pod::clone(&snapshot.pods[*pod as usize]));
                let seen = (node.clone(), pods.collect());
                prop_assert_eq!(known.entry(index.revision(number)).or_insert_with(|| seen.clone()), &seen);
            }
        }
    }

    #[test]
    fn a_shape_revision_identifies_a_shape(contents in prop::collection::vec(cluster_content(), 1..6)) {
        let snapshots: Vec<Snapshot> = contents.iter().map(snapshot).collect();
        let mut index = SnapshotIndex::new(&snapshots[0]);
        let mut known: HashMap<u64, PodShape> = HashMap::new();
        for (at, snapshot) in snapshots.iter().enumerate() {
            let before = index.shape_revisions().to_vec();
            if at > 0 {
                follow(&mut index, &snapshots[at - 1], snapshot);
                let stayed = snapshots[at - 1].shapes == snapshot.shapes;
                prop_assert_eq!(before == index.shape_revisions(), stayed);
            }
            for (shape, revision) in snapshot.shapes.iter().zip(index.shape_revisions()) {
                prop_assert_eq!(known.entry(*revision).or_insert_with(|| shape.clone()), shape);
            }
        }
    }
}

#[test]
fn an_unchanged_node_keeps_its_revision() {
    let before = snapshot(&(
        BTreeMap::from([(1, (0, Some(0), false)), (2, (0, Some(1), false))]),
        BTreeMap::from([(0, true), (1, true)]),
        BTreeMap::from([(0, true)]),
    ));
    let mut after = before.clone();
    after.pods.insert(0, pod(0, 0, Some(1), false).into());
    let mut index = SnapshotIndex::new(&before);
    let first = [index.revision(0), index.revision(1)];
    follow(&mut index, &before, &after);
    assert_eq!(index.revision(0), first[0]);
    assert_ne!(index.revision(1), first[1]);
}

#[test]
fn pods_with_dangling_references_are_not_pending() {
    let pods = vec![pod(0, 0, None, false), pod(1, 0, Some(7), false), pod(2, 9, None, false)].into();
    let shapes = vec![PodShape { id: ShapeId("000".into()), ..PodShape::default() }];
    let index = SnapshotIndex::new(&Snapshot { pods, shapes, ..Snapshot::default() });
    assert_eq!(index.pending(), [0, 2]);
    assert_eq!((index.shape_of(0), index.shape_of(2)), (Some(0), None));
    assert_eq!(index.dangling(), Some(1));
}
