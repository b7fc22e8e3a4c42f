//! Taints and labels of a Node that is being removed.

use crate::nodes::{set_taint, taints};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use plimsoll_model::names::{label, taint};

/// Value of the label that excludes a node from load balancers, as Karpenter sets it.
const EXCLUDED_BY: &str = "karpenter";

/// Keeps new pods and load balancer traffic away from the node.
pub(super) fn taint_and_exclude(node: &mut Node) {
    taint_disrupted(node);
    node.labels_mut().insert(label::EXCLUDE_FROM_LOAD_BALANCERS.to_owned(), EXCLUDED_BY.to_owned());
}

/// Adds the disruption taint, in place of any with the same key and another effect.
pub(crate) fn taint_disrupted(node: &mut Node) {
    if !is_disrupted(taints(node)) {
        set_taint(node, taint::DISRUPTED, "NoSchedule");
    }
}

/// Whether the disruption taint is present.
pub(crate) fn is_disrupted(taints: &[Taint]) -> bool {
    taints.iter().any(|it| it.key == taint::DISRUPTED && it.effect == "NoSchedule")
}
