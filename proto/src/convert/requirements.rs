//! Conversion of requirements on labels.

use super::{ConvertError, ConvertResult, WireEnum as _, enum_value, key, list, required, to_wire, wire_enum};
use crate::snapshot::v1 as wire;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::{LabelSelector, PreferredTerm};

wire_enum!(wire::NodeSelectorOperator, Operator, [In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte]);

impl From<&NodeSelectorRequirement> for wire::NodeSelectorRequirement {
    fn from(requirement: &NodeSelectorRequirement) -> Self {
        Self {
            key: requirement.key.clone(),
            operator: requirement.operator.to_wire(),
            values: requirement.values.clone(),
            min_values: requirement.min_values,
        }
    }
}

impl TryFrom<wire::NodeSelectorRequirement> for NodeSelectorRequirement {
    type Error = ConvertError;
    fn try_from(requirement: wire::NodeSelectorRequirement) -> ConvertResult<Self> {
        Ok(Self {
            key: key("key", requirement.key)?,
            operator: enum_value("operator", requirement.operator)?,
            values: requirement.values,
            min_values: requirement.min_values,
        })
    }
}

impl From<&NodeSelectorTerm> for wire::NodeSelectorTerm {
    fn from(term: &NodeSelectorTerm) -> Self {
        Self { expressions: to_wire(&term.expressions), fields: to_wire(&term.fields) }
    }
}

impl TryFrom<wire::NodeSelectorTerm> for NodeSelectorTerm {
    type Error = ConvertError;
    fn try_from(term: wire::NodeSelectorTerm) -> ConvertResult<Self> {
        Ok(Self { expressions: list("expressions", term.expressions)?, fields: list("fields", term.fields)? })
    }
}

impl From<&PreferredTerm> for wire::PreferredTerm {
    fn from(preferred: &PreferredTerm) -> Self {
        Self { weight: preferred.weight, term: Some((&preferred.term).into()) }
    }
}

impl TryFrom<wire::PreferredTerm> for PreferredTerm {
    type Error = ConvertError;
    fn try_from(preferred: wire::PreferredTerm) -> ConvertResult<Self> {
        Ok(Self { weight: preferred.weight, term: required("term", preferred.term)? })
    }
}

impl From<&LabelSelector> for wire::LabelSelector {
    fn from(selector: &LabelSelector) -> Self {
        Self { match_labels: selector.match_labels.clone(), match_expressions: to_wire(&selector.match_expressions) }
    }
}

impl TryFrom<wire::LabelSelector> for LabelSelector {
    type Error = ConvertError;
    fn try_from(selector: wire::LabelSelector) -> ConvertResult<Self> {
        Ok(Self {
            match_labels: selector.match_labels,
            match_expressions: list("match_expressions", selector.match_expressions)?,
        })
    }
}
