//! NodePool: which nodes may be launched, how many, and when they may be removed.

use crate::{
    GoDuration, NillableDuration, NodeClassRef, Requirement, ResourceList, Taint, budget::Budget, null_default, schema,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// Default of `consolidateAfter`: immediately.
pub const DEFAULT_CONSOLIDATE_AFTER_SECONDS: u64 = 0;
/// Default of `expireAfter`: 30 days.
pub const DEFAULT_EXPIRE_AFTER_HOURS: u64 = 720;

/// What nodes to make and how to look after them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    plural = "nodepools",
    category = "karpenter",
    status = "NodePoolStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.nodes"),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.template.spec.nodeClassRef.name",
        description = "Node class of the pool"
    ),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes", description = "Nodes of the pool"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether the pool can make nodes"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Age"),
    printcolumn(
        name = "Weight",
        type_ = "integer",
        json_path = ".spec.weight",
        priority = 1,
        description = "Pools of higher weight are tried first"
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.resources.cpu",
        priority = 1,
        description = "CPU of the pool's nodes"
    ),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".status.resources.memory",
        priority = 1,
        description = "Memory of the pool's nodes"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct NodePoolSpec {
    /// What every node of the pool is like.
    pub template: NodeClaimTemplate,
    /// When nodes of the pool may be taken away or replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({"consolidateAfter": "0s"})))]
    pub disruption: Option<Disruption>,
    /// The most that all nodes of the pool may have together, by resource; `nodes` counts the nodes.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub limits: ResourceList,
    /// Pools of higher weight are tried first. Without it, 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<i32>,
    /// Keeps this many nodes whether or not pods need them, instead of following the pods. A pool has it for life or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
}

fn spec_rules() -> serde_json::Value {
    schema::cel(&[
        ("has(self.replicas) == has(oldSelf.replicas)", "replicas cannot be added to a pool or taken from it"),
        (
            "!has(self.replicas) || !has(self.limits) || self.limits.all(k, k == 'nodes')",
            "a pool with replicas can limit nothing but nodes",
        ),
        ("!has(self.replicas) || !has(self.weight)", "a pool with replicas cannot have a weight"),
    ])
}

impl NodePoolSpec {
    /// Whether the pool has a fixed number of nodes.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.replicas.is_some()
    }

    /// Weight of the pool; the default is 0.
    #[must_use]
    pub fn weight(&self) -> i32 {
        self.weight.unwrap_or(0)
    }

    /// How long a node must have been without pod events before it may be consolidated.
    #[must_use]
    pub fn consolidate_after(&self) -> NillableDuration {
        let given = self.disruption.as_ref().and_then(|disruption| disruption.consolidate_after.clone());
        given.unwrap_or_else(|| NillableDuration::from_seconds(DEFAULT_CONSOLIDATE_AFTER_SECONDS))
    }

    /// Which nodes may be consolidated.
    #[must_use]
    pub fn consolidation_policy(&self) -> ConsolidationPolicy {
        self.disruption.as_ref().and_then(|disruption| disruption.consolidation_policy).unwrap_or_default()
    }

    /// Budgets of the pool; the default is a tenth of its nodes at any time.
    #[must_use]
    pub fn budgets(&self) -> Vec<Budget> {
        let given = self.disruption.as_ref().and_then(|disruption| disruption.budgets.clone());
        given.unwrap_or_else(|| vec![Budget::default()])
    }
}

/// When nodes of a pool may be taken away or replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// How long no pod may have come to a node or left it before the node is looked at for consolidation; Never turns consolidation off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, regex(pattern = schema::pattern::NILLABLE_DURATION))]
    pub consolidate_after: Option<NillableDuration>,
    /// Which nodes may be consolidated: only empty ones, all whose pods have room elsewhere or on something cheaper, or those of them where it is worth the disturbance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "WhenEmptyOrUnderutilized"))]
    pub consolidation_policy: Option<ConsolidationPolicy>,
    /// How many nodes may be disrupted at a time. Of several budgets that apply, the smallest counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), extend(
        "default" = json!([{"nodes": "10%"}]),
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = schema::cel(&[(
            "self.all(b, has(b.schedule) == has(b.duration))",
            "a budget needs both schedule and duration or neither",
        )])
    ))]
    pub budgets: Option<Vec<Budget>>,
}

/// Which nodes may be consolidated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConsolidationPolicy {
    /// Only those without pods of their own.
    WhenEmpty,
    /// Also those whose pods have room elsewhere, or on something cheaper.
    #[default]
    WhenEmptyOrUnderutilized,
    /// The same, where the saving is worth the disturbance.
    Balanced,
}

/// What every node of a pool is like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    /// Labels and annotations for the pool's claims and nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// What the pool's claims ask for.
    pub spec: NodeClaimTemplateSpec,
}

impl NodeClaimTemplate {
    /// Labels for the pool's claims and nodes.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.metadata.iter().flat_map(|metadata| &metadata.labels);
        labels.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Annotations for the pool's claims and nodes.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let annotations = self.metadata.iter().flat_map(|metadata| &metadata.annotations);
        annotations.map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Labels and annotations for a pool's claims and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels for the pool's claims and nodes.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::template_labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations for the pool's claims and nodes.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::template_annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// What a pool's claims ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Taints for the pool's nodes: only pods that tolerate them come.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub taints: Vec<Taint>,
    /// Taints that something else takes from new nodes when they are prepared. Pods need not tolerate them, but wait until they are gone.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub startup_taints: Vec<Taint>,
    /// Conditions on the labels of the pool's nodes: instance types, zones, capacity types and whatever else is labelled.
    #[schemars(schema_with = "schema::pool_requirements")]
    pub requirements: Vec<Requirement>,
    /// The node class that says how to make the pool's nodes.
    #[schemars(schema_with = "schema::pool_node_class_ref")]
    pub node_class_ref: NodeClassRef,
    /// The longest that a node may be drained; after it, its pods are deleted whatever protects them. Without it, as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::DURATION))]
    pub termination_grace_period: Option<GoDuration>,
    /// The age at which a node is taken away; Never keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::NILLABLE_DURATION), extend("default" = "720h"))]
    pub expire_after: Option<NillableDuration>,
}

impl NodeClaimTemplateSpec {
    /// Age at which a node expires.
    #[must_use]
    pub fn expire_after(&self) -> NillableDuration {
        self.expire_after.clone().unwrap_or_else(default_expire_after)
    }
}

/// Default of `expireAfter`.
pub(crate) fn default_expire_after() -> NillableDuration {
    format!("{DEFAULT_EXPIRE_AFTER_HOURS}h").parse().unwrap_or_else(|_| NillableDuration::never())
}

/// What a pool has and how it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// What the pool's nodes have together, by resource; `nodes` counts them.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resources: ResourceList,
    /// Number of the pool's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub nodes: Option<i64>,
    /// Generation of the node class that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// What is known about the pool.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
