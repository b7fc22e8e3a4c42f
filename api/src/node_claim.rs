//! NodeClaim: a requested node, from the request to its deletion.

use crate::{
    GoDuration, NillableDuration, NodeClassRef, Requirement, ResourceList, Taint, condition,
    node_pool::{NodeClaimTemplateSpec, default_expire_after},
    null_default, schema,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{annotation, label};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Specification of the node. It is immutable.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodeClaim",
    plural = "nodeclaims",
    category = "karpenter",
    status = "NodeClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = ".metadata.labels.node\\.kubernetes\\.io/instance-type",
        description = "Instance type"
    ),
    printcolumn(
        name = "Capacity",
        type_ = "string",
        json_path = ".metadata.labels.karpenter\\.sh/capacity-type",
        description = "Capacity type"
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".metadata.labels.topology\\.kubernetes\\.io/zone",
        description = "Zone"
    ),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName", description = "Name of the Node"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether the node is initialized"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Age"),
    printcolumn(
        name = "ImageID",
        type_ = "string",
        json_path = ".status.imageID",
        priority = 1,
        description = "Image of the instance"
    ),
    printcolumn(
        name = "ID",
        type_ = "string",
        json_path = ".status.providerID",
        priority = 1,
        description = "Provider id of the instance"
    ),
    printcolumn(
        name = "NodePool",
        type_ = "string",
        json_path = ".metadata.labels.karpenter\\.sh/nodepool",
        priority = 1,
        description = "NodePool of the node"
    ),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.nodeClassRef.name",
        priority = 1,
        description = "Node class of the node"
    ),
    printcolumn(
        name = "Drifted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Drifted\")].status",
        priority = 1,
        description = "Whether the node differs from its NodePool or node class"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::cel(&[("self == oldSelf", "a claim cannot be changed")])))]
pub struct NodeClaimSpec {
    /// Taints of the node: pods must tolerate them to run there.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub taints: Vec<Taint>,
    /// Taints of the new node that another component removes when the node is prepared.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub startup_taints: Vec<Taint>,
    /// Requirements on the labels of the node, such as instance types, zones and capacity types.
    #[schemars(schema_with = "schema::claim_requirements")]
    pub requirements: Vec<Requirement>,
    /// Minimum resources of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Reference to the node class of the node.
    pub node_class_ref: NodeClassRef,
    /// Maximum duration of the drain, after which the remaining pods are deleted, even if PodDisruptionBudgets or
    /// do-not-disrupt protect them. Unset: no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::DURATION))]
    pub termination_grace_period: Option<GoDuration>,
    /// Maximum age of the node, after which it is removed. Never: no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::NILLABLE_DURATION), extend("default" = "720h"))]
    pub expire_after: Option<NillableDuration>,
}

impl NodeClaim {
    /// Whether the node is drained and its instance is being terminated.
    #[must_use]
    pub fn is_instance_terminating(&self) -> bool {
        self.true_condition(condition::node_claim::INSTANCE_TERMINATING).is_some()
    }

    /// The conditions of the status.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    /// The condition with this name, if it is true, regardless of its observed generation.
    #[must_use]
    pub fn true_condition(&self, name: &str) -> Option<&Condition> {
        condition::get_true(self.conditions(), name)
    }

    /// Sets a condition at the time `now`, and recomputes `Ready`.
    pub fn set_condition(
        &mut self,
        now: Timestamp,
        name: &str,
        status: condition::Status,
        reason: &str,
        message: &str,
    ) {
        let moment = condition::Moment::of(&self.metadata, now);
        let conditions = &mut self.status.get_or_insert_default().conditions;
        condition::node_claim::CONDITIONS.set(conditions, moment, name, status, reason, message);
    }

    /// Name of the NodePool; empty if the claim has none.
    #[must_use]
    pub fn node_pool(&self) -> &str {
        self.metadata.labels.as_ref().and_then(|labels| labels.get(label::NODE_POOL)).map_or("", String::as_str)
    }

    /// Name of the claim's Node, once it exists.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.status.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The instance, as its provider names it, once it is launched.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        self.status.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The id of the EC2 instance, `i-...`, once it is launched.
    #[must_use]
    pub fn instance_id(&self) -> Option<&str> {
        self.provider_id().and_then(instance_id)
    }

    /// Whether the node has been initialized.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.true_condition(condition::node_claim::INITIALIZED).is_some()
    }

    /// The price at which the launched claim counts against limits, if it is recorded and readable.
    #[must_use]
    pub fn price(&self) -> Option<MicroUsdPerHour> {
        MicroUsdPerHour::parse_usd(self.metadata.annotations.as_ref()?.get(annotation::USD_PER_HOUR)?).ok()
    }
}

impl NodeClaimSpec {
    /// Age at which the node expires.
    #[must_use]
    pub fn expire_after(&self) -> NillableDuration {
        self.expire_after.clone().unwrap_or_else(default_expire_after)
    }
}

impl From<&NodeClaimTemplateSpec> for NodeClaimSpec {
    /// Creates a claim from the template of its pool, without resource requests.
    fn from(template: &NodeClaimTemplateSpec) -> Self {
        Self {
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
            requirements: template.requirements.clone(),
            resources: None,
            node_class_ref: template.node_class_ref.clone(),
            termination_grace_period: template.termination_grace_period.clone(),
            expire_after: template.expire_after.clone(),
        }
    }
}

/// What a node must at least have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// Total requests of the pods that the node is launched for, including DaemonSets.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub requests: ResourceList,
}

/// Observed state of the claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// Name of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Provider id of the instance: aws:///ZONE/INSTANCE_ID.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Id of the instance's image.
    #[serde(rename = "imageID", default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// Total resources of the node.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub capacity: ResourceList,
    /// Resources of the node that are available to pods.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocatable: ResourceList,
    /// When a pod was last added to or removed from the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_pod_event_time: Option<Time>,
    /// Conditions of the claim.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::claim_conditions")]
    pub conditions: Vec<Condition>,
}

/// The EC2 instance id in the provider id `aws:///zone/i-...`; `None` for other providers.
#[must_use]
pub fn instance_id(provider_id: &str) -> Option<&str> {
    provider_id.rsplit('/').next().filter(|id| id.starts_with("i-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_set_for_the_generation_of_the_claim() {
        let mut claim = NodeClaim::new("a", NodeClaimSpec::default());
        claim.metadata.generation = Some(3);
        let status = condition::Status::True;
        claim.set_condition(Timestamp::UNIX_EPOCH, condition::node_claim::DRIFTED, status, "Why", "text");
        let set = claim.true_condition(condition::node_claim::DRIFTED).unwrap();
        assert_eq!((set.observed_generation, set.reason.as_str(), set.message.as_str()), (Some(3), "Why", "text"));
        assert!(condition::get(claim.conditions(), condition::READY).is_some());
    }

    #[test]
    fn a_claim_tells_its_node_pool() {
        let mut claim = NodeClaim::new("a", NodeClaimSpec::default());
        assert_eq!(claim.node_pool(), "");
        claim.metadata.labels = Some([(label::NODE_POOL.to_owned(), "general".to_owned())].into());
        assert_eq!(claim.node_pool(), "general");
    }

    #[test]
    fn instance_id_is_the_last_path_segment() {
        assert_eq!(instance_id("aws:///us-west-2a/i-0abc"), Some("i-0abc"));
        assert_eq!(instance_id("kwok://node"), None);
    }
}
