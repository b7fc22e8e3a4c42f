//! Requirements against labels that are known, with kube-scheduler's meaning.

use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::PodShape;
use std::collections::BTreeMap;

/// Whether `requirement` holds for a label with this value, or for no such label.
pub(crate) fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|one| one == value);
    let compared = |test: fn(i64, i64) -> bool| {
        let bound = requirement.values.first().and_then(|text| text.parse::<i64>().ok());
        let value = value.and_then(|text| text.parse::<i64>().ok());
        value.zip(bound).is_some_and(|(value, bound)| test(value, bound))
    };
    match requirement.operator {
        Operator::In => value.is_some_and(listed),
        Operator::NotIn => !value.is_some_and(listed),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compared(|value, bound| value > bound),
        Operator::Lt => compared(|value, bound| value < bound),
        Operator::Gte => compared(|value, bound| value >= bound),
        Operator::Lte => compared(|value, bound| value <= bound),
    }
}

/// A label of a node, under its present name or the one it had before.
pub(crate) fn lookup<'a>(labels: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    labels.get(key).or_else(|| labels.get(label::normalized(key))).map(String::as_str)
}

/// `key In [value]`.
pub(crate) fn equals(key: &str, value: &str) -> NodeSelectorRequirement {
    one_of(key, vec![value.to_owned()])
}

/// `key In values`.
pub(crate) fn one_of(key: &str, values: Vec<String>) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key: key.to_owned(), operator: Operator::In, values, min_values: None }
}

/// Whether a node of that name with these labels satisfies selector and required affinity of `shape`.
pub(crate) fn selects(shape: &PodShape, name: &str, labels: &BTreeMap<String, String>) -> bool {
    chosen(&shape.node_selector, &shape.required_node_affinity, name, labels)
}

/// Whether a node of that name with these labels satisfies a node selector and one of `terms`, if there are any.
pub(crate) fn chosen(
    selector: &BTreeMap<String, String>,
    terms: &[NodeSelectorTerm],
    name: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    selector.iter().all(|(key, value)| lookup(labels, key) == Some(value))
        && (terms.is_empty() || terms.iter().any(|term| term_holds(term, name, labels)))
}

/// Whether the node of that name with these labels satisfies the term.
pub(crate) fn term_holds(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    // A term without anything selects nothing.
    (!term.expressions.is_empty() || !term.fields.is_empty())
        && term.expressions.iter().all(|one| holds(one, lookup(labels, &one.key)))
        && term.fields.iter().all(|one| one.key == "metadata.name" && holds(one, Some(name)))
}
