//! What a NodeClaim counts for, and what is shown of the sum. Pure functions.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::{NodeClaim, ResourceList};
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, label};
use plimsoll_model::quantity::parse_resources;
use plimsoll_model::resources::Resources;

/// Resources that are shown of every NodePool, even if its nodes have none.
const ALWAYS_SHOWN: [&str; 5] = ["cpu", "memory", "pods", "ephemeral-storage", NODES_RESOURCE];

/// The amounts of a list. An unreadable list, which the API server would reject, is empty.
pub(crate) fn amounts(list: &ResourceList) -> Resources {
    parse_resources(list.iter().map(|(name, amount)| (name.as_str(), amount.0.as_str()))).unwrap_or_default()
}

/// What is shown of the resources of a NodePool's nodes.
pub(crate) fn shown(sum: &Resources) -> Resources {
    let mut shown = sum.clone();
    ALWAYS_SHOWN.iter().for_each(|name| shown.set(name, sum.get(name)));
    shown
}

/// The capacity of an initialized Node, and its price. Before that, the claim's capacity fills in what the Node does
/// not report.
pub(crate) fn capacity(claim: &NodeClaim, node: Option<&Node>) -> Resources {
    let reported = node.and_then(|node| node.status.as_ref()?.capacity.as_ref()).map(amounts).unwrap_or_default();
    let mut capacity = reported.clone();
    let in_service = node.is_some_and(|node| node.labels().contains_key(label::INITIALIZED));
    if !in_service {
        let expected = claim.status.as_ref().map(|status| amounts(&status.capacity)).unwrap_or_default();
        for (name, amount) in expected.iter().filter(|(name, _)| reported.get(name) == 0) {
            capacity.set(name, amount);
        }
    }
    capacity.set(NODES_RESOURCE, 1);
    claim.price().iter().for_each(|price| capacity.set(USD_PER_HOUR_RESOURCE, price.0));
    capacity
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn initialized_node_reports_its_capacity_and_starting_node_the_claims() {
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"capacity": {"cpu": "4", "memory": "8Gi", "example.com/gpu": "1"}, "conditions": []},
        }))
        .unwrap();
        let node = |labels: serde_json::Value| -> Node {
            let status = json!({"capacity": {"cpu": "3", "memory": "7Gi"}});
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}, "status": status})).unwrap()
        };
        let gib = 1_i64 << 30;
        let expected = |cpu, memory, gpu: Option<i64>| {
            let mut all = Resources::from([("cpu", cpu), ("memory", memory * gib), ("nodes", 1)]);
            if let Some(gpu) = gpu {
                all.set("example.com/gpu", gpu);
            }
            all
        };
        assert_eq!(capacity(&claim, None), expected(4000, 8, Some(1)));
        assert_eq!(capacity(&claim, Some(&node(json!({})))), expected(3000, 7, Some(1)));
        let in_service = node(json!({"karpenter.sh/initialized": "true"}));
        assert_eq!(capacity(&claim, Some(&in_service)), expected(3000, 7, None));
    }

    /// Usage of a pool is compared with its limits, which may limit the price.
    #[test]
    fn a_claim_counts_its_price_if_it_is_recorded() {
        let claim = |annotations: serde_json::Value| -> NodeClaim {
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": "c", "annotations": annotations},
                "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            }))
            .unwrap()
        };
        assert_eq!(capacity(&claim(json!({})), None), Resources::from([(NODES_RESOURCE, 1)]));
        let priced = capacity(&claim(json!({"plimsoll.dev/usd-per-hour": "0.5"})), None);
        assert_eq!(priced, Resources::from([(NODES_RESOURCE, 1), (USD_PER_HOUR_RESOURCE, 500_000)]));
    }
}
