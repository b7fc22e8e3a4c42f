//! The algebra of requirements, compared with a check of each single value.

use crate::cursor::Cursor;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator, Requirement, Requirements};
use std::collections::{BTreeMap, BTreeSet};

/// Values for requirements: words, integers in several spellings, and the limits of integers.
const VALUES: [&str; 16] = [
    "a",
    "b",
    "",
    "0",
    "1",
    "2",
    "3",
    "10",
    "-1",
    "01",
    "+1",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1.5",
    "A",
];
/// Labels. Two of them are aliases of one label, and one is defined for every pool.
const KEYS: [&str; 16] = {
    const SOME: [&str; 4] =
        ["team", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "karpenter.sh/capacity-type"];
    let mut keys = [SOME[0]; 16];
    let mut at = 0;
    while at < 16 {
        keys[at] = SOME[at % 4];
        at += 1;
    }
    keys
};
/// Maximum number of entries per list.
const MOST: usize = 6;

/// Parses two lists of requirements and a node's labels from the bytes.
///
/// # Panics
/// If the property is violated.
pub fn holds(data: &[u8]) {
    let mut bytes = Cursor::new(data);
    let (left, right) = (entries(&mut bytes), entries(&mut bytes));
    for entry in left.iter().chain(&right) {
        one(entry);
    }
    for a in &left {
        for b in &right {
            if let (Ok(a), Ok(b)) = (Requirement::new(a), Requirement::new(b)) {
                pair(&a, &b);
            }
        }
    }
    sets(&left, &right);
    term(&left, &labels(&mut bytes));
}

fn entries(bytes: &mut Cursor<'_>) -> Vec<NodeSelectorRequirement> {
    let count = usize::from(bytes.byte()) % (MOST + 1);
    let entry = |bytes: &mut Cursor<'_>| {
        let operator = Operator::ALL[usize::from(bytes.byte()) % Operator::ALL.len()];
        let key = bytes.pick(&KEYS);
        let values: Vec<&str> = (0..bytes.byte() % 4).map(|_| bytes.pick(&VALUES)).collect();
        let min_values = Some(u32::from(bytes.byte() % 4)).filter(|least| *least > 0);
        NodeSelectorRequirement { min_values, ..NodeSelectorRequirement::new(key, operator, values) }
    };
    (0..count).map(|_| entry(bytes)).collect()
}

fn labels(bytes: &mut Cursor<'_>) -> BTreeMap<String, String> {
    (0..bytes.byte() % 4).map(|_| (bytes.pick(&KEYS).to_owned(), bytes.pick(&VALUES).to_owned())).collect()
}

/// All values that entries can name, and some others.
fn universe() -> impl Iterator<Item = &'static str> {
    VALUES.into_iter().chain(["c", "4", "-7", "00", "100"])
}

/// Whether an entry of the API admits a value; `None` if the entry is invalid.
fn admits(entry: &NodeSelectorRequirement, value: &str) -> Option<bool> {
    let listed = entry.values.iter().any(|it| it == value);
    let compared = |holds: &dyn Fn(i128, i128) -> bool| match entry.values.as_slice() {
        [bound] => {
            let bound = bound.parse::<i64>().ok()?;
            Some(value.parse::<i64>().is_ok_and(|value| holds(value.into(), bound.into())))
        }
        _ => None,
    };
    match entry.operator {
        Operator::In if entry.values.is_empty() => None,
        Operator::In => Some(listed),
        Operator::NotIn => Some(!listed),
        Operator::Exists => Some(true),
        Operator::DoesNotExist => Some(false),
        Operator::Gt => compared(&|value, bound| value > bound),
        Operator::Lt => compared(&|value, bound| value < bound),
        Operator::Gte => compared(&|value, bound| value >= bound),
        Operator::Lte => compared(&|value, bound| value <= bound),
    }
}

fn one(entry: &NodeSelectorRequirement) {
    let requirement = Requirement::new(entry);
    let Ok(requirement) = requirement else {
        assert_eq!(admits(entry, "a"), None, "{entry} has a meaning: {requirement:?}");
        return;
    };
    for value in universe() {
        assert_eq!(Some(requirement.has(value)), admits(entry, value), "{entry} and {value:?}");
    }
    normal(&requirement);
    assert_eq!(requirement.intersection(&requirement), requirement, "{entry} with itself");
    assert_eq!(requirement.has_intersection(&requirement), !requirement.is_empty(), "{entry} with itself");
    let absent = matches!(entry.operator, Operator::DoesNotExist)
        || (entry.operator == Operator::NotIn && !entry.values.is_empty());
    // No value satisfies a bound beyond the last integer, which is equivalent to an absent label.
    let beyond = entry.operator.is_bound() && requirement.is_empty();
    assert_eq!(requirement.allows_absence(), absent || beyond, "{entry}");
}

/// The requirement is in normal form, and survives a round trip through the API form.
fn normal(requirement: &Requirement) {
    let bounded = requirement.gte.is_some() || requirement.lte.is_some();
    assert!(requirement.complement || !bounded, "{requirement:?}");
    let inside = |value: &String| {
        value.parse::<i64>().is_ok_and(|value| {
            requirement.gte.is_none_or(|gte| gte <= value) && requirement.lte.is_none_or(|lte| value <= lte)
        })
    };
    assert!(!bounded || requirement.values.iter().all(inside), "{requirement:?}");
    let again = Requirements::from_api(&requirement.to_api());
    assert_eq!(again.map(|set| set.get(&requirement.key).into_owned()), Ok(requirement.clone()));
}

fn pair(a: &Requirement, b: &Requirement) {
    let (both, reversed) = (a.intersection(b), b.intersection(a));
    if a.key == b.key {
        assert_eq!(both, reversed, "{a} and {b}");
    }
    assert_eq!((&both.key, both.min_values), (&a.key, a.min_values.max(b.min_values)), "{a} and {b}");
    normal(&both);
    for value in universe() {
        assert_eq!(both.has(value), a.has(value) && b.has(value), "{a} and {b} and {value:?}");
    }
    assert_eq!(both.intersection(a).intersection(b), both, "{a} and {b}, again");
    assert_eq!(a.has_intersection(b), !both.is_empty(), "{a} and {b}");
    assert_eq!(a.has_intersection(b), b.has_intersection(a), "{a} and {b}");
    if universe().any(|value| a.has(value) && b.has(value)) {
        assert!(a.has_intersection(b), "{a} and {b}");
    }
    // For two sets of listed values, there are no other values to check.
    if !a.complement && !b.complement {
        let common: BTreeSet<&String> = a.values.intersection(&b.values).collect();
        assert_eq!(both.values.iter().collect::<BTreeSet<_>>(), common, "{a} and {b}");
    }
}

fn sets(left: &[NodeSelectorRequirement], right: &[NodeSelectorRequirement]) {
    let (Ok(a), Ok(b)) = (Requirements::from_api(left), Requirements::from_api(right)) else {
        let meaningless = |entry: &NodeSelectorRequirement| admits(entry, "a").is_none();
        assert!(left.iter().chain(right).any(meaningless), "{left:?} and {right:?}");
        return;
    };
    let reversed: Vec<NodeSelectorRequirement> = left.iter().rev().cloned().collect();
    assert_eq!(Requirements::from_api(&reversed), Ok(a.clone()), "the order of entries makes a difference");
    for requirement in a.iter() {
        let entries = left.iter().filter(|it| plimsoll_model::names::label::normalized(&it.key) == requirement.key);
        for value in universe() {
            let admitted_by_all = entries.clone().all(|entry| admits(entry, value) == Some(true));
            assert_eq!(requirement.has(value), admitted_by_all, "{requirement} and {value:?}");
        }
    }
    assert_eq!(Requirements::from_api(&a.to_api()), Ok(a.clone()), "what is written is not what is read");
    let (mut ab, mut ba) = (a.clone(), b.clone());
    ab.add_all(&b);
    ba.add_all(&a);
    assert_eq!(ab, ba, "both together depend on the order");
    let shared =
        |one: &Requirement| a.find(&one.key).is_some_and(|own| universe().any(|it| own.has(it) && one.has(it)));
    let absent = |one: &Requirement| one.allows_absence() && a.find(&one.key).is_none_or(Requirement::allows_absence);
    if b.iter().all(|requirement| shared(requirement) || absent(requirement)) {
        assert!(a.is_compatible(&b), "{a} and {b}");
    }
}

/// A node selector term by the rules of kube-scheduler: keys without aliases, and no entries that kube-scheduler cannot
/// parse.
fn term(entries: &[NodeSelectorRequirement], labels: &BTreeMap<String, String>) {
    let matches = |entry: &NodeSelectorRequirement| {
        let value = labels.get(&entry.key);
        let unreadable = match entry.operator {
            Operator::In | Operator::NotIn => entry.values.is_empty(),
            Operator::Exists | Operator::DoesNotExist => !entry.values.is_empty(),
            Operator::Gt | Operator::Lt => admits(entry, "").is_none(),
            Operator::Gte | Operator::Lte => true,
        };
        let holds = match (entry.operator, value) {
            (Operator::NotIn | Operator::DoesNotExist, None) => true,
            (_, None) => false,
            (_, Some(value)) => admits(entry, value) == Some(true),
        };
        !unreadable && holds
    };
    let expected = !entries.is_empty() && entries.iter().all(matches);
    let term = NodeSelectorTerm { expressions: entries.to_vec(), fields: Vec::new() };
    assert_eq!(term.matches_labels(labels), expected, "{entries:?} on {labels:?}");
}
