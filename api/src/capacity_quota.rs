//! CapacityQuota: limits on the nodes that a label selector matches, whatever their NodePool.

use crate::{Quantity, ResourceList, null_default, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// Maximum number of limited resources.
pub(crate) const MAX_RESOURCES: u64 = 20;
/// Maximum length of the name of a resource.
pub(crate) const MAX_RESOURCE_NAME: usize = 63;

/// Specification of the quota: the nodes and their limits.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1beta1",
    kind = "CapacityQuota",
    plural = "capacityquotas",
    shortname = "cq",
    status = "CapacityQuotaStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct CapacityQuotaSpec {
    /// Label selector of the nodes. Unset or empty: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub selector: Option<LabelSelector>,
    /// Limits on the matching nodes.
    pub limits: CapacityQuotaLimits,
}

/// Limits of a quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityQuotaLimits {
    /// Maximum total of the matching nodes, by resource; `nodes` limits the number of nodes. Only whole amounts are
    /// accepted.
    #[schemars(schema_with = "limits")]
    pub resources: ResourceList,
}

/// A label selector.
fn label_selector(_: &mut SchemaGenerator) -> Schema {
    let values = json!({
        "type": "array",
        "description": "Values for the operators In and NotIn.",
        "items": {"type": "string"},
        "x-kubernetes-list-type": "atomic",
    });
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Labels that a node must have.",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "type": "array",
                "description": "Label requirements, all of which must be met.",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "Key of the label.", "minLength": 1},
                        "operator": {
                            "type": "string",
                            "description": "Operator that relates the label to the values.",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": values,
                    },
                },
            },
        },
    })
}

fn limits(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = schema::resource_list(generator);
    schema.insert("maxProperties".to_owned(), json!(MAX_RESOURCES));
    schema.insert(
        "x-kubernetes-validations".to_owned(),
        schema::cel(&[
            ("self.all(key, size(key) <= 63)", "names of resources have at most 63 characters"),
            (
                "self.all(key, type(self[key]) == int ? self[key] >= 0 : (!self[key].startsWith('-') && quantity(self[key]).isInteger()))",
                "amounts must be whole numbers that are not negative",
            ),
        ]),
    );
    schema
}

/// Observed state of the quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityQuotaStatus {
    /// Usage of the limited resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<CapacityQuotaUsage>,
    /// Conditions of the quota.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation of the quota that the status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Usage of a quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityQuotaUsage {
    /// Total of the matching nodes, by limited resource.
    #[schemars(schema_with = "schema::resource_list")]
    pub resources: ResourceList,
}

/// Why the text is no limit, as the CRD's rules say: milli amounts are no whole numbers, not even `1000m`.
pub(crate) fn limit_problem(limit: &Quantity) -> Option<String> {
    let text = limit.0.as_str();
    match plimsoll_model::quantity::Quantity::parse(text) {
        Err(error) => Some(error.to_string()),
        Ok(amount) if amount.is_negative() => Some(format!("{text} is negative")),
        Ok(amount) => {
            let units = amount.value_ceil().map(plimsoll_model::quantity::Quantity::from_units);
            let is_fraction = ["m", "u", "n"].iter().any(|suffix| text.ends_with(suffix));
            match units {
                None => Some(format!("{text} is too large")),
                Some(units) if units != amount || is_fraction => Some(format!("{text} is not a whole number")),
                Some(_) => None,
            }
        }
    }
}

impl CapacityQuotaSpec {
    /// The selector; an empty one matches all nodes.
    #[must_use]
    pub fn selector(&self) -> LabelSelector {
        self.selector.clone().unwrap_or_default()
    }

    /// The limits by resource.
    #[must_use]
    pub fn limits(&self) -> &BTreeMap<String, Quantity> {
        &self.limits.resources
    }
}
