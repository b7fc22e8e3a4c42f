//! Applies removals and upserts to a sorted list.

use super::Edits;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of edits that are applied one by one. Each edit moves all following objects, while rebuilding the
/// list moves all objects once.
const MAX_SINGLE_EDITS: usize = 8;

/// Removes the objects with keys `removed_keys`, inserts or replaces `upserts`, and updates `sum`, the sum of all
/// objects' hashes. `list` is ordered by key before and after. If two upserts have the same key, the later one is used.
/// An object that is both removed and upserted is replaced.
///
/// # Errors
///
/// The index in `removed_keys` of a key that is missing or repeated. The list is unchanged in this case.
pub fn merge<T, K: Ord>(
    list: &mut Vec<T>,
    removed_keys: &[K],
    upserts: Vec<T>,
    key: impl Fn(&T) -> K,
    hash: impl Fn(&T) -> u64,
    sum: &mut u64,
) -> Result<Edits, usize> {
    let find = |list: &[T], wanted: &K| list.binary_search_by(|object| key(object).cmp(wanted));
    let mut removed: BTreeSet<usize> = BTreeSet::new();
    for (index, wanted) in removed_keys.iter().enumerate() {
        let position = find(list, wanted).map_err(|_| index)?;
        if !removed.insert(position) {
            return Err(index);
        }
    }
    for object in removed.iter().filter_map(|position| list.get(*position)) {
        *sum = sum.wrapping_sub(hash(object));
    }
    let upserts: BTreeMap<K, T> = upserts.into_iter().map(|object| (key(&object), object)).collect();
    let (mut replaced, mut inserted) = (Vec::new(), Vec::new());
    for (wanted, object) in upserts {
        *sum = sum.wrapping_add(hash(&object));
        match find(list, &wanted) {
            Ok(position) => {
                let Some(previous) = list.get_mut(position) else { continue };
                if !removed.remove(&position) {
                    *sum = sum.wrapping_sub(hash(previous));
                }
                *previous = object;
                replaced.push(position);
            }
            Err(position) => inserted.push((position, object)),
        }
    }
    let removed: Vec<usize> = removed.into_iter().collect();
    let removed_before = |position: usize| removed.partition_point(|removed| *removed < position);
    let inserted_before = |position: usize| inserted.partition_point(|(inserted, _)| *inserted <= position);
    let edits = Edits {
        inserted: inserted
            .iter()
            .enumerate()
            .map(|(number, (position, _))| position + number - removed_before(*position))
            .collect(),
        replaced: replaced
            .iter()
            .map(|position| position + inserted_before(*position) - removed_before(*position))
            .collect(),
        removed: removed.clone(),
    };
    rebuild(list, &removed, inserted);
    Ok(edits)
}

/// Applies the edits. `removed` are positions in the list; `inserted` contains objects with the positions before which
/// they are inserted. Both are ascending.
fn rebuild<T>(list: &mut Vec<T>, removed: &[usize], inserted: Vec<(usize, T)>) {
    if removed.len() + inserted.len() <= MAX_SINGLE_EDITS {
        // Processing from the end keeps earlier positions valid.
        let mut removed = removed.iter().rev().peekable();
        for (position, object) in inserted.into_iter().rev() {
            while let Some(index) = removed.next_if(|index| **index >= position) {
                list.remove(*index);
            }
            list.insert(position, object);
        }
        for index in removed {
            list.remove(*index);
        }
        return;
    }
    let size = list.len() + inserted.len() - removed.len();
    let (mut removed, mut inserted) = (removed.iter().peekable(), inserted.into_iter().peekable());
    for (position, object) in std::mem::replace(list, Vec::with_capacity(size)).into_iter().enumerate() {
        while let Some((_, new)) = inserted.next_if(|(before, _)| *before == position) {
            list.push(new);
        }
        if removed.next_if(|index| **index == position).is_none() {
            list.push(object);
        }
    }
    list.extend(inserted.map(|(_, new)| new));
}

#[cfg(test)]
mod tests {
    use super::merge;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    type Object = (u8, u8);

    fn hash(object: &Object) -> u64 {
        u64::from(object.0) * 1000 + u64::from(object.1)
    }

    fn total(list: &[Object]) -> u64 {
        list.iter().map(hash).sum()
    }

    proptest! {
        #[test]
        fn merge_equals_a_map_update_and_returns_the_edits(
            old in prop::collection::btree_map(0..40_u8, 0..3_u8, 0..40),
            removed in prop::collection::btree_set(0..40_u8, 0..12),
            upserts in prop::collection::vec((0..40_u8, 0..3_u8), 0..20),
        ) {
            let before: Vec<Object> = old.clone().into_iter().collect();
            let removed: Vec<u8> = removed.into_iter().filter(|key| old.contains_key(key)).collect();
            let mut map: BTreeMap<u8, u8> = old;
            map.retain(|key, _| !removed.contains(key));
            map.extend(upserts.iter().copied());
            let (mut list, mut sum) = (before.clone(), total(&before));
            let edits = merge(&mut list, &removed, upserts.clone(), |object| object.0, hash, &mut sum).unwrap();
            let after: Vec<Object> = map.into_iter().collect();
            prop_assert_eq!(&list, &after);
            prop_assert_eq!(sum, total(&after));
            let keys = |list: &[Object]| list.iter().map(|object| object.0).collect::<BTreeSet<u8>>();
            let (had, has) = (keys(&before), keys(&after));
            let named = |places: &[usize], list: &[Object]| places.iter().map(|at| list[*at].0).collect::<Vec<u8>>();
            prop_assert_eq!(named(&edits.removed, &before), had.difference(&has).copied().collect::<Vec<u8>>());
            prop_assert_eq!(named(&edits.inserted, &after), has.difference(&had).copied().collect::<Vec<u8>>());
            let put = keys(&upserts);
            prop_assert_eq!(named(&edits.replaced, &after), put.intersection(&had).copied().collect::<Vec<u8>>());
        }
    }

    #[test]
    fn missing_and_repeated_keys_cannot_be_removed() {
        let mut list = vec![(1, 0), (2, 0)];
        let mut sum = total(&list);
        for (removed, wrong) in [(vec![1, 3], 1), (vec![2, 2], 1)] {
            assert_eq!(merge(&mut list, &removed, Vec::new(), |object| object.0, hash, &mut sum), Err(wrong));
            assert_eq!((list.as_slice(), sum), (&[(1, 0), (2, 0)][..], total(&list)));
        }
    }
}
