//! Node selector terms, matched like kube-scheduler does.

use super::matching::{is_valid, satisfies};
use super::{NodeSelectorRequirement, Operator};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The only node field that a term may use.
const NAME_FIELD: &str = "metadata.name";

/// A term of required node affinity. All of its requirements must hold; the terms of a list are alternatives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(rename = "matchExpressions", default, skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on fields, that is, the node name.
    #[serde(rename = "matchFields", default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<NodeSelectorRequirement>,
}

impl NodeSelectorTerm {
    /// Whether a new node with these labels matches. Its name is not known yet, so no term can select it by name.
    #[must_use]
    pub fn matches_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches(None, |key| labels.get(key).map(String::as_str))
    }

    /// Whether the node with this name and these labels matches. A term without requirements, or with an invalid
    /// requirement, matches nothing.
    #[must_use]
    pub fn matches_node(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.matches_node_with(name, |key| labels.get(key).map(String::as_str))
    }

    /// Like [`Self::matches_node`], with a lookup function for labels.
    pub fn matches_node_with<'l>(&self, name: &str, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.matches(Some(name), label)
    }

    /// Whether the term can match any node: it has requirements, and all of them are valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (!self.expressions.is_empty() || !self.fields.is_empty())
            && self.expressions.iter().all(is_valid)
            && self.fields.iter().all(is_valid_field)
    }

    fn matches<'l>(&self, name: Option<&str>, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        let has_requirements = !self.expressions.is_empty() || !self.fields.is_empty();
        has_requirements
            && self.expressions.iter().all(|expression| satisfies(expression, label(&expression.key)))
            && self.fields.iter().all(|field| name_matches(field, name))
    }
}

/// Whether Kubernetes accepts the field requirement.
fn is_valid_field(field: &NodeSelectorRequirement) -> bool {
    field.key == NAME_FIELD && field.values.len() == 1 && matches!(field.operator, Operator::In | Operator::NotIn)
}

fn name_matches(field: &NodeSelectorRequirement, name: Option<&str>) -> bool {
    let same = name.is_some() && name == field.values.first().map(String::as_str);
    is_valid_field(field) && same == (field.operator == Operator::In)
}

/// Whether a node satisfies the node selector and, if `terms` is not empty, one of the terms. `label` looks up labels
/// of the node.
pub fn selects_node<'l>(
    selector: &BTreeMap<String, String>,
    terms: &[NodeSelectorTerm],
    name: &str,
    label: impl Fn(&str) -> Option<&'l str>,
) -> bool {
    selector.iter().all(|(key, value)| label(key) == Some(value.as_str()))
        && (terms.is_empty() || terms.iter().any(|term| term.matches_node_with(name, &label)))
}
