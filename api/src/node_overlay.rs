//! NodeOverlay: overrides of prices and capacity.

use crate::{Requirement, ResourceList, null_default, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Specification of the overlay: the instance types and the overrides.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1alpha1",
    kind = "NodeOverlay",
    plural = "nodeoverlays",
    shortname = "overlays",
    category = "karpenter",
    status = "NodeOverlayStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether the overlay is valid and applied"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Age"),
    printcolumn(
        name = "Weight",
        type_ = "integer",
        json_path = ".spec.weight",
        priority = 1,
        description = "Overlays of higher weight take precedence"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::cel(&[(
    "!has(self.price) || !has(self.priceAdjustment)",
    "price and priceAdjustment exclude each other",
)])))]
pub struct NodeOverlaySpec {
    /// Requirements on the labels of the instance types that the overlay applies to.
    #[schemars(schema_with = "schema::overlay_requirements")]
    pub requirements: Vec<Requirement>,
    /// Adjustment of the price: a signed amount in US dollars per hour, or a signed percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::PRICE_ADJUSTMENT))]
    pub price_adjustment: Option<String>,
    /// Price in US dollars per hour, in place of the catalog's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::PRICE))]
    pub price: Option<String>,
    /// Additional resources of the nodes; cpu, memory, ephemeral-storage and pods cannot be set.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "capacity")]
    pub capacity: ResourceList,
    /// If several overlays set the same value, the one of the highest weight applies. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub weight: Option<i32>,
}

/// Resources that an overlay cannot set.
pub(crate) const FIXED_RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

fn capacity(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let rule = format!("self.all(k, !(k in ['{}']))", FIXED_RESOURCES.join("', '"));
    let mut schema = schema::resource_list(generator);
    schema.insert(
        "x-kubernetes-validations".to_owned(),
        schema::cel(&[(&rule, "cpu, memory, ephemeral-storage and pods are the instance type's own")]),
    );
    schema
}

impl NodeOverlaySpec {
    /// Weight of the overlay; the default is 0.
    #[must_use]
    pub fn weight(&self) -> i32 {
        self.weight.unwrap_or(0)
    }
}

/// Observed state of the overlay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlayStatus {
    /// Conditions of the overlay.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
