//! Requirements on node labels, with Karpenter's operators and kube-scheduler's semantics.

mod label_selector;
mod matching;
mod requirement;
mod set;
mod term;
#[cfg(test)]
mod tests;

pub use label_selector::LabelSelector;
pub use matching::satisfies as selector_matches;
pub use requirement::{Requirement, RequirementError};
pub use set::Requirements;
pub use term::{NodeSelectorTerm, selects_node};

use serde::{Deserialize, Serialize};
use std::fmt;

/// Operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values; it may be missing.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label is an integer greater than the value.
    Gt,
    /// The label is an integer less than the value.
    Lt,
    /// The label is an integer of at least the value. Only in Karpenter.
    Gte,
    /// The label is an integer of at most the value. Only in Karpenter.
    Lte,
}

impl Operator {
    /// All operators, in the order of the custom resource schemas.
    pub const ALL: [Self; 8] =
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt, Self::Gte, Self::Lte];

    /// Name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Whether the operator compares numbers.
    #[must_use]
    pub fn is_bound(self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }

    /// Parses the name in the API.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.as_str() == text)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A requirement as in the API: of a pod's node affinity (without `min_values`), pool, claim or overlay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub operator: Operator,
    /// Values: one integer for numeric operators, none for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Minimum number of distinct values that a launch must allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<u32>,
}

impl NodeSelectorRequirement {
    /// Creates a requirement without `min_values`.
    #[must_use]
    pub fn new<Value: Into<String>>(
        key: impl Into<String>,
        operator: Operator,
        values: impl IntoIterator<Item = Value>,
    ) -> Self {
        Self { key: key.into(), operator, values: values.into_iter().map(Into::into).collect(), min_values: None }
    }

    /// Returns the only value as an integer; `None` if there is not exactly one integer.
    fn bound(&self) -> Option<i64> {
        match self.values.as_slice() {
            [value] => value.parse().ok(),
            _ => None,
        }
    }
}

impl fmt::Display for NodeSelectorRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Maximum number of shown values, since a requirement may have hundreds.
        const SHOWN_VALUES: usize = 5;
        write!(f, "{} {}", self.key, self.operator)?;
        if !self.values.is_empty() {
            let shown: Vec<&str> = self.values.iter().take(SHOWN_VALUES).map(String::as_str).collect();
            let more = self.values.len() - shown.len();
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            write!(f, " [{}{rest}]", shown.join(", "))?;
        }
        Ok(())
    }
}
