use super::*;
use futures::FutureExt;
use jiff::ToSpan;
use jiff::civil::date;

const TODAY: Date = date(2026, 11, 26);

fn key(instance_type: &str) -> MemoryKey {
    MemoryKey { instance_type: instance_type.to_owned(), image: "ami-1".to_owned() }
}

fn observation(instance_type: &str, bytes: i64) -> Observation {
    Observation { node: "n".to_owned(), key: key(instance_type), nominal_mib: 8192, bytes }
}

fn after(days: i64) -> Date {
    TODAY.checked_add(days.days()).unwrap()
}

/// The value after each of these observations in MiB, one day apart.
fn values(observed: &[i64]) -> Vec<Option<i64>> {
    let memory = DiscoveredMemory::default();
    let learn = |(day, mib): (i64, &i64)| {
        memory.learn(vec![observation("m5.large", mib * MIB)], after(day));
        memory.all().get(&key("m5.large")).map(|entry| entry.mib)
    };
    (0..).zip(observed).map(learn).collect()
}

#[test]
fn the_first_value_counts_and_then_only_smaller_ones() {
    assert_eq!(values(&[7700, 7800, 7690, 7695]), [7700, 7700, 7690, 7690].map(Some));
}

#[test]
fn implausible_values_are_reported_and_ignored() {
    assert_eq!(values(&[0, -5, 100, 8193, 7700, 100]), [None, None, None, None, Some(7700), Some(7700)]);
    let learned = DiscoveredMemory::default().learn(vec![observation("m5.large", 0)], TODAY);
    let expected = Learned { implausible: vec![observation("m5.large", 0)], ..Learned::default() };
    assert_eq!(learned, expected);
}

#[test]
fn differences_below_a_mebibyte_change_nothing() {
    let memory = DiscoveredMemory::default();
    let first = memory.learn(vec![observation("m5.large", 7700 * MIB + 9000)], TODAY);
    assert_eq!(first.changed, [key("m5.large")]);
    let second = memory.learn(vec![observation("m5.large", 7700 * MIB + 10)], TODAY);
    assert_eq!(second, Learned::default());
    assert_eq!(memory.of_images(&["ami-1"].into()), [(key("m5.large"), 7700 * MIB)].into());
    assert_eq!(memory.of_images(&["ami-2"].into()), BTreeMap::new());
}

#[test]
fn an_entry_ends_unless_a_node_confirms_it() {
    let memory = DiscoveredMemory::default();
    let seen = || memory.all().get(&key("m5.large")).map(|entry| entry.seen);
    memory.learn(vec![observation("m5.large", 7700 * MIB)], TODAY);
    let early = memory.learn(vec![observation("m5.large", 7700 * MIB)], after(6));
    assert_eq!((early.differs, seen()), (false, Some(TODAY)), "it is renewed once a week");
    let renewed = memory.learn(vec![observation("m5.large", 7700 * MIB)], after(7));
    assert_eq!((renewed.differs, renewed.changed, seen()), (true, Vec::new(), Some(after(7))));
    let larger = memory.learn(vec![observation("m5.large", 7800 * MIB)], after(67));
    assert_eq!((larger.differs, seen()), (false, Some(after(7))), "a larger node confirms nothing");
    memory.learn(vec![observation("m5.large", 7800 * MIB)], after(68));
    assert_eq!(memory.all()[&key("m5.large")], SeenMemory { mib: 7800, seen: after(68) });
}

#[test]
fn the_number_of_entries_is_bounded_and_the_oldest_go_first() {
    let memory = DiscoveredMemory::default();
    memory.learn(vec![observation("z.old", 7700 * MIB)], TODAY);
    let many = (0..MAX_ENTRIES).map(|number| observation(&format!("m{number}.large"), 7700 * MIB));
    memory.learn(many.collect(), after(1));
    assert_eq!(memory.all().len(), MAX_ENTRIES);
    assert!(!memory.all().contains_key(&key("z.old")));
}

#[test]
fn restored_entries_complete_what_is_known() {
    let memory = DiscoveredMemory::default();
    memory.learn(["a", "b", "f"].map(|name| observation(name, 7700 * MIB)).into(), TODAY);
    let stored = |mib, seen| SeenMemory { mib, seen };
    memory.restore(
        [
            (key("a"), stored(7600, after(-3))),
            (key("b"), stored(7800, after(-3))),
            (key("c"), stored(7500, after(99))),
            (key("d"), stored(7500, after(-61))),
            (key("e"), stored(1, after(-1))),
            (key("f"), stored(7700, after(-3))),
        ]
        .into(),
        TODAY,
    );
    let expected = [
        (key("a"), stored(7600, after(-3))),
        (key("b"), stored(7700, TODAY)),
        (key("c"), stored(7500, TODAY)),
        (key("e"), stored(1, after(-1))),
        (key("f"), stored(7700, TODAY)),
    ];
    assert_eq!(memory.all(), expected.into());
    // A value that no node can have does not keep the real one out.
    memory.learn(vec![observation("e", 7700 * MIB)], TODAY);
    assert_eq!(memory.all()[&key("e")].mib, 7700);
}

#[test]
fn the_number_of_restored_entries_is_bounded() {
    let memory = DiscoveredMemory::default();
    let entry = |number: usize| (key(&format!("m{number}.large")), SeenMemory { mib: 7700, seen: after(-1) });
    let oldest = (key("z.old"), SeenMemory { mib: 7700, seen: after(-2) });
    memory.restore((0..MAX_ENTRIES).map(entry).chain([oldest]).collect(), TODAY);
    assert_eq!(memory.all().len(), MAX_ENTRIES);
    assert!(!memory.all().contains_key(&key("z.old")));
}

/// Catalogs are built again, and the entries are stored.
#[test]
fn changes_are_told() {
    let memory = DiscoveredMemory::default();
    let changed = memory.changed();
    let is_told = || changed.notified().now_or_never().is_some();
    let learn = || drop(memory.learn(vec![observation("m5.large", 7700 * MIB)], TODAY));
    learn();
    assert!(is_told());
    learn();
    assert!(!is_told(), "nothing is new");
    memory.restore([(key("c5.large"), SeenMemory { mib: 3700, seen: TODAY })].into(), TODAY);
    assert!(is_told());
}
