//! Facts of Nodes that several controllers need.

use k8s_openapi::api::core::v1::{Node, Taint};
use plimsoll_api::node_claim;
pub(crate) use plimsoll_snapshot::is_ready;

/// The instance of the Node, as its provider names it.
pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// The EC2 instance of the Node.
pub(crate) fn instance_id(node: &Node) -> Option<&str> {
    provider_id(node).and_then(node_claim::instance_id)
}

/// The taints of the Node.
pub(crate) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Puts a taint without value on the Node, in place of any with the same key.
pub(crate) fn set_taint(node: &mut Node, key: &str, effect: &str) {
    let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
    taints.retain(|taint| taint.key != key);
    taints.push(Taint { key: key.to_owned(), value: None, effect: effect.to_owned(), time_added: None });
}

/// Removes the taints with this key from the Node.
pub(crate) fn remove_taint(node: &mut Node, key: &str) {
    if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|taint| taint.key != key);
    }
}
