//! Incremental transfer of snapshots: chunks of the first snapshot, then deltas, both with a checksum.
//!
//! Pure functions: the sender uses [`chunks`] and [`diff`], the receiver uses [`Mirror`].
//!
//! ```
//! use plimsoll_model::snapshot::{IgnoredPod, Snapshot};
//! use plimsoll_proto::delta::{Mirror, chunks, diff};
//!
//! let ignored = IgnoredPod { uid: "u".into(), pod: "shop/web-0".to_owned(), reason: "it is being deleted".to_owned() };
//! let first = Snapshot { sequence: 1, ..Snapshot::default() };
//! let second = Snapshot { sequence: 2, ignored: vec![ignored], ..Snapshot::default() };
//!
//! let mut mirror = Mirror::default();
//! for chunk in chunks(&first, 1000) {
//!     mirror.apply_chunk(chunk)?;
//! }
//! mirror.apply_delta(diff(&first, &second))?;
//! assert_eq!(mirror.snapshot(), Some(&second));
//! # Ok::<(), plimsoll_proto::delta::MirrorError>(())
//! ```

mod checksum;
mod kinds;
mod mirror;
#[cfg(test)]
mod tests;

pub use checksum::{checksum, checksum_known};
pub use mirror::{Mirror, MirrorError};

use crate::convert::without_pods;
use crate::snapshot::v1 as wire;
use plimsoll_model::snapshot::{Snapshot, SnapshotEdits};

/// Maximum size of the objects of a chunk, unless it is a single object. A receiver accepts 16 MiB. Most objects have
/// less than a kilobyte, but a shape lists the namespaces that it selects, and a pool its overlays.
const MAX_CHUNK_BYTES: usize = 4 << 20;

/// Splits a snapshot into chunks of at most `objects_per_chunk` objects (at least one) and 4 MiB. Returns at least one
/// chunk.
#[must_use]
pub fn chunks(snapshot: &Snapshot, objects_per_chunk: usize) -> Vec<wire::SnapshotChunk> {
    each_chunk(snapshot, objects_per_chunk).collect()
}

/// Like [`chunks`], one at a time. Pods are converted when their chunk is needed: those of a large cluster together
/// take as much memory as the snapshot.
pub fn each_chunk(snapshot: &Snapshot, objects_per_chunk: usize) -> impl Iterator<Item = wire::SnapshotChunk> {
    let objects = objects_per_chunk.max(1);
    let header = header(snapshot);
    // The last pods are taken first: those before `unconverted` are not in `rest` yet.
    let (mut rest, mut unconverted) = (without_pods(snapshot), snapshot.pods.len());
    let mut next = Some(0_u32);
    std::iter::from_fn(move || {
        let index = next?;
        let start = unconverted.saturating_sub(objects.saturating_sub(rest.pods.len()));
        let more = (start..unconverted).filter_map(|position| snapshot.pods.get(position));
        let mut pods: Vec<wire::Pod> = more.map(wire::Pod::from).collect();
        pods.append(&mut rest.pods);
        (rest.pods, unconverted) = (pods, start);
        let mut part = header.clone();
        kinds::take(&mut rest, &mut part, kinds::Room { objects, bytes: MAX_CHUNK_BYTES });
        let last = unconverted == 0 && kinds::is_empty(&rest);
        next = (!last).then_some(index.saturating_add(1));
        let checksum = if last { checksum(snapshot) } else { 0 };
        Some(wire::SnapshotChunk { index, last, part: Some(part), checksum })
    })
}

/// Computes the delta from `old` to `new`. Both must be in canonical order ([`Snapshot::sort`]).
#[must_use]
pub fn diff(old: &Snapshot, new: &Snapshot) -> wire::Delta {
    diff_from(old, checksum(old), new)
}

/// Like [`diff`] with the known checksum of `old`, so that only changed objects must be hashed.
#[must_use]
pub fn diff_from(old: &Snapshot, old_checksum: u64, new: &Snapshot) -> wire::Delta {
    delta_of((old, new), old_checksum, &SnapshotEdits::between(old, new))
}

/// Like [`diff_from`] with the known `edits` between the snapshots, so that only changed objects are looked at.
#[must_use]
pub fn delta_of((old, new): (&Snapshot, &Snapshot), old_checksum: u64, edits: &SnapshotEdits) -> wire::Delta {
    let mut upserts = header(new);
    let mut removals = wire::Removals::default();
    let mut sum = old_checksum;
    kinds::diff((old, new), edits, &mut upserts, &mut removals, &mut sum);
    wire::Delta { base_sequence: old.sequence, upserts: Some(upserts), removals: Some(removals), checksum: sum }
}

fn header(snapshot: &Snapshot) -> wire::Snapshot {
    wire::Snapshot {
        sequence: snapshot.sequence,
        ledger: Some(snapshot.ledger.into()),
        now_unix_ms: snapshot.now.0,
        ..Default::default()
    }
}
