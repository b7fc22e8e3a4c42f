//! Kubernetes custom resources: NodePool, NodeClaim, NodeOverlay and EC2NodeClass of Karpenter, and CapacityBuffer and
//! CapacityQuota of Cluster Autoscaler, structurally the same as there, so that users need no changes. There is one
//! difference: an EC2NodeClass may omit `amiSelectorTerms`. In this case `amiFamily` is required and selects the newest
//! image of that family.
//!
//! The crate defines schema and validation of these objects, status conditions, drift hashes and disruption budgets. It
//! reads no clock and does no I/O.
#![expect(clippy::duplicated_attributes, reason = "each column in a derive has a type and a path, as others have")]
#![deny(clippy::indexing_slicing)]

pub mod budget;
pub mod capacity_buffer;
pub mod capacity_quota;
pub mod condition;
pub mod crd;
pub mod duration;
pub mod ec2_node_class;
pub mod hash;
pub mod kubelet;
pub mod node_claim;
pub mod node_overlay;
pub mod node_pool;
pub mod pod;
pub mod requirement;
mod schema;
pub mod taint;
pub mod validation;

pub use capacity_buffer::{CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus};
pub use capacity_quota::{CapacityQuota, CapacityQuotaSpec, CapacityQuotaStatus};
pub use duration::{GoDuration, NillableDuration};
pub use ec2_node_class::{AmiFamily, EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
pub use kubelet::KubeletConfiguration;
pub use node_claim::{NodeClaim, NodeClaimSpec, NodeClaimStatus};
pub use node_overlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
pub use node_pool::{NodePool, NodePoolSpec, NodePoolStatus};
pub use pod::{Pod, PodPhase, SharedParts, needs_claim, volume_claims};
pub use requirement::{Operator, Requirement};
pub use taint::{Taint, TaintEffect};
pub use validation::{FieldError, Validate};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Quantities by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Names the node class of a pool or a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassRef {
    /// API group of the node class, such as karpenter.k8s.aws.
    #[schemars(regex(pattern = schema::pattern::NO_SLASH), extend("x-kubernetes-validations" = schema::not_empty("group")))]
    pub group: String,
    /// Kind of the node class, such as EC2NodeClass.
    #[schemars(extend("x-kubernetes-validations" = schema::not_empty("kind")))]
    pub kind: String,
    /// Name of the node class.
    #[schemars(extend("x-kubernetes-validations" = schema::not_empty("name")))]
    pub name: String,
}

impl NodeClassRef {
    /// Whether the node class is one of AWS. A misspelled group or kind alone counts as AWS, so that the mistake is
    /// reported instead of ignored.
    #[must_use]
    pub fn is_ec2(&self) -> bool {
        self.group == "karpenter.k8s.aws" || self.kind == "EC2NodeClass"
    }

    /// Whether this refers to an EC2NodeClass. NodeClaims with any other reference belong to another provider.
    #[must_use]
    pub fn is_ec2_node_class(&self) -> bool {
        self.group == "karpenter.k8s.aws" && self.kind == "EC2NodeClass"
    }
}

/// Deserializes `null`, which YAML uses for a key without a value, as the default.
pub(crate) fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
