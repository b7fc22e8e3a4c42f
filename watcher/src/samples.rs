//! Objects of snapshots for tests.

use plimsoll_model::costs::NodeCosts;
use plimsoll_model::snapshot::{Node, NodePool};
use serde_json::json;

/// A node in service.
pub(crate) fn node(name: &str, pool: &str) -> Node {
    serde_json::from_value(json!({
        "name": name, "node_claim": name, "node_pool": pool, "state": "Initialized", "labels": {}, "taints": [],
        "allocatable": {}, "limit_usage": {}, "ready": true, "cordoned": false, "deleting": false,
        "do_not_disrupt": false, "created": 0, "expires": null, "idle_since": null, "drifted": null,
        "termination_grace_period": null,
    }))
    .unwrap()
}

/// A pool that consolidates at once.
pub(crate) fn pool(name: &str) -> NodePool {
    serde_json::from_value(json!({
        "name": name, "weight": 0, "labels": {}, "taints": [], "startup_taints": [], "requirements": [], "limits": {},
        "replicas": null, "node_class": "default", "catalog": null, "not_ready": null, "deleting": false,
        "disruption": {"policy": "WhenEmptyOrUnderutilized", "consolidate_after": 0, "allowed": {},
            "next_budget_change": null},
        "on_demand": null, "overlays": [], "costs": NodeCosts::default(),
    }))
    .unwrap()
}
