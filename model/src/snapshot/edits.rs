//! What differs between two snapshots, by position.

use super::{Snapshot, UnavailableOffering};
use std::cmp::Ordering;

/// Marks a missing reference.
pub(super) const NONE: u32 = u32::MAX;
/// Marks a reference to an object that is not in the snapshot.
pub(super) const UNKNOWN: u32 = u32::MAX - 1;

/// Positions in one list of a snapshot that a change affects; all ascending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edits {
    /// Removed objects, by position in the old list.
    pub removed: Vec<usize>,
    /// Inserted objects, by position in the new list.
    pub inserted: Vec<usize>,
    /// Changed objects, by position in the new list.
    pub replaced: Vec<usize>,
}

impl Edits {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.inserted.is_empty() && self.replaced.is_empty()
    }

    pub(super) fn shifts_numbers(&self) -> bool {
        !self.removed.is_empty() || !self.inserted.is_empty()
    }

    /// For each position in the old list of `count` objects, returns the position in the new list, or [`NONE`] if the
    /// object was removed.
    pub(super) fn new_numbers(&self, count: usize) -> Vec<u32> {
        let (mut removed, mut inserted) = (self.removed.iter().peekable(), self.inserted.iter().peekable());
        let mut now = 0;
        let mut new_numbers = Vec::with_capacity(count);
        for old in 0..count {
            if removed.next_if(|position| **position == old).is_some() {
                new_numbers.push(NONE);
                continue;
            }
            while inserted.next_if(|position| **position == now).is_some() {
                now += 1;
            }
            new_numbers.push(number(now));
            now += 1;
        }
        new_numbers
    }

    /// Updates a list with one value per object: drops values of removed objects and inserts `inserted_value` for
    /// inserted objects.
    pub(super) fn splice<T: Clone>(&self, list: &mut Vec<T>, inserted_value: &T) {
        if !self.shifts_numbers() {
            return;
        }
        let mut removed = self.removed.iter().peekable();
        let mut at = 0;
        list.retain(|_| {
            let is_removed = removed.next_if(|position| **position == at).is_some();
            at += 1;
            !is_removed
        });
        if self.inserted.is_empty() {
            return;
        }
        let (mut inserted, mut rest) = (self.inserted.iter().peekable(), std::mem::take(list).into_iter());
        list.reserve(rest.len() + self.inserted.len());
        loop {
            if inserted.next_if(|position| **position == list.len()).is_some() {
                list.push(inserted_value.clone());
            } else if let Some(next) = rest.next() {
                list.push(next);
            } else {
                break;
            }
        }
    }

    /// Returns the changed objects: position in the old list and position in the new list.
    pub fn replaced_pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let (mut removed, mut inserted) = (self.removed.iter().peekable(), self.inserted.iter().peekable());
        let (mut removed_before, mut inserted_before) = (0, 0);
        self.replaced.iter().map(move |new| {
            while inserted.next_if(|position| *position < new).is_some() {
                inserted_before += 1;
            }
            let kept_before = new - inserted_before;
            while removed.next_if(|position| **position <= kept_before + removed_before).is_some() {
                removed_before += 1;
            }
            (kept_before + removed_before, *new)
        })
    }

    /// Compares two lists that are ordered by `key`, in one pass. Keys are unique in each list.
    #[must_use]
    pub fn between<'a, T: PartialEq, K: Ord>(old: &'a [T], new: &'a [T], key: impl Fn(&'a T) -> K) -> Self {
        let mut edits = Self::default();
        let (mut before, mut after) = (old.iter().enumerate().peekable(), new.iter().enumerate().peekable());
        loop {
            let order = match (before.peek(), after.peek()) {
                (None, None) => return edits,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((_, before)), Some((_, after))) => key(before).cmp(&key(after)),
            };
            let removed = if order == Ordering::Greater { None } else { before.next() };
            let inserted = if order == Ordering::Less { None } else { after.next() };
            match (removed, inserted) {
                (Some((_, before)), Some((position, after))) if before != after => edits.replaced.push(position),
                (Some((position, _)), None) => edits.removed.push(position),
                (None, Some((position, _))) => edits.inserted.push(position),
                _ => {}
            }
        }
    }
}

/// What differs between two snapshots besides sequence, ledger position and time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotEdits {
    /// Of `shapes`.
    pub shapes: Edits,
    /// Of `pods`.
    pub pods: Edits,
    /// Of `nodes`.
    pub nodes: Edits,
    /// Of `node_pools`.
    pub node_pools: Edits,
    /// Of `daemon_sets`.
    pub daemon_sets: Edits,
    /// Of `pod_disruption_budgets`.
    pub pod_disruption_budgets: Edits,
    /// Of `unavailable_offerings`.
    pub unavailable_offerings: Edits,
    /// Of `reservations`.
    pub reservations: Edits,
    /// Of `capacity_quotas`.
    pub capacity_quotas: Edits,
    /// Of `ignored`.
    pub ignored: Edits,
}

impl SnapshotEdits {
    /// Compares two snapshots in canonical order.
    #[must_use]
    pub fn between(old: &Snapshot, new: &Snapshot) -> Self {
        let pods = Edits::between(&old.pods, &new.pods, |pod| &pod.uid);
        Self { pods, ..Self::besides_pods(old, new) }
    }

    /// Like [`Self::between`] for all lists but `pods`, which counts as equal.
    #[must_use]
    pub fn besides_pods(old: &Snapshot, new: &Snapshot) -> Self {
        let offering = |offering: &UnavailableOffering| {
            (offering.instance_type.clone(), offering.zone.clone(), offering.capacity_type)
        };
        Self {
            shapes: Edits::between(&old.shapes, &new.shapes, |shape| &shape.id),
            pods: Edits::default(),
            nodes: Edits::between(&old.nodes, &new.nodes, |node| &node.name),
            node_pools: Edits::between(&old.node_pools, &new.node_pools, |pool| &pool.name),
            daemon_sets: Edits::between(&old.daemon_sets, &new.daemon_sets, |set| &set.uid),
            pod_disruption_budgets: Edits::between(
                &old.pod_disruption_budgets,
                &new.pod_disruption_budgets,
                |budget| &budget.name,
            ),
            unavailable_offerings: Edits::between(&old.unavailable_offerings, &new.unavailable_offerings, offering),
            reservations: Edits::between(&old.reservations, &new.reservations, |count| &count.id),
            capacity_quotas: Edits::between(&old.capacity_quotas, &new.capacity_quotas, |quota| &quota.name),
            ignored: Edits::between(&old.ignored, &new.ignored, |pod| &pod.uid),
        }
    }
}

/// Converts a position to a number. Lists of a snapshot are far shorter than the limit.
pub(super) fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(UNKNOWN)
}
