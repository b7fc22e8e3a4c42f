mod term;

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KEY: &str = "example.com/size";
/// Integers inside and outside of the bounds below, alternative spellings, and other texts.
const UNIVERSE: [&str; 14] =
    ["", "a", "b", "c", "1.5", "-3", "0", "1", "2", "3", "03", "4", "5", "9223372036854775807"];

fn api(operator: Operator, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement::new(KEY, operator, values.iter().copied())
}

fn requirement(operator: Operator, values: &[&str]) -> Requirement {
    Requirement::new(&api(operator, values)).unwrap()
}

/// Whether a requirement allows a value.
type Sample = (NodeSelectorRequirement, fn(&str) -> bool);
/// Operator, its values, and the labels that match.
type Match = (Operator, &'static [&'static str], &'static [Option<&'static str>]);

/// Every operator several times, with an independent implementation of its semantics.
fn samples() -> Vec<Sample> {
    fn number(value: &str, holds: fn(i64) -> bool) -> bool {
        value.parse().is_ok_and(holds)
    }
    vec![
        (api(Operator::In, &["a"]), |value| value == "a"),
        (api(Operator::In, &["b", "a", "2"]), |value| ["a", "b", "2"].contains(&value)),
        (api(Operator::In, &["1", "2", "3"]), |value| ["1", "2", "3"].contains(&value)),
        (api(Operator::In, &[""]), str::is_empty),
        (api(Operator::NotIn, &["a"]), |value| value != "a"),
        (api(Operator::NotIn, &["2", "b"]), |value| value != "2" && value != "b"),
        (api(Operator::NotIn, &[]), |_| true),
        (api(Operator::Exists, &[]), |_| true),
        (api(Operator::DoesNotExist, &[]), |_| false),
        (api(Operator::Gt, &["1"]), |value| number(value, |number| number > 1)),
        (api(Operator::Gt, &["3"]), |value| number(value, |number| number > 3)),
        (api(Operator::Gt, &["9223372036854775807"]), |_| false),
        (api(Operator::Gte, &["2"]), |value| number(value, |number| number >= 2)),
        (api(Operator::Gte, &["-3"]), |value| number(value, |number| number >= -3)),
        (api(Operator::Lt, &["3"]), |value| number(value, |number| number < 3)),
        (api(Operator::Lt, &["1"]), |value| number(value, |number| number < 1)),
        (api(Operator::Lt, &["-9223372036854775808"]), |_| false),
        (api(Operator::Lte, &["3"]), |value| number(value, |number| number <= 3)),
        (api(Operator::Lte, &["9223372036854775807"]), |value| number(value, |_| true)),
    ]
}

#[test]
fn each_operator_allows_the_expected_values() {
    for (form, admits) in samples() {
        let requirement = Requirement::new(&form).unwrap();
        for value in UNIVERSE {
            assert_eq!(requirement.has(value), admits(value), "{form} of {value:?}");
        }
    }
}

#[test]
fn the_intersection_of_each_pair_allows_the_common_values() {
    for (left_form, left_admits) in samples() {
        for (right_form, right_admits) in samples() {
            let (left, right) = (Requirement::new(&left_form).unwrap(), Requirement::new(&right_form).unwrap());
            let both = left.intersection(&right);
            for value in UNIVERSE {
                assert_eq!(
                    both.has(value),
                    left_admits(value) && right_admits(value),
                    "{left_form} and {right_form} of {value:?}"
                );
            }
            assert_eq!(both, right.intersection(&left), "{left_form} and {right_form}");
            assert_eq!(left.has_intersection(&right), !both.is_empty(), "{left_form} and {right_form}");
        }
    }
}

#[test]
fn the_derived_operator_ignores_bounds() {
    let table = [
        (requirement(Operator::In, &["a"]), Operator::In),
        (requirement(Operator::NotIn, &["a"]), Operator::NotIn),
        (requirement(Operator::NotIn, &[]), Operator::Exists),
        (requirement(Operator::Exists, &[]), Operator::Exists),
        (requirement(Operator::Gt, &["1"]), Operator::Exists),
        (requirement(Operator::DoesNotExist, &[]), Operator::DoesNotExist),
        (requirement(Operator::In, &["a"]).intersection(&requirement(Operator::NotIn, &["a"])), Operator::DoesNotExist),
        (requirement(Operator::Exists, &[]).intersection(&requirement(Operator::NotIn, &["a"])), Operator::NotIn),
        (requirement(Operator::Gt, &["5"]).intersection(&requirement(Operator::Lt, &["6"])), Operator::DoesNotExist),
    ];
    for (requirement, operator) in table {
        assert_eq!(requirement.operator(), operator, "{requirement}");
    }
}

#[test]
fn an_intersection_has_the_larger_min_values() {
    let with = |min_values| Requirement { min_values, ..requirement(Operator::In, &["a", "b"]) };
    for (left, right, expected) in [(None, None, None), (Some(2), None, Some(2)), (Some(2), Some(5), Some(5))] {
        assert_eq!(with(left).intersection(&with(right)).min_values, expected);
        assert_eq!(with(right).intersection(&with(left)).min_values, expected);
    }
}

#[test]
fn exclusions_are_kept_beside_bounds() {
    let parts = [api(Operator::Gte, &["1"]), api(Operator::Lt, &["5"]), api(Operator::NotIn, &["3", "7", "a"])];
    let set = Requirements::from_api(&parts).unwrap();
    let expected = vec![api(Operator::Gte, &["1"]), api(Operator::Lte, &["4"]), api(Operator::NotIn, &["3"])];
    assert_eq!(set.to_api(), expected);
    assert_eq!(Requirements::from_api(&expected).unwrap(), set);
    assert_eq!(set.to_string(), format!("{KEY} Gte [1], {KEY} Lte [4], {KEY} NotIn [3]"));
    assert!(!set.get(KEY).allows_absence());
}

#[test]
fn invalid_requirements_are_rejected() {
    assert_eq!(Requirement::new(&api(Operator::In, &[])), Err(RequirementError::NoValues { key: KEY.to_owned() }));
    for operator in [Operator::Gt, Operator::Gte, Operator::Lt, Operator::Lte] {
        for values in [&[][..], &["1", "2"], &["a"], &["1.5"], &[""], &["9223372036854775808"]] {
            let error = Requirement::new(&api(operator, values)).unwrap_err();
            assert!(matches!(&error, RequirementError::NotOneInteger { operator: told, .. } if *told == operator));
            assert_eq!(error.key(), KEY);
        }
    }
    let error = Requirement::new(&api(Operator::Gt, &["1.5"])).unwrap_err();
    assert_eq!(error.to_string(), "requirement on example.com/size: Gt needs exactly one integer, not [1.5]");
}

#[test]
fn deprecated_label_names_are_replaced() {
    let old = Requirements::from_labels([("beta.kubernetes.io/arch", "arm64")]);
    let new = Requirements::from_labels([("kubernetes.io/arch", "amd64")]);
    assert!(!old.is_compatible(&new));
    assert!(old.get("beta.kubernetes.io/arch").has("arm64"));
    assert!(old.contains("kubernetes.io/arch"));
}

#[test]
fn a_label_without_requirement_may_have_any_value() {
    let mut set = Requirements::default();
    assert_eq!(*set.get(KEY), Requirement::any(KEY));
    set.add(requirement(Operator::In, &["a", "b"]));
    set.add(requirement(Operator::NotIn, &["b"]));
    assert_eq!(*set.get(KEY), requirement(Operator::In, &["a"]));
    assert_eq!(set.remove(KEY), Some(requirement(Operator::In, &["a"])));
    assert!(set.is_empty());
}

/// Whether `incoming` is compatible with `existing`, both on [`KEY`]. Without an existing requirement the label is
/// undefined.
fn custom_label_compatible(existing: Option<&Requirement>, incoming: &Requirement) -> bool {
    let (existing, incoming): (Requirements, Requirements) =
        (existing.cloned().into_iter().collect(), [incoming.clone()].into_iter().collect());
    existing.is_compatible(&incoming)
}

#[test]
fn compatibility_of_every_kind_of_operator() {
    let kinds = [
        requirement(Operator::In, &["1"]),
        requirement(Operator::NotIn, &["1"]),
        requirement(Operator::Exists, &[]),
        requirement(Operator::DoesNotExist, &[]),
        requirement(Operator::Gt, &["0"]),
        requirement(Operator::Lt, &["0"]),
        requirement(Operator::Gt, &["0"]).intersection(&requirement(Operator::NotIn, &["5"])),
    ];
    // Rows: existing requirement (first: none). Columns: incoming requirement, in the order of `kinds`.
    let expected = [
        [false, true, false, true, false, false, false],
        [true, false, true, false, true, false, true],
        [false, true, true, true, true, true, true],
        [true, true, true, false, true, true, true],
        [false, true, false, true, false, false, false],
        [true, true, true, false, true, false, true],
        [false, true, true, false, false, true, false],
        [true, true, true, false, true, false, true],
    ];
    let rows = std::iter::once(None).chain(kinds.iter().map(Some));
    for (existing, answers) in rows.zip(expected) {
        for (incoming, answer) in kinds.iter().zip(answers) {
            assert_eq!(custom_label_compatible(existing, incoming), answer, "{existing:?} and {incoming}");
        }
    }
}

#[test]
fn long_value_lists_are_shortened_only_in_display() {
    let many = Requirement::one_of(KEY, ["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(many.to_string(), "example.com/size In [a, b, c, d, e and 2 more]");
}

fn labels(value: Option<&str>) -> BTreeMap<String, String> {
    value.map(|value| (KEY.to_owned(), value.to_owned())).into_iter().collect()
}

#[test]
fn operators_parse_their_own_names() {
    for operator in Operator::ALL {
        assert_eq!(Operator::parse(operator.as_str()), Some(operator));
    }
    assert_eq!(Operator::parse("in"), None);
}

fn any_requirement() -> impl Strategy<Value = Requirement> {
    let values = proptest::collection::vec(proptest::sample::select(UNIVERSE.to_vec()), 1..5);
    let minimum = proptest::option::of(1_u32..50);
    let operator = proptest::sample::select(Operator::ALL.to_vec());
    (operator, values, -4_i64..7, minimum).prop_map(|(operator, values, bound, min_values)| {
        let bound = bound.to_string();
        let values = match operator {
            Operator::In | Operator::NotIn => values,
            Operator::Exists | Operator::DoesNotExist => vec![],
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => vec![bound.as_str()],
        };
        Requirement::new(&NodeSelectorRequirement { min_values, ..api(operator, &values) }).unwrap()
    })
}

/// Intersections of several requirements, to combine bounds, exclusions and lists.
fn any_mixture() -> impl Strategy<Value = Requirement> {
    proptest::collection::vec(any_requirement(), 1..4)
        .prop_map(|parts| parts.iter().fold(Requirement::any(KEY), |mixture, part| mixture.intersection(part)))
}

proptest! {
    #[test]
    fn an_intersection_allows_the_common_values(left in any_mixture(), right in any_mixture()) {
        let both = left.intersection(&right);
        for value in UNIVERSE {
            prop_assert_eq!(both.has(value), left.has(value) && right.has(value), "{} and {} of {:?}", left, right, value);
        }
        prop_assert_eq!(left.has_intersection(&right), !both.is_empty());
        prop_assert_eq!(right.has_intersection(&left), !both.is_empty());
    }

    #[test]
    fn intersection_is_commutative_associative_and_idempotent(a in any_mixture(), b in any_mixture(), c in any_mixture()) {
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&b).intersection(&c), a.intersection(&b.intersection(&c)));
        prop_assert_eq!(a.intersection(&a), a.clone());
        prop_assert_eq!(a.intersection(&Requirement::any(KEY)), a);
    }

    #[test]
    fn conversion_to_the_api_form_keeps_the_meaning(requirement in any_mixture()) {
        let entries = requirement.to_api();
        let again = Requirements::from_api(&entries).unwrap();
        prop_assert_eq!(again.get(KEY).into_owned(), requirement);
    }

    #[test]
    fn a_node_that_matches_a_term_is_compatible_with_it(
        parts in proptest::collection::vec(any_requirement(), 1..3),
        value in proptest::option::of(proptest::sample::select(UNIVERSE.to_vec())),
    ) {
        let expressions: Vec<_> = parts.iter().flat_map(Requirement::to_api).collect();
        let incoming = Requirements::from_api(&expressions).unwrap();
        let node = labels(value);
        let term = NodeSelectorTerm { expressions, fields: vec![] };
        if term.matches_labels(&node) {
            let existing = Requirements::from_labels(&node);
            prop_assert!(existing.is_compatible(&incoming), "{} of {:?}", incoming, value);
        }
    }
}
