//! Rows of equal width in one allocation.

use plimsoll_model::index::Id;
use std::marker::PhantomData;

/// A row of values per `T`.
#[derive(Debug, Clone)]
pub(crate) struct Grid<T: ?Sized, V> {
    width: usize,
    values: Vec<V>,
    of: PhantomData<fn(&T)>,
}

impl<T: ?Sized, V: Copy> Grid<T, V> {
    pub(crate) fn filled(value: V, count: usize, width: usize) -> Self {
        Self { width, values: vec![value; count * width], of: PhantomData }
    }

    pub(crate) fn from_rows<'r>(width: usize, rows: impl Iterator<Item = &'r [V]>) -> Self
    where
        V: 'r,
    {
        Self { width, values: rows.flatten().copied().collect(), of: PhantomData }
    }

    /// The row with this id; empty if there is none.
    pub(crate) fn row(&self, id: Id<T>) -> &[V] {
        let start = id.number() * self.width;
        self.values.get(start..start + self.width).unwrap_or_default()
    }

    /// The row with this id; empty if there is none.
    pub(crate) fn row_mut(&mut self, id: Id<T>) -> &mut [V] {
        let start = id.number() * self.width;
        self.values.get_mut(start..start + self.width).unwrap_or_default()
    }

    /// The rows from this id on.
    pub(crate) fn rows_from(&self, id: Id<T>) -> impl Iterator<Item = &[V]> {
        let rest = self.values.get(id.number() * self.width..).unwrap_or_default();
        rest.chunks_exact(self.width.max(1))
    }

    pub(crate) fn rows_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut [V]> {
        self.values.chunks_exact_mut(self.width.max(1))
    }
}
