use super::*;
use serde_json::json;

/// A claim of a pool with these conditions.
fn claim(pool: &str, conditions: &[&str]) -> Arc<NodeClaim> {
    let is_true = |kind: &&str| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "",
            "lastTransitionTime": "2026-01-05T00:00:00Z"})
    };
    let claim = json!({
        "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": pool}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        },
        "status": {"conditions": conditions.iter().map(is_true).collect::<Vec<_>>()},
    });
    Arc::new(serde_json::from_value(claim).unwrap())
}

#[test]
fn nodes_in_service_are_initialized_and_not_being_terminated() {
    let claims = [
        claim("a", &["Launched", "Registered", "Initialized"]),
        claim("a", &["Initialized", "Drifted"]),
        claim("a", &["Launched", "Registered"]),
        claim("a", &["Initialized", "InstanceTerminating"]),
        claim("b", &["Initialized"]),
        claim("c", &[]),
    ];
    assert_eq!(in_service(&claims), [("a", 2), ("b", 1)].into());
}
