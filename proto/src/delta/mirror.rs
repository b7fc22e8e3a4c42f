//! The receiver's copy of a snapshot.

use super::{checksum, kinds};
use crate::convert::{ConvertError, check, check_references, partial};
use crate::snapshot::v1 as wire;
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};

/// Why a piece or a change was refused. The mirror is empty afterwards: a full snapshot has to come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// A piece is missing, or came twice.
    #[error("snapshot chunk {got} came where {expected} was expected")]
    ChunkGap {
        /// Index that was due.
        expected: u32,
        /// Index that came.
        got: u32,
    },
    /// Pieces are of different snapshots.
    #[error("snapshot chunk {0} is of another snapshot than those before")]
    MixedChunks(u32),
    /// The change is for another snapshot.
    #[error("delta is for snapshot {base}, but the mirror has {have:?}")]
    Gap {
        /// Sequence that the change is for.
        base: u64,
        /// Sequence that is there; `None` while there is no snapshot.
        have: Option<u64>,
    },
    /// The objects are not those that the sender has.
    #[error("checksum is {got:016x}, but the sender's is {expected:016x}")]
    Checksum {
        /// The sender's.
        expected: u64,
        /// The mirror's.
        got: u64,
    },
    /// The message makes no sense.
    #[error(transparent)]
    Invalid(#[from] ConvertError),
}

/// Follows one sender's snapshots.
#[derive(Debug, Clone, Default)]
pub struct Mirror {
    complete: Option<Complete>,
    pieces: Option<(Snapshot, u32)>,
}

/// A snapshot that is all there.
#[derive(Debug, Clone)]
struct Complete {
    snapshot: Snapshot,
    index: SnapshotIndex,
    checksum: u64,
}

impl Mirror {
    /// Without a snapshot.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The snapshot, once one is complete.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.indexed().map(|(snapshot, _)| snapshot)
    }

    /// The same with its index, which goes along with each change.
    #[must_use]
    pub fn indexed(&self) -> Option<(&Snapshot, &SnapshotIndex)> {
        self.complete.as_ref().map(|complete| (&complete.snapshot, &complete.index))
    }

    /// Takes a piece of a full snapshot; true if it completed one. The first piece discards what was there.
    ///
    /// # Errors
    /// If it is out of order, makes no sense or the checksum is wrong. The mirror is empty then.
    pub fn apply_chunk(&mut self, chunk: wire::SnapshotChunk) -> Result<bool, MirrorError> {
        self.complete = None;
        let (last, checksum_sent) = (chunk.last, chunk.checksum);
        let (mut snapshot, next) = self.add_piece(chunk)?;
        if !last {
            self.pieces = Some((snapshot, next));
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

    fn add_piece(&mut self, chunk: wire::SnapshotChunk) -> Result<(Snapshot, u32), MirrorError> {
        let index = chunk.index;
        let before = if index == 0 { None } else { self.pieces.take() };
        self.pieces = None;
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

    /// Takes a change.
    ///
    /// # Errors
    /// If it is for another snapshot, makes no sense or the checksum is wrong. The mirror is empty then.
    pub fn apply_delta(&mut self, delta: wire::Delta) -> Result<(), MirrorError> {
        self.pieces = None;
        let Some(Complete { mut snapshot, mut index, checksum: mut sum }) = self.complete.take() else {
            return Err(MirrorError::Gap { base: delta.base_sequence, have: None });
        };
        if snapshot.sequence != delta.base_sequence {
            return Err(MirrorError::Gap { base: delta.base_sequence, have: Some(snapshot.sequence) });
        }
        let upserts = delta.upserts.ok_or_else(|| ConvertError::new("delta.upserts", "is not set"))?;
        let upserts = partial(upserts).map_err(|error| error.within("delta.upserts"))?;
        (snapshot.sequence, snapshot.ledger, snapshot.now) = (upserts.sequence, upserts.ledger, upserts.now);
        let touched = kinds::apply(&mut snapshot, upserts, delta.removals.unwrap_or_default(), &mut sum)?;
        if sum != delta.checksum {
            return Err(MirrorError::Checksum { expected: delta.checksum, got: sum });
        }
        index.update(&snapshot, &touched.pods, &touched.nodes, &touched.shapes);
        check_references(&snapshot, &index).map_err(|error| error.within("snapshot"))?;
        self.complete = Some(Complete { snapshot, index, checksum: sum });
        Ok(())
    }
}
