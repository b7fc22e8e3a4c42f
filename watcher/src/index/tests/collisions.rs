//! Objects whose names have the same hash.

use super::*;

#[test]
fn of_names_with_the_same_hash_the_wanted_one_is_found() {
    let list = [node("a", "1"), node("b", "1")];
    let wanted = &list[1].metadata;
    let mut positions = Positions(BTreeSet::from([(hash(wanted), 0), (hash(wanted), 1)]));
    assert_eq!(positions.find::<Node>(&list, wanted), Some(1));
    positions.remove(wanted, 0);
    assert_eq!(positions.find::<Node>(&list, wanted), Some(1), "another position was removed");
}
