//! Requirements on labels: what nodes a pool may make, which types an overlay is about.

use plimsoll_model::requirements::NodeSelectorRequirement;
use serde::{Deserialize, Serialize};

pub use plimsoll_model::requirements::Operator;

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

/// In the model's form. A minimum that is no count (validation refuses it) is left out.
impl From<&Requirement> for NodeSelectorRequirement {
    fn from(api: &Requirement) -> Self {
        Self {
            min_values: api.min_values.and_then(|least| u32::try_from(least).ok()),
            ..Self::new(api.key.clone(), api.operator, api.values.clone())
        }
    }
}

/// In the form of a custom resource.
impl From<&NodeSelectorRequirement> for Requirement {
    fn from(model: &NodeSelectorRequirement) -> Self {
        Self {
            min_values: model.min_values.map(i64::from),
            ..Self::new(model.key.clone(), model.operator, model.values.clone())
        }
    }
}
