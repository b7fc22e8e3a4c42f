//! Objects of snapshots for tests.

use plimsoll_model::costs::NodeCosts;
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodState};
use plimsoll_model::time::Timestamp;
use serde_json::json;

/// A pending pod in namespace `shop`.
pub(crate) fn pod(uid: &str) -> Pod {
    Pod {
        uid: uid.into(),
        namespace: "shop".to_owned(),
        name: uid.to_owned(),
        shape: "s".into(),
        state: PodState::Pending,
        created: Timestamp(0),
        stays_with_node: false,
        terminating: false,
        returns: false,
        do_not_disrupt_until: None,
        eviction_cost_milli: 1000,
        pod_disruption_budgets: Vec::new(),
        buffer: None,
    }
}

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
