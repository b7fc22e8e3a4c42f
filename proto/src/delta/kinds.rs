//! The kinds of objects in a snapshot: lists, keys and field numbers in one table that all operations use.

use super::checksum::{of_object, of_object_known};
use crate::convert::{ConvertError, ConvertResult};
use crate::known::Known;
use crate::snapshot::v1 as wire;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::snapshot::{Edits, Pod, PodList, SharedPod, Snapshot, SnapshotEdits, UnavailableOffering, merge};
use prost::Message as _;
use std::borrow::Borrow;

type OfferingKey = (Option<String>, Option<String>, CapacityType);

fn offering_key(offering: &UnavailableOffering) -> OfferingKey {
    (offering.instance_type.clone(), offering.zone.clone(), offering.capacity_type)
}

fn offering_from_wire(offering: wire::UnavailableOffering) -> ConvertResult<OfferingKey> {
    UnavailableOffering::try_from(offering).map(|offering| offering_key(&offering))
}

fn offering_to_wire(offering: &UnavailableOffering) -> wire::UnavailableOffering {
    offering.into()
}

fn text(key: String) -> ConvertResult<String> {
    Ok(key)
}

/// Calls `$each!` for each kind: list, message, field number, key of an object, key to the wire, key from the wire.
macro_rules! for_each_kind {
    ($each:ident) => {
        $each!(shapes, wire::PodShape, 4, |shape| shape.id.0.clone(), |shape| shape.id.0.clone(), text);
        $each!(pods, wire::Pod, 5, |pod| pod.uid.0.clone(), |pod| pod.uid.0.clone(), text);
        $each!(nodes, wire::Node, 6, |node| node.name.0.clone(), |node| node.name.0.clone(), text);
        $each!(node_pools, wire::NodePool, 7, |pool| pool.name.0.clone(), |pool| pool.name.0.clone(), text);
        $each!(daemon_sets, wire::DaemonSet, 8, |set| set.uid.clone(), |set| set.uid.clone(), text);
        $each!(
            pod_disruption_budgets,
            wire::PodDisruptionBudget,
            9,
            |pdb| pdb.name.clone(),
            |pdb| pdb.name.clone(),
            text
        );
        $each!(
            unavailable_offerings,
            wire::UnavailableOffering,
            10,
            offering_key,
            offering_to_wire,
            offering_from_wire
        );
        $each!(ignored, wire::IgnoredPod, 11, |pod| pod.uid.0.clone(), |pod| pod.uid.0.clone(), text);
        $each!(reservations, wire::ReservationCount, 12, |count| count.id.clone(), |count| count.id.clone(), text);
        $each!(capacity_quotas, wire::CapacityQuota, 13, |quota| quota.name.clone(), |quota| quota.name.clone(), text);
    };
}

/// What still fits into a part of a snapshot.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) objects: usize,
    pub(super) bytes: usize,
}

impl Room {
    /// Takes an object of this size. After the first object that does not fit, the part is full.
    fn takes(&mut self, size: usize, is_first: bool) -> bool {
        let fits = self.objects > 0 && (size <= self.bytes || is_first);
        self.objects = if fits { self.objects - 1 } else { 0 };
        self.bytes = self.bytes.saturating_sub(size);
        fits
    }
}

/// Moves objects from `rest` to `part`, as many as fit, and at least one.
pub(super) fn take(rest: &mut wire::Snapshot, part: &mut wire::Snapshot, mut room: Room) {
    let mut is_first = true;
    macro_rules! each {
        ($list:ident, $($other:tt)*) => {
            // Taking from the end avoids moving the other objects; the receiver sorts.
            let mut start = rest.$list.len();
            for object in rest.$list.iter().rev() {
                if !room.takes(object.encoded_len(), is_first) {
                    break;
                }
                (start, is_first) = (start - 1, false);
            }
            part.$list = rest.$list.split_off(start);
        };
    }
    for_each_kind!(each);
}

/// Whether the snapshot has no objects.
pub(super) fn is_empty(snapshot: &wire::Snapshot) -> bool {
    let mut count = 0;
    macro_rules! each {
        ($list:ident, $($other:tt)*) => {
            count += snapshot.$list.len();
        };
    }
    for_each_kind!(each);
    count == 0
}

/// Adds the objects of `more`.
pub(super) fn append(snapshot: &mut Snapshot, more: Snapshot) {
    macro_rules! each {
        ($list:ident, $($other:tt)*) => {
            snapshot.$list.extend(more.$list);
        };
    }
    for_each_kind!(each);
}

/// Sum of the hashes of all objects.
pub(super) fn checksum(snapshot: &Snapshot) -> u64 {
    let mut sum = 0_u64;
    macro_rules! each {
        ($list:ident, $message:path, $number:literal, $($other:tt)*) => {
            for object in &snapshot.$list {
                sum = sum.wrapping_add(of_object($number, &<$message>::from(object)));
            }
        };
    }
    for_each_kind!(each);
    sum
}

/// Sum of the hashes of all objects as their receiver encodes them.
pub(super) fn checksum_known(snapshot: &Snapshot, known: Known<'_>) -> u64 {
    let mut sum = 0_u64;
    macro_rules! each {
        ($list:ident, $message:path, $number:literal, $($other:tt)*) => {
            let name = stringify!($message).rsplit("::").next().unwrap_or_default().trim();
            let name = format!("plimsoll.snapshot.v1.{name}");
            // A receiver that does not know the list drops its objects.
            let list = snapshot.$list.iter().filter(|_| known.knows("plimsoll.snapshot.v1.Snapshot", $number));
            for object in list {
                sum = sum.wrapping_add(of_object_known($number, &<$message>::from(object), &name, known));
            }
        };
    }
    for_each_kind!(each);
    sum
}

/// Adds the objects that `edits` name to `upserts` and `removals`, and updates `sum` from the old checksum to the new
/// one.
pub(super) fn diff(
    (old, new): (&Snapshot, &Snapshot),
    edits: &SnapshotEdits,
    upserts: &mut wire::Snapshot,
    removals: &mut wire::Removals,
    sum: &mut u64,
) {
    macro_rules! each {
        ($list:ident, $message:path, $number:literal, $key:expr, $key_to_wire:expr, $from_wire:expr) => {
            let to_wire = keyed(&old.$list, $key_to_wire);
            let hash = |object: &_| of_object($number, &<$message>::from(object));
            let edits = &edits.$list;
            for object in edits.removed.iter().filter_map(|position| old.$list.get(*position)) {
                *sum = sum.wrapping_sub(hash(object));
                removals.$list.push(to_wire(object));
            }
            for previous in edits.replaced_pairs().filter_map(|(position, _)| old.$list.get(position)) {
                *sum = sum.wrapping_sub(hash(previous));
            }
            let mut positions: Vec<usize> = edits.inserted.iter().chain(&edits.replaced).copied().collect();
            positions.sort_unstable();
            for object in positions.into_iter().filter_map(|position| new.$list.get(position)) {
                let message = <$message>::from(object);
                *sum = sum.wrapping_add(of_object($number, &message));
                upserts.$list.push(message);
            }
        };
    }
    for_each_kind!(each);
}

/// Applies `removals` and `upserts`, and updates the checksum `sum`. The snapshot is in canonical order before and
/// after.
pub(super) fn apply(
    snapshot: &mut Snapshot,
    upserts: Snapshot,
    removals: wire::Removals,
    sum: &mut u64,
) -> ConvertResult<SnapshotEdits> {
    let mut edits_by_list = SnapshotEdits::default();
    macro_rules! each {
        ($list:ident, $message:path, $number:literal, $key:expr, $key_to_wire:expr, $from_wire:expr) => {
            let key = keyed(&snapshot.$list, $key);
            let path = |index: usize| format!(concat!("delta.removals.", stringify!($list), "[{}]"), index);
            let mut removed_keys = Vec::new();
            for (index, removed) in removals.$list.into_iter().enumerate() {
                removed_keys.push($from_wire(removed).map_err(|error| error.within(&path(index)))?);
            }
            let hash = |object: &_| of_object($number, &<$message>::from(object));
            let edits = merged(&mut snapshot.$list, &removed_keys, upserts.$list, key, hash, sum);
            let edits = edits.map_err(|index| ConvertError::new(path(index), "is not there"))?;
            edits_by_list.$list = edits;
        };
    }
    for_each_kind!(each);
    Ok(edits_by_list)
}

/// A list of objects in a snapshot.
trait List {
    type Object;
    /// What the list consists of: objects, or references to them.
    type Entry: Borrow<Self::Object>;
    fn entries_mut(&mut self) -> &mut Vec<Self::Entry>;
    fn into_entries(self) -> Vec<Self::Entry>;
}

impl<T> List for Vec<T> {
    type Object = T;
    type Entry = T;

    fn entries_mut(&mut self) -> &mut Vec<T> {
        self
    }

    fn into_entries(self) -> Vec<T> {
        self
    }
}

impl List for PodList {
    type Object = Pod;
    type Entry = SharedPod;

    fn entries_mut(&mut self) -> &mut Vec<SharedPod> {
        self
    }

    fn into_entries(self) -> Vec<SharedPod> {
        self.into_iter().collect()
    }
}

/// Binds the type of a closure's argument to the type of a list's objects.
fn keyed<L: List, K, F: Fn(&L::Object) -> K>(_list: &L, key: F) -> F {
    key
}

/// [`merge::merge`] of a list of either kind.
fn merged<L: List, K: Ord>(
    list: &mut L,
    removed_keys: &[K],
    upserts: L,
    key: impl Fn(&L::Object) -> K,
    hash: impl Fn(&L::Object) -> u64,
    sum: &mut u64,
) -> Result<Edits, usize> {
    let key = |entry: &L::Entry| key(Borrow::<L::Object>::borrow(entry));
    let hash = |entry: &L::Entry| hash(Borrow::<L::Object>::borrow(entry));
    merge::merge(list.entries_mut(), removed_keys, upserts.into_entries(), key, hash, sum)
}
