//! The algebra of requirements on node labels, with Karpenter's vocabulary and kube-scheduler's meaning
//! (spec: Karpenter core section 3).

mod label_selector;
mod matching;
mod requirement;
mod set;
mod term;
#[cfg(test)]
mod tests;

pub use label_selector::LabelSelector;
pub use requirement::{Requirement, RequirementError};
pub use set::{Incompatible, Requirements, Undefined};
pub use term::{NodeSelectorTerm, selects_node};

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a requirement compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values; the label may be missing.
    NotIn,
    /// Any value.
    Exists,
    /// No such label.
    DoesNotExist,
    /// An integer above the value.
    Gt,
    /// An integer below the value.
    Lt,
    /// An integer of at least the value; Karpenter's own.
    Gte,
    /// An integer of at most the value; Karpenter's own.
    Lte,
}

impl Operator {
    /// All of them, in the order in which the schemas of the custom resources list them.
    pub const ALL: [Self; 8] =
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt, Self::Gte, Self::Lte];

    /// The API's word for it.
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

    /// Whether it compares numbers.
    #[must_use]
    pub fn is_bound(self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }

    /// From the API's word.
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

/// A requirement in the form of the API: of a pod's node affinity (without minimum) or of a pool, claim or overlay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    /// The label.
    pub key: String,
    /// How its value is compared.
    pub operator: Operator,
    /// With what: one integer for the bounds, none for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// How many distinct values a launch must stay flexible over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<u32>,
}

impl NodeSelectorRequirement {
    /// Without a minimum of values.
    #[must_use]
    pub fn new<Value: Into<String>>(
        key: impl Into<String>,
        operator: Operator,
        values: impl IntoIterator<Item = Value>,
    ) -> Self {
        Self { key: key.into(), operator, values: values.into_iter().map(Into::into).collect(), min_values: None }
    }

    /// The one value, as an integer. `None` if there are more or fewer, or it is none.
    fn bound(&self) -> Option<i64> {
        match self.values.as_slice() {
            [value] => value.parse().ok(),
            _ => None,
        }
    }
}

impl fmt::Display for NodeSelectorRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A requirement may name hundreds of instance types; the first few tell a reader which one it is.
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
