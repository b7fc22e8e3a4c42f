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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OTHER: (&str, &str) = ("dedicated", "NoSchedule");

    fn node(taints: &[(&str, &str)]) -> Node {
        let taints: Vec<_> = taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).unwrap()
    }

    #[test]
    fn one_disruption_taint_and_a_label_keep_pods_and_traffic_away() {
        let disrupted = (taint::DISRUPTED, "NoSchedule");
        let cases = [
            (node(&[OTHER]), false),
            (node(&[OTHER, (taint::DISRUPTED, "NoExecute")]), false),
            (node(&[OTHER, disrupted]), true),
        ];
        for (mut node, was_disrupted) in cases {
            assert_eq!(is_disrupted(taints(&node)), was_disrupted, "{node:?}");
            taint_and_exclude(&mut node);
            let after: Vec<(&str, &str)> = taints(&node).iter().map(|it| (&*it.key, &*it.effect)).collect();
            assert_eq!(after, [OTHER, disrupted]);
            let excluded = node.labels().get(label::EXCLUDE_FROM_LOAD_BALANCERS);
            assert_eq!(excluded.map(String::as_str), Some("karpenter"));
        }
    }
}
