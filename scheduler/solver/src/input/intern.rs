//! Amounts of resources, and sets of offerings as bits.

pub(crate) use plimsoll_kubesched::resources::{Amounts, ResourceTable, add, fits, how_many};

/// A set of small numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Room for `size` numbers, none in the set.
    pub(crate) fn none(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    /// Of the numbers below `size` those for which `member` holds.
    pub(crate) fn of(size: usize, member: impl Fn(usize) -> bool) -> Self {
        let mut bits = Self::none(size);
        (0..size).filter(|index| member(*index)).for_each(|index| bits.insert(index));
        bits
    }

    /// All numbers below `size`.
    pub(crate) fn all(size: usize) -> Self {
        let mut words = vec![u64::MAX; size.div_ceil(64)];
        if let Some(last) = words.last_mut().filter(|_| !size.is_multiple_of(64)) {
            *last = (1 << (size % 64)) - 1;
        }
        Self(words)
    }

    /// The least member.
    pub(crate) fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    pub(crate) fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    pub(crate) fn keep(&mut self, other: &Self) {
        for (word, theirs) in self.0.iter_mut().zip(&other.0) {
            *word &= theirs;
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (word, theirs) in self.0.iter_mut().zip(&other.0) {
            *word |= theirs;
        }
    }

    /// Keeps the members for which `member` holds.
    pub(crate) fn retain(&mut self, member: impl Fn(usize) -> bool) {
        for (place, word) in self.0.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !member(place * 64 + bit) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| theirs & !mine == 0)
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(place, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(place * 64 + bit)
            })
        })
    }
}
