//! Terms of a node selector, matched against a node as kube-scheduler does.

use super::{NodeSelectorRequirement, Operator};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The only field of a node that a term may name.
const NAME_FIELD: &str = "metadata.name";

/// One term of required node affinity: all of its requirements must hold. Terms are alternatives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeSelectorTerm {
    /// On labels.
    #[serde(rename = "matchExpressions", default, skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<NodeSelectorRequirement>,
    /// On fields: the node's name.
    #[serde(rename = "matchFields", default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<NodeSelectorRequirement>,
}

impl NodeSelectorTerm {
    /// Whether a node with these labels matches, whose name is new: no pod can have asked for it.
    #[must_use]
    pub fn matches_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches(None, |key| labels.get(key).map(String::as_str))
    }

    /// Whether the node of that name with these labels matches. A term without requirements, or with one that kube-scheduler cannot read, matches nothing.
    #[must_use]
    pub fn matches_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.matches_node_with(name, |key| labels.get(key).map(String::as_str))
    }

    /// The same for a node whose labels are looked up by `label`.
    pub fn matches_node_with<'l>(&self, name: &str, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.matches(Some(name), label)
    }

    fn matches<'l>(&self, name: Option<&str>, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        let has_requirements = !self.expressions.is_empty() || !self.fields.is_empty();
        has_requirements
            && self.expressions.iter().all(|expression| label_matches(expression, label(&expression.key)))
            && self.fields.iter().all(|field| name_matches(field, name))
    }
}

fn label_matches(expression: &NodeSelectorRequirement, label: Option<&str>) -> bool {
    let has = |label: &str| expression.values.iter().any(|value| value == label);
    let no_values = expression.values.is_empty();
    let compared = |holds: fn(&i64, &i64) -> bool| {
        let number = label.and_then(|label| label.parse().ok());
        number.zip(expression.bound()).is_some_and(|(number, bound)| holds(&number, &bound))
    };
    match expression.operator {
        Operator::In => label.is_some_and(has),
        Operator::NotIn => !no_values && !label.is_some_and(has),
        Operator::Exists => no_values && label.is_some(),
        Operator::DoesNotExist => no_values && label.is_none(),
        Operator::Gt => compared(i64::gt),
        Operator::Lt => compared(i64::lt),
        // Karpenter's own: kube-scheduler cannot read them.
        Operator::Gte | Operator::Lte => false,
    }
}

fn name_matches(field: &NodeSelectorRequirement, name: Option<&str>) -> bool {
    let [wanted] = field.values.as_slice() else {
        return false;
    };
    let same = name == Some(wanted.as_str());
    match field.operator {
        _ if field.key != NAME_FIELD => false,
        Operator::In => same,
        Operator::NotIn => !same,
        _ => false,
    }
}
