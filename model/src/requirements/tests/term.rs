//! Tests of node selector terms.

use super::*;

#[test]
fn terms_match_as_in_kube_scheduler() {
    let table: [Match; 15] = [
        (Operator::In, &["a", "2"], &[Some("a"), Some("2")]),
        (Operator::In, &[], &[]),
        (Operator::NotIn, &["a"], &[None, Some("2"), Some("3"), Some("x"), Some("")]),
        (Operator::NotIn, &[], &[]),
        (Operator::Exists, &[], &[Some("a"), Some("2"), Some("3"), Some("x"), Some("")]),
        (Operator::Exists, &["a"], &[]),
        (Operator::DoesNotExist, &[], &[None]),
        (Operator::DoesNotExist, &["a"], &[]),
        (Operator::Gt, &["2"], &[Some("3")]),
        (Operator::Gt, &["a"], &[]),
        (Operator::Gt, &["1", "2"], &[]),
        (Operator::Lt, &["3"], &[Some("2")]),
        (Operator::Lt, &[], &[]),
        (Operator::Gte, &["2"], &[]),
        (Operator::Lte, &["3"], &[]),
    ];
    for (operator, values, matched) in table {
        let term = NodeSelectorTerm { expressions: vec![api(operator, values)], fields: vec![] };
        for value in [None, Some("a"), Some("2"), Some("3"), Some("x"), Some("")] {
            assert_eq!(
                term.matches_labels(&labels(value)),
                matched.contains(&value),
                "{operator} {values:?} of {value:?}"
            );
        }
    }
}

#[test]
fn all_requirements_of_a_term_must_hold_and_an_empty_term_matches_nothing() {
    assert!(!NodeSelectorTerm::default().matches_labels(&labels(Some("a"))));
    let both = vec![api(Operator::Gt, &["1"]), api(Operator::NotIn, &["3"])];
    let term = NodeSelectorTerm { expressions: both, fields: vec![] };
    assert!(term.matches_labels(&labels(Some("2"))));
    assert!(!term.matches_labels(&labels(Some("3"))));
    assert!(!term.matches_labels(&labels(Some("1"))));
}

#[test]
fn the_node_name_is_the_only_valid_field() {
    let field = |key: &str, operator, values: &[&str]| NodeSelectorTerm {
        expressions: vec![],
        fields: vec![NodeSelectorRequirement::new(key, operator, values.iter().copied())],
    };
    let none = BTreeMap::new();
    let named = field("metadata.name", Operator::In, &["n1"]);
    assert_eq!(
        [named.matches_node("n1", &none), named.matches_node("n2", &none), named.matches_labels(&none)],
        [true, false, false]
    );
    let other = field("metadata.name", Operator::NotIn, &["n1"]);
    assert_eq!(
        [other.matches_node("n1", &none), other.matches_node("n2", &none), other.matches_labels(&none)],
        [false, true, true]
    );
    for unreadable in [
        field("metadata.uid", Operator::NotIn, &["n1"]),
        field("metadata.name", Operator::NotIn, &["n1", "n2"]),
        field("metadata.name", Operator::Exists, &[]),
    ] {
        assert!(!unreadable.matches_node("n3", &none), "{unreadable:?}");
        assert!(!unreadable.is_valid(), "{unreadable:?}");
    }
    assert!(named.is_valid() && other.is_valid());
}

#[test]
fn a_term_with_an_invalid_expression_matches_nothing() {
    let refused = [
        api(Operator::In, &[]),
        api(Operator::NotIn, &[]),
        api(Operator::Exists, &["2"]),
        api(Operator::DoesNotExist, &["2"]),
        api(Operator::Gt, &["1", "1"]),
        api(Operator::Gt, &["one"]),
        api(Operator::Gte, &["1"]),
        api(Operator::Lte, &["3"]),
    ];
    for expression in refused {
        let expressions = vec![api(Operator::Exists, &[]), expression];
        let term = NodeSelectorTerm { expressions, fields: vec![] };
        assert!(!term.is_valid(), "{term:?}");
        assert!(!term.matches_labels(&labels(Some("2"))) && !term.matches_labels(&labels(None)), "{term:?}");
    }
}

#[test]
fn a_node_must_satisfy_the_selector_and_one_of_the_terms() {
    let selects = |selector: &BTreeMap<String, String>, terms: &[NodeSelectorTerm], value: &'static str| {
        selects_node(selector, terms, "n1", |key| (key == KEY).then_some(value))
    };
    let term =
        |operator, values: &[&str]| NodeSelectorTerm { expressions: vec![api(operator, values)], fields: vec![] };
    let (none, two) = (BTreeMap::new(), labels(Some("2")));
    assert!(selects(&none, &[], "7"));
    assert!(selects(&two, &[], "2") && !selects(&two, &[], "7"));
    let either = [term(Operator::In, &["7"]), term(Operator::Lt, &["3"])];
    assert!(selects(&none, &either, "7") && selects(&none, &either, "2") && !selects(&none, &either, "5"));
    assert!(selects(&two, &either, "2") && !selects(&two, &either, "7"));
    assert!(!selects(&none, &[NodeSelectorTerm::default()], "2"), "an empty term is no term");
}
