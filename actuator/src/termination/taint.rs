//! The marks on a Node that is being removed.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use plimsoll_model::names::{label, taint};

/// Value of the label that keeps a node out of load balancers, as Karpenter sets it.
const EXCLUDED_BY: &str = "karpenter";

/// The node as no new pod comes to it, and no load balancer sends to it.
pub(super) fn closed(node: &mut Node) {
    taint_disrupted(node);
    node.labels_mut().insert(label::EXCLUDE_FROM_LOAD_BALANCERS.to_owned(), EXCLUDED_BY.to_owned());
}

/// The node with the taint of one that is being removed, in place of any with another effect.
pub(crate) fn taint_disrupted(node: &mut Node) {
    let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
    if !is_disrupted(taints) {
        taints.retain(|it| it.key != taint::DISRUPTED);
        taints.push(Taint {
            key: taint::DISRUPTED.to_owned(),
            value: None,
            effect: "NoSchedule".to_owned(),
            time_added: None,
        });
    }
}

/// Whether the taint of a node that is being removed is there.
pub(crate) fn is_disrupted(taints: &[Taint]) -> bool {
    taints.iter().any(|it| it.key == taint::DISRUPTED && it.effect == "NoSchedule")
}
