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

/// Specification of the NodePool: the template of its nodes, limits and disruption.
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
        description = "Node class of the NodePool"
    ),
    printcolumn(
        name = "Nodes",
        type_ = "string",
        json_path = ".status.nodes",
        description = "Number of nodes of the NodePool"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether the NodePool can launch nodes"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Age"),
    printcolumn(
        name = "Weight",
        type_ = "integer",
        json_path = ".spec.weight",
        priority = 1,
        description = "NodePools of higher weight are tried first"
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.resources.cpu",
        priority = 1,
        description = "Total CPU of the NodePool's nodes"
    ),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".status.resources.memory",
        priority = 1,
        description = "Total memory of the NodePool's nodes"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct NodePoolSpec {
    /// Template of the NodePool's NodeClaims.
    pub template: NodeClaimTemplate,
    /// When nodes may be removed or replaced voluntarily.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = json!({"consolidateAfter": "0s"})))]
    pub disruption: Option<Disruption>,
    /// Maximum total of the NodePool's nodes, by resource; `nodes` limits the number of nodes.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub limits: ResourceList,
    /// NodePools of higher weight are tried first. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<i32>,
    /// Number of nodes of a static NodePool, regardless of pods. It cannot be added to or removed from an existing
    /// NodePool.
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

/// When nodes of a pool may be removed or replaced voluntarily.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// How long a node must have had no added or removed pods before it may be consolidated. Never: consolidation is
    /// disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, regex(pattern = schema::pattern::NILLABLE_DURATION))]
    pub consolidate_after: Option<NillableDuration>,
    /// Which nodes may be consolidated. WhenEmpty: nodes without pods other than those of DaemonSets.
    /// WhenEmptyOrUnderutilized: also nodes whose pods fit on other nodes or on cheaper new nodes. Balanced: the same,
    /// if the saving outweighs the disruption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "WhenEmptyOrUnderutilized"))]
    pub consolidation_policy: Option<ConsolidationPolicy>,
    /// Limits on the number of nodes that are disrupted at the same time. If several budgets apply, the smallest is
    /// used.
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
    /// Only nodes without pods other than those of DaemonSets.
    WhenEmpty,
    /// Also nodes whose pods fit on other nodes or on cheaper new nodes.
    #[default]
    WhenEmptyOrUnderutilized,
    /// Like `WhenEmptyOrUnderutilized`, if the saving outweighs the disruption.
    Balanced,
}

/// Template of a pool's NodeClaims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the NodePool's NodeClaims and nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Specification of the NodePool's NodeClaims.
    pub spec: NodeClaimTemplateSpec,
}

impl NodeClaimTemplate {
    /// Labels of the NodePool's NodeClaims and nodes.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.metadata.iter().flat_map(|metadata| &metadata.labels);
        labels.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Annotations of the NodePool's NodeClaims and nodes.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let annotations = self.metadata.iter().flat_map(|metadata| &metadata.annotations);
        annotations.map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Labels and annotations for a pool's claims and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels of the NodePool's NodeClaims and nodes.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::template_labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the NodePool's NodeClaims and nodes.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::template_annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// Specification of a pool's NodeClaims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Taints of the NodePool's nodes: pods must tolerate them to run there.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub taints: Vec<Taint>,
    /// Taints of new nodes that another component removes when the node is prepared. Pods need not tolerate them, but
    /// are not bound before they are removed.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub startup_taints: Vec<Taint>,
    /// Requirements on the labels of the NodePool's nodes, such as instance types, zones and capacity types.
    #[schemars(schema_with = "schema::pool_requirements")]
    pub requirements: Vec<Requirement>,
    /// Reference to the node class of the NodePool's nodes.
    #[schemars(schema_with = "schema::pool_node_class_ref")]
    pub node_class_ref: NodeClassRef,
    /// Maximum duration of a node's drain, after which the remaining pods are deleted, even if PodDisruptionBudgets or
    /// do-not-disrupt protect them. Unset: no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::DURATION))]
    pub termination_grace_period: Option<GoDuration>,
    /// Maximum age of a node, after which it is removed. Never: no maximum.
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

/// Observed state of the NodePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Total of the NodePool's nodes, by resource; `nodes` is their number.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resources: ResourceList,
    /// Number of nodes of the NodePool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub nodes: Option<i64>,
    /// Generation of the node class that the conditions were set for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// Conditions of the NodePool.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
