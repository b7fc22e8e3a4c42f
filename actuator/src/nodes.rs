//! Facts of Nodes that several controllers need.

use k8s_openapi::api::core::v1::Node;

/// Whether the kubelet reports the Node as Ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
