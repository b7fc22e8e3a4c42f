//! Which catalogs of a file may be referred to.

use plimsoll_model::identity::CatalogId;
use std::collections::BTreeSet;

/// Maximum catalogs beside those that a plan needs. Each takes some MiB in memory, and each price change creates one
/// more.
const MAX_OTHERS: usize = 16;

/// Ids of catalogs in the order in which they were written. Writer and reader forget the same ones, so a catalog that
/// is needed again is written again.
#[derive(Debug, Default)]
pub(crate) struct KnownCatalogs(Vec<CatalogId>);

impl KnownCatalogs {
    /// Adds a catalog. Returns whether it is new.
    pub(crate) fn add(&mut self, id: CatalogId) -> bool {
        let is_new = !self.0.contains(&id);
        if is_new {
            self.0.push(id);
        }
        is_new
    }

    /// After a plan that needs the catalogs `needed`: forgets the oldest of the others, and returns what it forgets.
    pub(crate) fn forget(&mut self, needed: &BTreeSet<CatalogId>) -> Vec<CatalogId> {
        let others = self.0.iter().filter(|id| !needed.contains(*id)).count();
        let mut excess = others.saturating_sub(MAX_OTHERS);
        let is_forgotten = |id: &mut CatalogId| {
            let is_forgotten = excess > 0 && !needed.contains(&*id);
            excess -= usize::from(is_forgotten);
            is_forgotten
        };
        self.0.extract_if(.., is_forgotten).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_are_not_needed_are_forgotten() {
        let mut known = KnownCatalogs::default();
        let id = |number: usize| CatalogId(format!("c-{number}"));
        let needed = BTreeSet::from([id(0)]);
        for number in 0..=MAX_OTHERS {
            assert!(known.add(id(number)) && !known.add(id(number)));
            assert!(known.forget(&needed).is_empty());
        }
        known.add(id(100));
        known.add(id(101));
        assert_eq!(known.forget(&needed), [id(1), id(2)]);
        assert!(known.add(id(1)), "it is new again");
    }
}
