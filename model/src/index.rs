//! Typed indices: an [`Id`] says what it counts, and an [`IndexVec`] takes only ids of that kind.
//!
//! Two lists that run in parallel share the kind of their ids. An id is valid for every list of its kind that is at
//! least as long as the list that gave it out.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// The number of a `T` in an [`IndexVec`].
pub struct Id<T: ?Sized> {
    number: u32,
    of: PhantomData<fn() -> T>,
}

impl<T: ?Sized> Id<T> {
    /// The id of the first value.
    pub const FIRST: Self = Self { number: 0, of: PhantomData };

    /// The id of that number. A list holds fewer than `u32::MAX` values; larger numbers are ids of no value.
    #[must_use]
    #[inline]
    pub fn new(number: usize) -> Self {
        Self { number: u32::try_from(number).unwrap_or(u32::MAX), of: PhantomData }
    }

    /// Its number, from zero on.
    #[must_use]
    #[inline]
    pub fn number(self) -> usize {
        self.number as usize
    }
}

// Derived implementations would ask the same of `T`.
impl<T: ?Sized> Clone for Id<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Id<T> {}

impl<T: ?Sized> PartialEq for Id<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T: ?Sized> Eq for Id<T> {}

impl<T: ?Sized> PartialOrd for Id<T> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: ?Sized> Ord for Id<T> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl<T: ?Sized> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for Id<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.number, to)
    }
}

/// A list of `V` that is indexed by ids of `T`.
pub struct IndexVec<T: ?Sized, V> {
    values: Vec<V>,
    of: PhantomData<fn(&T)>,
}

impl<T: ?Sized, V> IndexVec<T, V> {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Vec::new().into()
    }

    /// `value` for each of `count` ids.
    #[must_use]
    pub fn filled(value: V, count: usize) -> Self
    where
        V: Clone,
    {
        vec![value; count].into()
    }

    /// Adds a value and returns its id.
    #[inline]
    pub fn push(&mut self, value: V) -> Id<T> {
        let id = Id::new(self.values.len());
        self.values.push(value);
        id
    }

    /// How many values there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no value.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of that id, if there is one. It is not called `get` because clippy takes `list[id]` for an unchecked
    /// access to any type that has a `get`.
    #[must_use]
    #[inline]
    pub fn try_get(&self, id: Id<T>) -> Option<&V> {
        self.values.get(id.number())
    }

    /// The value of that id, if there is one.
    #[must_use]
    #[inline]
    pub fn try_get_mut(&mut self, id: Id<T>) -> Option<&mut V> {
        self.values.get_mut(id.number())
    }

    /// All ids in order.
    #[inline]
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id<T>> + ExactSizeIterator + use<T, V> {
        (0..self.values.len()).map(Id::new)
    }

    /// All values in order.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, V> {
        self.values.iter()
    }

    /// All values in order.
    #[inline]
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, V> {
        self.values.iter_mut()
    }

    /// All values in order, each with its id.
    #[inline]
    pub fn iter_enumerated(&self) -> impl DoubleEndedIterator<Item = (Id<T>, &V)> + ExactSizeIterator {
        self.values.iter().enumerate().map(|(number, value)| (Id::new(number), value))
    }

    /// All values in order, each with its id.
    #[inline]
    pub fn iter_enumerated_mut(&mut self) -> impl DoubleEndedIterator<Item = (Id<T>, &mut V)> + ExactSizeIterator {
        self.values.iter_mut().enumerate().map(|(number, value)| (Id::new(number), value))
    }

    /// The values without their ids.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[V] {
        &self.values
    }

    /// The list itself, for what changes the number of values.
    #[must_use]
    #[inline]
    pub fn as_mut_vec(&mut self) -> &mut Vec<V> {
        &mut self.values
    }
}

impl<T: ?Sized, V> Index<Id<T>> for IndexVec<T, V> {
    type Output = V;

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "ids come from a list of the same kind that is not longer")]
    fn index(&self, id: Id<T>) -> &V {
        &self.values[id.number()]
    }
}

impl<T: ?Sized, V> IndexMut<Id<T>> for IndexVec<T, V> {
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "ids come from a list of the same kind that is not longer")]
    fn index_mut(&mut self, id: Id<T>) -> &mut V {
        &mut self.values[id.number()]
    }
}

impl<T: ?Sized, V> From<Vec<V>> for IndexVec<T, V> {
    fn from(values: Vec<V>) -> Self {
        Self { values, of: PhantomData }
    }
}

impl<T: ?Sized, V> FromIterator<V> for IndexVec<T, V> {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        Vec::from_iter(values).into()
    }
}

impl<T: ?Sized, V> Extend<V> for IndexVec<T, V> {
    fn extend<I: IntoIterator<Item = V>>(&mut self, values: I) {
        self.values.extend(values);
    }
}

impl<T: ?Sized, V> IntoIterator for IndexVec<T, V> {
    type Item = V;
    type IntoIter = std::vec::IntoIter<V>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}

impl<'a, T: ?Sized, V> IntoIterator for &'a IndexVec<T, V> {
    type Item = &'a V;
    type IntoIter = std::slice::Iter<'a, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.iter()
    }
}

impl<'a, T: ?Sized, V> IntoIterator for &'a mut IndexVec<T, V> {
    type Item = &'a mut V;
    type IntoIter = std::slice::IterMut<'a, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.iter_mut()
    }
}

// Derived implementations would ask the same of `T`.
impl<T: ?Sized, V> Default for IndexVec<T, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized, V: Clone> Clone for IndexVec<T, V> {
    fn clone(&self) -> Self {
        self.values.clone().into()
    }
}

impl<T: ?Sized, V: PartialEq> PartialEq for IndexVec<T, V> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl<T: ?Sized, V: Eq> Eq for IndexVec<T, V> {}

impl<T: ?Sized, V: PartialOrd> PartialOrd for IndexVec<T, V> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.values.partial_cmp(&other.values)
    }
}

impl<T: ?Sized, V: Ord> Ord for IndexVec<T, V> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.values.cmp(&other.values)
    }
}

impl<T: ?Sized, V: fmt::Debug> fmt::Debug for IndexVec<T, V> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.values, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_the_id_that_push_returned() {
        let mut list: IndexVec<str, &str> = IndexVec::new();
        let (a, b) = (list.push("a"), list.push("b"));
        assert_eq!((list[a], list[b]), ("a", "b"));
        assert_eq!(list.ids().collect::<Vec<_>>(), [a, b]);
        assert_eq!(list.iter_enumerated().collect::<Vec<_>>(), [(a, &"a"), (b, &"b")]);
        list[a] = "c";
        assert_eq!(list.try_get(a), Some(&"c"));
        assert_eq!(list.try_get(Id::new(2)), None);
    }
}
