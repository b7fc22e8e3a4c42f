//! Pods that still want a node.

use super::Packer;
use super::items::Entry;
use crate::input::intern::{Amounts, add};
use plimsoll_model::index::{Id, IndexVec};

/// How many of each item are left.
#[derive(Debug, Clone)]
pub(super) struct Left {
    pub(super) counts: IndexVec<Entry, usize>,
    /// Items of which there are some, in order; others may be among them until the list is tidied.
    pub(super) live: Vec<Id<Entry>>,
    gone: usize,
    /// What all of them request together.
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

    /// Takes out `copies` times these.
    pub(super) fn take(&mut self, packer: &Packer<'_, '_>, take: &[(Id<Entry>, usize)], copies: usize) {
        for (item, n) in take {
            let n = n * copies;
            self.counts[*item] -= n;
            self.pods -= n;
            add(&mut self.load, packer.requests(*item), -i64::try_from(n).unwrap_or(i64::MAX));
            self.gone += usize::from(self.counts[*item] == 0);
        }
        // Tidied once half of it is gone: every entry is moved a constant number of times on average.
        if self.gone * 2 > self.live.len() {
            self.live.retain(|item| self.counts[*item] > 0);
            self.gone = 0;
        }
    }

    /// The largest that is left.
    pub(super) fn largest(&self) -> Option<Id<Entry>> {
        self.live.iter().copied().find(|item| self.counts[*item] > 0)
    }

    /// Items that are left.
    pub(super) fn items(&self) -> impl Iterator<Item = Id<Entry>> + '_ {
        self.live.iter().copied().filter(|item| self.counts[*item] > 0)
    }
}
