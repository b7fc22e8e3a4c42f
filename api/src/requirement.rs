//! Requirements on node labels, in pools, claims and overlays.

use plimsoll_model::requirements::NodeSelectorRequirement;
use serde::{Deserialize, Serialize};

pub use plimsoll_model::requirements::Operator;

/// A requirement on a node label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub operator: Operator,
    /// Values: names for In and NotIn, one number for Gt, Lt, Gte and Lte, empty for other operators.
    #[serde(default, deserialize_with = "crate::null_default", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Minimum number of distinct values that the instance types of a launch must have (1 to 50).
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

/// Converts to the model. An invalid `minValues`, which validation rejects, is dropped.
impl From<&Requirement> for NodeSelectorRequirement {
    fn from(api: &Requirement) -> Self {
        Self {
            min_values: api.min_values.and_then(|min| u32::try_from(min).ok()),
            ..Self::new(api.key.clone(), api.operator, api.values.clone())
        }
    }
}

/// Converts to the custom resource form.
impl From<&NodeSelectorRequirement> for Requirement {
    fn from(model: &NodeSelectorRequirement) -> Self {
        Self {
            min_values: model.min_values.map(i64::from),
            ..Self::new(model.key.clone(), model.operator, model.values.clone())
        }
    }
}
