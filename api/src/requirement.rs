//! Requirements on labels: what nodes a pool may make, which types an overlay is about.

use serde::{Deserialize, Serialize};

/// How a requirement compares a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label is one of the values.
    In,
    /// The label is none of the values, or missing.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is missing.
    DoesNotExist,
    /// The label is a number above the value.
    Gt,
    /// The label is a number below the value.
    Lt,
    /// The label is a number at or above the value.
    Gte,
    /// The label is a number at or below the value.
    Lte,
}

impl Operator {
    /// All of them, in the order in which the schema lists them.
    pub const ALL: [Self; 8] =
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt, Self::Gte, Self::Lte];

    /// The word in a manifest.
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
}

impl std::fmt::Display for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How the label is compared with the values.
    pub operator: Operator,
    /// What it is compared with: names for In and NotIn, one number for Gt, Lt, Gte and Lte, nothing for the others.
    #[serde(default, deserialize_with = "crate::null_default", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// How many different values of the label the instance types of one launch must offer at least (1 to 50).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i64>,
}

impl Requirement {
    /// A requirement without `minValues`.
    pub fn new(
        key: impl Into<String>,
        operator: Operator,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self { key: key.into(), operator, values: values.into_iter().map(Into::into).collect(), min_values: None }
    }
}
