//! CapacityBuffer: capacity reserved for pods that do not exist yet.

use crate::{ResourceList, null_default, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default provisioning strategy: capacity on running nodes.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// Specification of the buffer: the number of pods and their template.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1beta1",
    kind = "CapacityBuffer",
    plural = "capacitybuffers",
    namespaced,
    shortname = "cb",
    category = "autoscaling",
    status = "CapacityBufferStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.provisioningStrategy",
        description = "Strategy by which capacity is kept"
    ),
    printcolumn(
        name = "PodTemplate",
        type_ = "string",
        json_path = ".status.podTemplateRef.name",
        description = "PodTemplate that describes the buffer's pods"
    ),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".status.replicas",
        description = "Number of pods that the buffer keeps capacity for"
    ),
    printcolumn(
        name = "ConditionsType",
        type_ = "string",
        json_path = ".status.conditions[*].type",
        description = "Names of the conditions"
    ),
    printcolumn(
        name = "ConditionsStatus",
        type_ = "string",
        json_path = ".status.conditions[*].status",
        description = "Statuses of the conditions"
    ),
    printcolumn(
        name = "ConditionsReason",
        type_ = "string",
        json_path = ".status.conditions[*].reason",
        description = "Reasons of the conditions"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Age")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::cel(&[
    (
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "podTemplateRef needs replicas or limits",
    ),
    (
        "!has(self.podTemplateRef) || !has(self.scalableRef)",
        "podTemplateRef and scalableRef exclude each other",
    ),
])))]
pub struct CapacityBufferSpec {
    /// Strategy by which capacity is kept. buffer.x-k8s.io/active-capacity keeps it on running nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ACTIVE_CAPACITY))]
    pub provisioning_strategy: Option<String>,
    /// PodTemplate of the same namespace that describes the buffer's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// Workload of the same namespace whose pod template describes the buffer's pods, and whose replicas are the base
    /// of percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableRef>,
    /// Number of pods to keep capacity for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Number of pods as a percentage of the replicas of scalableRef, rounded up. If there are no replicas, the
    /// percentage does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub percentage: Option<i32>,
    /// Maximum total requests of the buffer's pods, by resource. Without replicas and percentage, the buffer has as
    /// many pods as fit within the limits. Empty limits limit nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resource_list")]
    pub limits: Option<ResourceList>,
}

/// Names an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectRef {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Names a workload of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalableRef {
    /// API group of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the workload.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Name of the workload.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Observed state of the buffer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferStatus {
    /// PodTemplate that the status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// Number of pods that the buffer keeps capacity for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Generation of the PodTemplate that the status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// Strategy that the status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// Conditions of the buffer.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl CapacityBufferSpec {
    /// Provisioning strategy of the buffer, or the default.
    #[must_use]
    pub fn strategy(&self) -> &str {
        self.provisioning_strategy.as_deref().unwrap_or(ACTIVE_CAPACITY)
    }
}
