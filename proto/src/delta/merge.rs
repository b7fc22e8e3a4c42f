//! A sorted list with some objects taken out and others put in.

use plimsoll_model::snapshot::Edits;
use std::collections::{BTreeMap, BTreeSet};

/// Up to so many objects are moved in and out one by one; each moves all behind it, and making the list anew moves all of it once.
const FEW: usize = 8;

/// Takes out the objects with keys `gone`, puts in `upserts`, and takes `sum`, the sum of all objects' hashes, along. `list` is in the
/// order of its keys, before and after. Of two upserts with one key the later counts; what is both taken out and put in is replaced.
///
/// # Errors
/// The place in `gone` of a key that is not there, or there for the second time. The list is as it was then.
pub(super) fn merge<T, K: Ord>(
    list: &mut Vec<T>,
    gone: &[K],
    upserts: Vec<T>,
    key: impl Fn(&T) -> K,
    hash: impl Fn(&T) -> u64,
    sum: &mut u64,
) -> Result<Edits, usize> {
    let find = |list: &[T], wanted: &K| list.binary_search_by(|object| key(object).cmp(wanted));
    let mut removed: BTreeSet<usize> = BTreeSet::new();
    for (index, wanted) in gone.iter().enumerate() {
        let place = find(list, wanted).map_err(|_| index)?;
        if !removed.insert(place) {
            return Err(index);
        }
    }
    for place in &removed {
        *sum = sum.wrapping_sub(hash(&list[*place]));
    }
    let upserts: BTreeMap<K, T> = upserts.into_iter().map(|object| (key(&object), object)).collect();
    let (mut replaced, mut fresh) = (Vec::new(), Vec::new());
    for (wanted, object) in upserts {
        *sum = sum.wrapping_add(hash(&object));
        match find(list, &wanted) {
            Ok(place) => {
                if !removed.remove(&place) {
                    *sum = sum.wrapping_sub(hash(&list[place]));
                }
                list[place] = object;
                replaced.push(place);
            }
            Err(place) => fresh.push((place, object)),
        }
    }
    let removed: Vec<usize> = removed.into_iter().collect();
    let before = |place: usize| removed.partition_point(|one| *one < place);
    let ahead = |place: usize| fresh.partition_point(|(one, _)| *one <= place);
    let edits = Edits {
        inserted: fresh.iter().enumerate().map(|(number, (place, _))| place + number - before(*place)).collect(),
        replaced: replaced.iter().map(|place| place + ahead(*place) - before(*place)).collect(),
        removed: removed.clone(),
    };
    rebuild(list, &removed, fresh);
    Ok(edits)
}

/// `removed` are places, `fresh` has objects with the places before which they belong; both ascending.
fn rebuild<T>(list: &mut Vec<T>, removed: &[usize], fresh: Vec<(usize, T)>) {
    if removed.len() + fresh.len() <= FEW {
        // From the end, so that places further ahead stay what they are.
        let mut removed = removed.iter().rev().peekable();
        for (place, object) in fresh.into_iter().rev() {
            while let Some(gone) = removed.next_if(|one| **one >= place) {
                list.remove(*gone);
            }
            list.insert(place, object);
        }
        for gone in removed {
            list.remove(*gone);
        }
        return;
    }
    let size = list.len() + fresh.len() - removed.len();
    let (mut removed, mut fresh) = (removed.iter().peekable(), fresh.into_iter().peekable());
    for (place, object) in std::mem::replace(list, Vec::with_capacity(size)).into_iter().enumerate() {
        while let Some((_, new)) = fresh.next_if(|(before, _)| *before == place) {
            list.push(new);
        }
        if removed.next_if(|one| **one == place).is_none() {
            list.push(object);
        }
    }
    list.extend(fresh.map(|(_, new)| new));
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
        fn the_list_is_that_of_a_map_and_edits_say_what_became_of_each(
            old in prop::collection::btree_map(0..40_u8, 0..3_u8, 0..40),
            gone in prop::collection::btree_set(0..40_u8, 0..12),
            upserts in prop::collection::vec((0..40_u8, 0..3_u8), 0..20),
        ) {
            let before: Vec<Object> = old.clone().into_iter().collect();
            let gone: Vec<u8> = gone.into_iter().filter(|key| old.contains_key(key)).collect();
            let mut map: BTreeMap<u8, u8> = old;
            map.retain(|key, _| !gone.contains(key));
            map.extend(upserts.iter().copied());
            let (mut list, mut sum) = (before.clone(), total(&before));
            let edits = merge(&mut list, &gone, upserts.clone(), |one| one.0, hash, &mut sum).unwrap();
            let after: Vec<Object> = map.into_iter().collect();
            prop_assert_eq!(&list, &after);
            prop_assert_eq!(sum, total(&after));
            let keys = |list: &[Object]| list.iter().map(|one| one.0).collect::<BTreeSet<u8>>();
            let (had, has) = (keys(&before), keys(&after));
            let named = |places: &[usize], list: &[Object]| places.iter().map(|at| list[*at].0).collect::<Vec<u8>>();
            prop_assert_eq!(named(&edits.removed, &before), had.difference(&has).copied().collect::<Vec<u8>>());
            prop_assert_eq!(named(&edits.inserted, &after), has.difference(&had).copied().collect::<Vec<u8>>());
            let put = keys(&upserts);
            prop_assert_eq!(named(&edits.replaced, &after), put.intersection(&had).copied().collect::<Vec<u8>>());
        }
    }

    #[test]
    fn what_is_not_there_cannot_go_and_nothing_goes_twice() {
        let mut list = vec![(1, 0), (2, 0)];
        let mut sum = total(&list);
        for (gone, wrong) in [(vec![1, 3], 1), (vec![2, 2], 1)] {
            assert_eq!(merge(&mut list, &gone, Vec::new(), |one| one.0, hash, &mut sum), Err(wrong));
            assert_eq!((list.as_slice(), sum), (&[(1, 0), (2, 0)][..], total(&list)));
        }
    }
}
