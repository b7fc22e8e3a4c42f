//! A checksum of a snapshot's objects that can be updated per object.

use super::kinds;
use crate::known::Known;
use plimsoll_model::snapshot::Snapshot;
use prost::Message;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Checksum of all objects, independent of their order. Excludes sequence, ledger position and time. Detects mistakes,
/// but not forgeries.
#[must_use]
pub fn checksum(snapshot: &Snapshot) -> u64 {
    kinds::checksum(snapshot)
}

/// Like [`checksum`], as the receiver computes it.
#[must_use]
pub fn checksum_known(snapshot: &Snapshot, known: Known<'_>) -> u64 {
    kinds::checksum_known(snapshot, known)
}

/// Hash of an object as its receiver encodes it. `message` is the full name of its message.
pub(super) fn of_object_known(list: u8, object: &impl Message, message: &str, known: Known<'_>) -> u64 {
    of_bytes(list, &known.reencoded(&object.encode_to_vec(), message))
}

/// Hash of an object. `list` is the field number of its list in the `Snapshot` message.
pub(super) fn of_object(list: u8, object: &impl Message) -> u64 {
    of_bytes(list, &object.encode_to_vec())
}

fn of_bytes(list: u8, bytes: &[u8]) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    let hash = bytes.iter().fold(fnv(FNV_OFFSET, &list), fnv);
    // FNV's low bits are weak, which would affect sums.
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
