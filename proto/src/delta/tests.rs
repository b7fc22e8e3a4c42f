use super::{Mirror, MirrorError, checksum, chunks, diff};
use crate::convert::strategies::snapshot;
use plimsoll_model::snapshot::Snapshot;
use proptest::prelude::*;

fn mirror_of(snapshot: &Snapshot, objects_per_chunk: usize) -> Mirror {
    let mut mirror = Mirror::new();
    let chunks_of_snapshot = chunks(snapshot, objects_per_chunk);
    let count = chunks_of_snapshot.len();
    for (index, chunk) in chunks_of_snapshot.into_iter().enumerate() {
        assert_eq!(mirror.apply_chunk(chunk), Ok(index + 1 == count));
    }
    mirror
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
    let mut mirror = Mirror::new();
    assert_eq!(mirror.apply_delta(diff(&at(4), &at(5))), Err(MirrorError::Gap { base: 4, have: None }));
    let mut mirror = mirror_of(&at(3), 1);
    assert_eq!(mirror.apply_delta(diff(&at(4), &at(5))), Err(MirrorError::Gap { base: 4, have: Some(3) }));
    let mut chunk = chunks(&at(1), 1).remove(0);
    chunk.index = 1;
    assert_eq!(mirror.apply_chunk(chunk), Err(MirrorError::ChunkGap { expected: 0, got: 1 }));
}

#[test]
fn removing_a_missing_object_is_rejected() {
    let empty = Snapshot::default();
    let mut delta = diff(&empty, &empty);
    delta.removals.get_or_insert_default().nodes.push("a".into());
    let error = mirror_of(&empty, 1).apply_delta(delta).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("delta.removals.nodes[0]: is not there"));
}
