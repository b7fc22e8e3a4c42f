use super::{Mirror, MirrorError, checksum, chunks, diff};
use crate::convert::strategies::snapshot;
use plimsoll_model::snapshot::{
    DaemonSet, IgnoredPod, LedgerPosition, Node, NodeState, Pod, PodShape, PodState, Snapshot, SnapshotIndex,
};
use plimsoll_model::time::Timestamp;
use proptest::prelude::*;
use prost::Message;

fn mirror_of(snapshot: &Snapshot, objects_per_chunk: usize) -> Mirror {
    let mut mirror = Mirror::default();
    let chunks_of_snapshot = chunks(snapshot, objects_per_chunk);
    let count = chunks_of_snapshot.len();
    for (index, chunk) in chunks_of_snapshot.into_iter().enumerate() {
        assert_eq!(mirror.apply_chunk(chunk), Ok(index + 1 == count));
    }
    mirror
}

/// Pods that are bound to a node or reserved on it.
fn pods_on<'s>(snapshot: &'s Snapshot, index: &SnapshotIndex, node: usize) -> Vec<&'s Pod> {
    index.residents(node).iter().map(|pod| &*snapshot.pods[usize::try_from(*pod).unwrap()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_of_any_size_restore_the_snapshot(original in snapshot(), size in 0..9_usize) {
        let mirror = mirror_of(&original, size);
        prop_assert_eq!(mirror.snapshot(), Some(&original));
    }

    #[test]
    fn applying_a_delta_gives_the_new_snapshot(old in snapshot(), new in snapshot()) {
        let delta = diff(&old, &new);
        prop_assert_eq!(delta.checksum, checksum(&new));
        let mut mirror = mirror_of(&old, 100);
        prop_assert_eq!(mirror.apply_delta(delta), Ok(()));
        prop_assert_eq!(mirror.snapshot(), Some(&new));
    }

    /// A revision stays only where nothing has changed.
    #[test]
    fn the_index_follows_a_delta(old in snapshot(), new in snapshot()) {
        let mut mirror = mirror_of(&old, 100);
        let before = SnapshotIndex::new(&old);
        prop_assert_eq!(mirror.apply_delta(diff(&old, &new)), Ok(()));
        let (_, after) = mirror.indexed().unwrap();
        let rebuilt = SnapshotIndex::new(&new);
        prop_assert_eq!(after.pending(), rebuilt.pending());
        for pod in 0..new.pods.len() {
            let of = |index: &SnapshotIndex| (index.shape_of(pod), index.node_of(pod));
            prop_assert_eq!(of(after), of(&rebuilt));
        }
        for (number, node) in new.nodes.iter().enumerate() {
            let pods = pods_on(&new, after, number);
            prop_assert_eq!(&pods, &pods_on(&new, &rebuilt, number));
            if let Some(place) = (0..old.nodes.len()).find(|place| before.revision(*place) == after.revision(number)) {
                prop_assert_eq!((&old.nodes[place], pods_on(&old, &before, place)), (node, pods));
            }
        }
        for (shape, revision) in new.shapes.iter().zip(after.shape_revisions()) {
            if let Some(place) = before.shape_revisions().iter().position(|earlier| earlier == revision) {
                prop_assert_eq!(&old.shapes[place], shape);
            }
        }
    }

    #[test]
    fn a_wrong_checksum_is_rejected_and_empties_the_mirror(old in snapshot(), new in snapshot(), bit in 0..64_u32) {
        let mut delta = diff(&old, &new);
        delta.checksum ^= 1 << bit;
        let mut mirror = mirror_of(&old, 100);
        let expected = MirrorError::Checksum { expected: delta.checksum, got: checksum(&new) };
        prop_assert_eq!(mirror.apply_delta(delta), Err(expected));
        prop_assert_eq!(mirror.snapshot(), None);
    }
}

#[test]
fn gaps_are_rejected() {
    let at = |sequence| Snapshot { sequence, ..Snapshot::default() };
    let mut mirror = Mirror::default();
    assert_eq!(mirror.apply_delta(diff(&at(4), &at(5))), Err(MirrorError::Gap { base: 4, have: None }));
    let mut mirror = mirror_of(&at(3), 1);
    assert_eq!(mirror.apply_delta(diff(&at(4), &at(5))), Err(MirrorError::Gap { base: 4, have: Some(3) }));
    let shown = [Some(3), None].map(|have| MirrorError::Gap { base: 4, have }.to_string());
    assert_eq!(shown, ["3", "none"].map(|have| format!("delta is for snapshot 4, but the mirror has {have}")));
    let mut chunk = chunks(&at(1), 1).remove(0);
    chunk.index = 1;
    assert_eq!(mirror.apply_chunk(chunk), Err(MirrorError::ChunkGap { expected: 0, got: 1 }));
}

/// A snapshot of three objects, which is three chunks of one object.
fn three_objects() -> Snapshot {
    let ignored = |uid: &str| IgnoredPod { uid: uid.into(), pod: format!("shop/{uid}"), reason: "gated".to_owned() };
    Snapshot {
        sequence: 5,
        ledger: LedgerPosition { epoch: 1, sequence: 1 },
        now: Timestamp(1000),
        ignored: ["a", "b", "c"].map(ignored).into(),
        ..Snapshot::default()
    }
}

/// A mirror that has received the first `count` chunks.
fn mirror_with(chunks_of_snapshot: &[crate::snapshot::v1::SnapshotChunk], count: usize) -> Mirror {
    let mut mirror = Mirror::default();
    for chunk in &chunks_of_snapshot[..count] {
        assert_eq!(mirror.apply_chunk(chunk.clone()), Ok(false));
    }
    mirror
}

#[test]
fn each_chunk_must_follow_the_one_before() {
    let parts = chunks(&three_objects(), 1);
    assert_eq!(parts.len(), 3);
    let mut missing = mirror_with(&parts, 1);
    assert_eq!(missing.apply_chunk(parts[2].clone()), Err(MirrorError::ChunkGap { expected: 1, got: 2 }));
    let empty = MirrorError::ChunkGap { expected: 0, got: 1 };
    assert_eq!(missing.apply_chunk(parts[1].clone()), Err(empty), "the mirror is empty");
    let repeated = mirror_with(&parts, 2).apply_chunk(parts[1].clone());
    assert_eq!(repeated, Err(MirrorError::ChunkGap { expected: 2, got: 1 }));
}

#[test]
fn chunks_of_different_snapshots_are_not_mixed() {
    let first = chunks(&three_objects(), 1);
    for other in [
        Snapshot { sequence: 6, ..three_objects() },
        Snapshot { ledger: LedgerPosition { epoch: 1, sequence: 2 }, ..three_objects() },
        Snapshot { now: Timestamp(2000), ..three_objects() },
    ] {
        let mut mirror = mirror_with(&first, 1);
        assert_eq!(mirror.apply_chunk(chunks(&other, 1)[1].clone()), Err(MirrorError::MixedChunks(1)));
        assert_eq!(mirror.snapshot(), None);
    }
}

#[test]
fn the_first_chunk_discards_the_previous_snapshot() {
    let mut mirror = mirror_of(&Snapshot::default(), 1);
    assert_eq!(mirror.apply_chunk(chunks(&three_objects(), 1)[0].clone()), Ok(false));
    assert_eq!(mirror.snapshot(), None);
}

#[test]
fn chunks_with_a_wrong_checksum_are_rejected_and_empty_the_mirror() {
    let mut parts = chunks(&three_objects(), 1);
    let sent = parts[2].checksum;
    parts[2].checksum = sent ^ 1;
    let mut mirror = mirror_with(&parts, 2);
    let expected = MirrorError::Checksum { expected: sent ^ 1, got: sent };
    assert_eq!(mirror.apply_chunk(parts[2].clone()), Err(expected));
    assert_eq!(mirror.snapshot(), None);
}

/// Chunks that may not be continued: their sender has begun anew, or the first chunk of another snapshot is invalid.
#[test]
fn what_comes_between_chunks_ends_them() {
    let parts = chunks(&three_objects(), 1);
    let is_ended = |mut mirror: Mirror| {
        assert_eq!(mirror.apply_chunk(parts[2].clone()), Err(MirrorError::ChunkGap { expected: 0, got: 2 }));
    };
    let mut mirror = mirror_with(&parts, 2);
    let empty = Snapshot::default();
    assert_eq!(mirror.apply_delta(diff(&empty, &empty)), Err(MirrorError::Gap { base: 0, have: None }));
    is_ended(mirror);
    let mut mirror = mirror_with(&parts, 2);
    assert_eq!(mirror.apply_chunk(chunks(&empty, 1).remove(0)), Ok(true));
    is_ended(mirror);
    let mut mirror = mirror_with(&parts, 2);
    let invalid = crate::snapshot::v1::SnapshotChunk { part: None, ..parts[0].clone() };
    assert!(matches!(mirror.apply_chunk(invalid), Err(MirrorError::Invalid(_))));
    is_ended(mirror);
}

fn pod_on(node: &str) -> Pod {
    Pod {
        uid: "p".into(),
        namespace: "shop".to_owned(),
        name: "web-0".to_owned(),
        shape: "s".into(),
        state: PodState::Bound(node.into()),
        ..Pod::default()
    }
}

fn node(name: &str) -> Node {
    Node { name: name.into(), state: NodeState::Initialized, ready: true, ..Node::default() }
}

#[test]
fn a_delta_must_not_remove_what_is_still_in_use() {
    let set = |shape: &str| DaemonSet {
        uid: "d".to_owned(),
        namespace: "shop".to_owned(),
        name: "agent".to_owned(),
        shape: shape.into(),
    };
    let shape = |id: &str| PodShape { id: id.into(), ..PodShape::default() };
    let old = Snapshot {
        shapes: vec![shape("s"), shape("t")],
        pods: vec![pod_on("n")].into(),
        nodes: vec![node("n")],
        daemon_sets: vec![set("t")],
        ..Snapshot::default()
    };
    for (new, expected) in [
        (Snapshot { shapes: vec![shape("t")], ..old.clone() }, "snapshot.pods[0].shape: no shape \"s\""),
        (Snapshot { nodes: Vec::new(), ..old.clone() }, "snapshot.pods[0].bound_to: no node \"n\""),
        (Snapshot { shapes: vec![shape("s")], ..old.clone() }, "snapshot.daemon_sets[0].shape: no shape \"t\""),
    ] {
        let mut mirror = mirror_of(&old, 100);
        let error = mirror.apply_delta(diff(&old, &new)).err().map(|error| error.to_string());
        assert_eq!((error.as_deref(), mirror.snapshot()), (Some(expected), None));
    }
}

#[test]
fn removing_a_missing_object_is_rejected() {
    let empty = Snapshot::default();
    let mut delta = diff(&empty, &empty);
    delta.removals.get_or_insert_default().nodes.push("a".into());
    let error = mirror_of(&empty, 1).apply_delta(delta).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("delta.removals.nodes[0]: is not there"));
}

#[test]
fn a_delta_without_content_is_rejected() {
    let empty = Snapshot::default();
    let delta = crate::snapshot::v1::Delta { upserts: None, ..diff(&empty, &empty) };
    let mut mirror = mirror_of(&empty, 1);
    let error = mirror.apply_delta(delta).err().map(|error| error.to_string());
    assert_eq!((error.as_deref(), mirror.snapshot()), (Some("delta.upserts: is not set"), None));
}

#[test]
fn chunks_must_contain_what_their_objects_refer_to() {
    let snapshot = Snapshot { pods: vec![pod_on("n")].into(), nodes: vec![node("n")], ..Snapshot::default() };
    let mut mirror = Mirror::default();
    let error = mirror.apply_chunk(chunks(&snapshot, 100).remove(0)).err().map(|error| error.to_string());
    let expected = "snapshot.pods[0].shape: no shape \"s\"";
    assert_eq!((error.as_deref(), mirror.snapshot()), (Some(expected), None));
}

/// Their bytes on the wire are the same.
#[test]
fn the_same_object_in_another_list_has_another_checksum() {
    let ignored = IgnoredPod { uid: "a".into(), pod: "b".to_owned(), reason: "c".to_owned() };
    let set = DaemonSet { uid: "a".to_owned(), namespace: "b".to_owned(), name: "c".to_owned(), shape: "".into() };
    let in_one = Snapshot { ignored: vec![ignored], ..Snapshot::default() };
    let in_other = Snapshot { daemon_sets: vec![set], ..Snapshot::default() };
    assert_ne!(checksum(&in_one), checksum(&in_other));
}

/// Recordings and services of other versions depend on it. The number was computed apart: FNV-1a, mixed by SplitMix64.
#[test]
fn the_checksum_is_the_same_in_all_versions() {
    assert_eq!(checksum(&three_objects()), 0x13f7_211a_af26_125c);
    assert_eq!(checksum(&Snapshot::default()), 0);
}

/// A chunk is a message, whose size is bounded.
#[test]
fn no_chunk_has_more_objects_than_asked_for_of_all_lists_together() {
    let shapes = vec![PodShape { id: "s".into(), ..PodShape::default() }];
    let snapshot = Snapshot { shapes, pods: vec![pod_on("n")].into(), nodes: vec![node("n")], ..three_objects() };
    let objects = |chunk: crate::snapshot::v1::SnapshotChunk| {
        let part = chunk.part.unwrap_or_default();
        part.shapes.len() + part.pods.len() + part.nodes.len() + part.ignored.len()
    };
    assert_eq!(chunks(&snapshot, 4).into_iter().map(objects).collect::<Vec<_>>(), [4, 2]);
}

/// Pods are converted chunk by chunk.
#[test]
fn pods_fill_chunks_from_the_last_to_the_first() {
    let pods = (0..5).map(|number| Pod { uid: number.to_string().into(), ..pod_on("n") }).collect();
    let snapshot = Snapshot { pods, ..three_objects() };
    let uids = |chunk: crate::snapshot::v1::SnapshotChunk| -> Vec<String> {
        chunk.part.unwrap_or_default().pods.into_iter().map(|pod| pod.uid).collect()
    };
    let uids_of_chunks: Vec<Vec<String>> = chunks(&snapshot, 2).into_iter().map(uids).collect();
    assert_eq!(uids_of_chunks, [vec!["3", "4"], vec!["1", "2"], vec!["0"], vec![]]);
}

/// A shape lists the namespaces that its terms select.
#[test]
fn no_chunk_of_large_objects_is_too_large_for_a_message() {
    let shape = |id: usize| PodShape {
        id: format!("{id:04}").into(),
        node_selector: [("key".to_owned(), "x".repeat(50_000))].into(),
        ..PodShape::default()
    };
    let mut snapshot = Snapshot { shapes: (0..1000).map(shape).collect(), ..three_objects() };
    // Larger than a chunk by itself.
    snapshot.shapes[500].node_selector = [("key".to_owned(), "x".repeat(5 << 20))].into();
    let sizes: Vec<usize> = chunks(&snapshot, 1000).iter().map(Message::encoded_len).collect();
    assert!((10..20).contains(&sizes.len()) && sizes.iter().all(|size| *size < 6 << 20), "{sizes:?}");
    assert_eq!(mirror_of(&snapshot, 1000).snapshot(), Some(&snapshot));
}

#[test]
fn a_chunk_may_have_exactly_the_maximum_of_bytes() {
    let ignored =
        |uid: &str, bytes: usize| IgnoredPod { uid: uid.into(), pod: "shop/web".to_owned(), reason: "x".repeat(bytes) };
    let of = |bytes: usize| Snapshot { ignored: vec![ignored("a", bytes), ignored("b", 9)], ..Snapshot::default() };
    let size = |snapshot: &Snapshot| -> usize {
        snapshot.ignored.iter().map(|pod| crate::snapshot::v1::IgnoredPod::from(pod).encoded_len()).sum()
    };
    // Near the maximum, each further byte of a text is one byte of the message.
    let near = (4 << 20) - 100;
    let bytes = near + (4 << 20) - size(&of(near));
    assert_eq!(size(&of(bytes)), 4 << 20);
    assert_eq!((chunks(&of(bytes), 1000).len(), chunks(&of(bytes + 1), 1000).len()), (1, 2));
}
