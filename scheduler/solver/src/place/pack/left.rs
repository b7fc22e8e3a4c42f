//! Pods that still want a node.

use super::Packer;
use crate::input::intern::{Amounts, add};

/// How many of each item are left.
#[derive(Debug, Clone)]
pub(super) struct Left {
    pub(super) counts: Vec<usize>,
    /// Items of which there are some, in order; others may be among them until the list is tidied.
    pub(super) live: Vec<usize>,
    gone: usize,
    /// What all of them request together.
    pub(super) load: Amounts,
    pub(super) pods: usize,
}

impl Left {
    pub(super) fn new(packer: &Packer<'_, '_>, counts: Vec<usize>) -> Self {
        let live: Vec<usize> = (0..counts.len()).filter(|item| counts[*item] > 0).collect();
        let mut load = vec![0; packer.width];
        for item in &live {
            add(&mut load, packer.requests(*item), i64::try_from(counts[*item]).unwrap_or(i64::MAX));
        }
        Self { pods: counts.iter().sum(), counts, live, gone: 0, load }
    }

    /// Takes out `copies` times these.
    pub(super) fn take(&mut self, packer: &Packer<'_, '_>, take: &[(usize, usize)], copies: usize) {
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
    pub(super) fn largest(&self) -> Option<usize> {
        self.live.iter().copied().find(|item| self.counts[*item] > 0)
    }

    /// Items that are left.
    pub(super) fn items(&self) -> impl Iterator<Item = usize> + '_ {
        self.live.iter().copied().filter(|item| self.counts[*item] > 0)
    }
}
