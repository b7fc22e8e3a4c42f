//! Pods that are not packed yet.

use super::Packer;
use super::items::Entry;
use crate::input::intern::{Amounts, add};
use plimsoll_model::index::{Id, IndexVec};

/// Number of unpacked pods by item.
#[derive(Debug, Clone)]
pub(super) struct Left {
    pub(super) counts: IndexVec<Entry, usize>,
    /// Sorted ids of items with unpacked pods; may contain exhausted items until the next compaction.
    pub(super) live: Vec<Id<Entry>>,
    gone: usize,
    /// Total requests of the unpacked pods.
    pub(super) load: Amounts,
    pub(super) pods: usize,
}

impl Left {
    pub(super) fn new(packer: &Packer<'_, '_>, counts: IndexVec<Entry, usize>) -> Self {
        let live: Vec<Id<Entry>> = counts.ids().filter(|item| counts[*item] > 0).collect();
        let mut load = vec![0; packer.width];
        for item in &live {
            add(&mut load, packer.requests(*item), i64::try_from(counts[*item]).unwrap_or(i64::MAX));
        }
        Self { pods: counts.iter().sum(), counts, live, gone: 0, load }
    }

    /// Removes `copies` times the pods of `take`.
    pub(super) fn take(&mut self, packer: &Packer<'_, '_>, take: &[(Id<Entry>, usize)], copies: usize) {
        for (item, n) in take {
            let n = n * copies;
            self.counts[*item] -= n;
            self.pods -= n;
            add(&mut self.load, packer.requests(*item), -i64::try_from(n).unwrap_or(i64::MAX));
            self.gone += usize::from(self.counts[*item] == 0);
        }
        // Compacted when half of the list is exhausted, so that the amortized cost is constant.
        if self.gone * 2 > self.live.len() {
            self.live.retain(|item| self.counts[*item] > 0);
            self.gone = 0;
        }
    }

    /// For how many times the pods of `take` it is enough.
    pub(super) fn times(&self, take: &[(Id<Entry>, usize)]) -> usize {
        take.iter().map(|(item, n)| self.counts[*item] / n).min().unwrap_or(0)
    }

    /// The largest item with unpacked pods.
    pub(super) fn largest(&self) -> Option<Id<Entry>> {
        self.items().next()
    }

    /// Items with unpacked pods.
    pub(super) fn items(&self) -> impl Iterator<Item = Id<Entry>> + '_ {
        self.live.iter().copied().filter(|item| self.counts[*item] > 0)
    }
}
