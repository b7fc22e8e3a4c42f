//! The memory that nodes of each instance type were seen to have. Catalogs use it instead of the estimate.
//!
//! A value only decreases until its entry ends. Nodes of one type differ by some kilobytes, so values are whole MiB.
//! Catalogs therefore change at most a few times per type, and never back and forth.

use jiff::civil::Date;
use parking_lot::Mutex;
use plimsoll_catalog::is_plausible_memory;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// Maximum number of entries: two images of each of EC2's about 1000 instance types. As JSON these are 200 KB, a fifth
/// of what a ConfigMap may hold. When exceeded, the entries that were not seen for the longest time are dropped.
pub const MAX_ENTRIES: usize = 2_000;
/// An entry ends if no node confirms it for this time, as in Karpenter.
pub const TTL_DAYS: i32 = 60;
/// A node that confirms an entry renews it only if it is older than this, so that running nodes cause at most one write
/// to the cluster per week and entry.
const RENEWED_AFTER_DAYS: i32 = 7;

const MIB: i64 = 1 << 20;

/// What the memory of a node depends on. Its hypervisor follows from the instance type, its kernel from the image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryKey {
    /// Instance type.
    pub instance_type: String,
    /// `ami-...`.
    pub image: String,
}

/// The memory of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenMemory {
    /// The smallest memory capacity of a node, in whole MiB.
    pub mib: i64,
    /// Day on which a node had it.
    pub seen: Date,
}

/// The memory that one node reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The Node.
    pub node: String,
    /// Type and image of its instance.
    pub key: MemoryKey,
    /// Memory of the type as EC2 states it, in MiB.
    pub nominal_mib: i64,
    /// Memory capacity in bytes.
    pub bytes: i64,
}

/// All entries by type and image.
pub type MemoryEntries = BTreeMap<MemoryKey, SeenMemory>;

/// The memory of nodes. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct DiscoveredMemory {
    entries: Arc<Mutex<MemoryEntries>>,
    changed: Arc<Notify>,
}

/// Result of [`DiscoveredMemory::learn`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Type and image of the entries that are new or have another value.
    pub changed: Vec<MemoryKey>,
    /// Whether any entry differs from before, be it only its day.
    pub differs: bool,
    /// Observations that are ignored because no node of the type can have this memory.
    pub implausible: Vec<Observation>,
}

impl DiscoveredMemory {
    /// Learns from observations, and ends entries that were not seen for [`TTL_DAYS`].
    pub fn learn(&self, observations: Vec<Observation>, today: Date) -> Learned {
        let mut learned = Learned::default();
        let mut changed = BTreeSet::new();
        let mut entries = self.entries.lock();
        let before = entries.clone();
        entries.retain(|_, entry| days_between(entry.seen, today) <= TTL_DAYS);
        for observation in observations {
            if !is_plausible_memory(observation.nominal_mib, observation.bytes) {
                learned.implausible.push(observation);
                continue;
            }
            let mib = observation.bytes / MIB;
            let old = entries.get(&observation.key).copied();
            let old = old.filter(|old| is_plausible_memory(observation.nominal_mib, old.mib.saturating_mul(MIB)));
            let seen = match old {
                Some(old) if old.mib < mib => continue,
                Some(old) if old.mib == mib && days_between(old.seen, today) < RENEWED_AFTER_DAYS => continue,
                _ => today,
            };
            entries.insert(observation.key.clone(), SeenMemory { mib, seen });
            if old.is_none_or(|old| old.mib != mib) {
                changed.insert(observation.key);
            }
        }
        drop_oldest(&mut entries);
        learned.differs = *entries != before;
        drop(entries);
        learned.changed = changed.into_iter().collect();
        if learned.differs {
            self.changed.notify_one();
        }
        learned
    }

    /// Adds entries of a former process. Of two values the smaller one counts.
    pub fn restore(&self, stored: MemoryEntries, today: Date) {
        let mut entries = self.entries.lock();
        for (key, entry) in stored {
            // A day in the future would never end.
            let entry = SeenMemory { seen: entry.seen.min(today), ..entry };
            match entries.get(&key) {
                Some(known) if known.mib <= entry.mib => {}
                _ => drop(entries.insert(key, entry)),
            }
        }
        entries.retain(|_, entry| days_between(entry.seen, today) <= TTL_DAYS);
        drop_oldest(&mut entries);
        drop(entries);
        self.changed.notify_one();
    }

    /// All entries.
    #[must_use]
    pub fn all(&self) -> MemoryEntries {
        self.entries.lock().clone()
    }

    /// Memory in bytes of the entries of these images.
    #[must_use]
    pub fn of_images(&self, images: &BTreeSet<&str>) -> BTreeMap<MemoryKey, i64> {
        let entries = self.entries.lock();
        let of_images = entries.iter().filter(|(key, _)| images.contains(key.image.as_str()));
        of_images.map(|(key, entry)| (key.clone(), entry.mib.saturating_mul(MIB))).collect()
    }

    /// Notified when an entry changes.
    #[must_use]
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }
}

/// Days from `from` to `to`.
fn days_between(from: Date, to: Date) -> i32 {
    (to - from).get_days()
}

fn drop_oldest(entries: &mut MemoryEntries) {
    while entries.len() > MAX_ENTRIES
        && let Some(oldest) = entries.iter().min_by_key(|(_, entry)| entry.seen).map(|(key, _)| key.clone())
    {
        entries.remove(&oldest);
    }
}

#[cfg(test)]
mod tests;
