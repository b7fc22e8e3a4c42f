//! Resource amounts, and sets of offerings as bit sets.

pub(crate) use plimsoll_kubesched::resources::{Amounts, ResourceTable, add, fits, how_many};
use plimsoll_model::index::Id;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

/// A set of ids of `T`.
pub(crate) struct Bits<T: ?Sized> {
    words: Vec<u64>,
    of: PhantomData<fn(&T)>,
}

impl<T: ?Sized> Bits<T> {
    fn new(words: Vec<u64>) -> Self {
        Self { words, of: PhantomData }
    }

    /// An empty set with capacity for `size` ids.
    pub(crate) fn none(size: usize) -> Self {
        Self::new(vec![0; size.div_ceil(64)])
    }

    /// The ids below `size` for which `member` holds.
    pub(crate) fn of(size: usize, member: impl Fn(Id<T>) -> bool) -> Self {
        Self::from_ids(size, (0..size).map(Id::new).filter(|id| member(*id)))
    }

    /// These ids, which are below `size`.
    pub(crate) fn from_ids(size: usize, ids: impl IntoIterator<Item = Id<T>>) -> Self {
        let mut bits = Self::none(size);
        ids.into_iter().for_each(|id| bits.insert(id));
        bits
    }

    /// All ids below `size`.
    pub(crate) fn all(size: usize) -> Self {
        let mut words = vec![u64::MAX; size.div_ceil(64)];
        if let Some(last) = words.last_mut().filter(|_| !size.is_multiple_of(64)) {
            *last = (1 << (size % 64)) - 1;
        }
        Self::new(words)
    }

    pub(crate) fn first(&self) -> Option<Id<T>> {
        self.iter().next()
    }

    pub(crate) fn insert(&mut self, id: Id<T>) {
        if let Some(word) = self.words.get_mut(id.number() / 64) {
            *word |= 1 << (id.number() % 64);
        }
    }

    pub(crate) fn has(&self, id: Id<T>) -> bool {
        self.words.get(id.number() / 64).is_some_and(|word| word & (1 << (id.number() % 64)) != 0)
    }

    pub(crate) fn keep(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, theirs)| *word &= theirs);
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.keep(other);
        both
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, theirs)| *word |= theirs);
    }

    pub(crate) fn retain(&mut self, member: impl Fn(Id<T>) -> bool) {
        for (place, word) in self.words.iter_mut().enumerate() {
            for bit in bits_of(*word) {
                if !member(Id::new(place * 64 + bit)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(mine, theirs)| theirs & !mine == 0)
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Members in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Id<T>> + '_ {
        let members = |(place, word): (usize, &u64)| bits_of(*word).map(move |bit| Id::new(place * 64 + bit));
        self.words.iter().enumerate().flat_map(members)
    }
}

/// The set bits of a word, in ascending order.
fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

// Derived implementations would require the same traits of `T`.
impl<T: ?Sized> Clone for Bits<T> {
    fn clone(&self) -> Self {
        Self::new(self.words.clone())
    }
}

impl<T: ?Sized> PartialEq for Bits<T> {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl<T: ?Sized> Eq for Bits<T> {}

impl<T: ?Sized> PartialOrd for Bits<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: ?Sized> Ord for Bits<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.words.cmp(&other.words)
    }
}

impl<T: ?Sized> Default for Bits<T> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl<T: ?Sized> fmt::Debug for Bits<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_set().entries(self.iter()).finish()
    }
}
