//! The receiver's copy of a snapshot.

use super::{checksum, kinds};
use crate::convert::{ConvertError, check, check_references, partial};
use crate::snapshot::v1 as wire;
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};

/// Reason why a chunk or delta was rejected. The mirror is empty afterwards and needs a full snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// A chunk is missing or repeated.
    #[error("snapshot chunk {got} came where {expected} was expected")]
    ChunkGap {
        /// Expected index.
        expected: u32,
        /// Received index.
        got: u32,
    },
    /// The chunks belong to different snapshots.
    #[error("snapshot chunk {0} is of another snapshot than those before")]
    MixedChunks(u32),
    /// The delta has another base snapshot.
    #[error(
        "delta is for snapshot {base}, but the mirror has {}",
        have.map_or_else(|| "none".to_owned(), |have| have.to_string())
    )]
    Gap {
        /// Base sequence of the delta.
        base: u64,
        /// Sequence of the mirror; `None` without a snapshot.
        have: Option<u64>,
    },
    /// The objects differ from those of the sender.
    #[error("checksum is {got:016x}, but the sender's is {expected:016x}")]
    Checksum {
        /// Checksum of the sender.
        expected: u64,
        /// Checksum of the mirror.
        got: u64,
    },
    /// The message is invalid.
    #[error(transparent)]
    Invalid(#[from] ConvertError),
}

/// Follows the snapshots of one sender.
#[derive(Debug, Clone, Default)]
pub struct Mirror {
    complete: Option<Complete>,
    incomplete: Option<(Snapshot, u32)>,
}

/// A complete snapshot with its index and checksum.
#[derive(Debug, Clone)]
struct Complete {
    snapshot: Snapshot,
    index: SnapshotIndex,
    checksum: u64,
}

impl Mirror {
    /// Returns the snapshot, if it is complete.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.indexed().map(|(snapshot, _)| snapshot)
    }

    /// Returns the snapshot and its index, which each delta updates.
    #[must_use]
    pub fn indexed(&self) -> Option<(&Snapshot, &SnapshotIndex)> {
        self.complete.as_ref().map(|complete| (&complete.snapshot, &complete.index))
    }

    /// Applies a chunk; returns true if it completes a snapshot. The first chunk discards the previous snapshot.
    ///
    /// # Errors
    /// If the chunk is out of order or invalid, or the checksum is wrong. The mirror is then empty.
    pub fn apply_chunk(&mut self, chunk: wire::SnapshotChunk) -> Result<bool, MirrorError> {
        self.complete = None;
        let (last, checksum_sent) = (chunk.last, chunk.checksum);
        let (mut snapshot, next) = self.add_chunk(chunk)?;
        if !last {
            self.incomplete = Some((snapshot, next));
            return Ok(false);
        }
        check(&snapshot).map_err(|error| error.within("snapshot"))?;
        snapshot.sort();
        let got = checksum(&snapshot);
        if got != checksum_sent {
            return Err(MirrorError::Checksum { expected: checksum_sent, got });
        }
        let index = SnapshotIndex::new(&snapshot);
        self.complete = Some(Complete { snapshot, index, checksum: got });
        Ok(true)
    }

    fn add_chunk(&mut self, chunk: wire::SnapshotChunk) -> Result<(Snapshot, u32), MirrorError> {
        let index = chunk.index;
        let before = if index == 0 { None } else { self.incomplete.take() };
        self.incomplete = None;
        let part = chunk.part.ok_or_else(|| ConvertError::new("snapshot_chunk.part", "is not set"))?;
        let part = partial(part).map_err(|error| error.within("snapshot_chunk.part"))?;
        let Some((mut snapshot, expected)) = before else {
            return if index == 0 { Ok((part, 1)) } else { Err(MirrorError::ChunkGap { expected: 0, got: index }) };
        };
        if index != expected {
            return Err(MirrorError::ChunkGap { expected, got: index });
        }
        if (part.sequence, part.ledger, part.now) != (snapshot.sequence, snapshot.ledger, snapshot.now) {
            return Err(MirrorError::MixedChunks(index));
        }
        kinds::append(&mut snapshot, part);
        Ok((snapshot, expected.saturating_add(1)))
    }

    /// Applies a delta.
    ///
    /// # Errors
    /// If the delta has another base snapshot or is invalid, or the checksum is wrong. The mirror is then empty.
    pub fn apply_delta(&mut self, delta: wire::Delta) -> Result<(), MirrorError> {
        self.incomplete = None;
        let Some(Complete { mut snapshot, mut index, checksum: mut sum }) = self.complete.take() else {
            return Err(MirrorError::Gap { base: delta.base_sequence, have: None });
        };
        if snapshot.sequence != delta.base_sequence {
            return Err(MirrorError::Gap { base: delta.base_sequence, have: Some(snapshot.sequence) });
        }
        let upserts = delta.upserts.ok_or_else(|| ConvertError::new("delta.upserts", "is not set"))?;
        let upserts = partial(upserts).map_err(|error| error.within("delta.upserts"))?;
        (snapshot.sequence, snapshot.ledger, snapshot.now) = (upserts.sequence, upserts.ledger, upserts.now);
        let edits = kinds::apply(&mut snapshot, upserts, delta.removals.unwrap_or_default(), &mut sum)?;
        if sum != delta.checksum {
            return Err(MirrorError::Checksum { expected: delta.checksum, got: sum });
        }
        index.update(&snapshot, &edits.pods, &edits.nodes, &edits.shapes);
        check_references(&snapshot, &index).map_err(|error| error.within("snapshot"))?;
        self.complete = Some(Complete { snapshot, index, checksum: sum });
        Ok(())
    }
}
