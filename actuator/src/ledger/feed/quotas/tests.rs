use super::*;
use plimsoll_model::resources::Resources;
use serde_json::{Value, json};

fn claim(status: &Value) -> Arc<NodeClaim> {
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        },
        "status": status,
    });
    Arc::new(serde_json::from_value(claim).unwrap())
}

fn node(name: &str, labels: &Value, spec: &Value) -> Arc<Node> {
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"capacity": {"cpu": "2", "memory": "1Gi"}},
    });
    Arc::new(serde_json::from_value(node).unwrap())
}

#[test]
fn nodes_that_a_claim_is_or_will_be_for_are_left_to_the_claim() {
    let claims = [
        claim(&json!({"nodeName": "by-name"})),
        claim(&json!({"providerID": "aws:///zone-a/i-1"})),
        claim(&json!({"nodeName": "", "providerID": ""})),
    ];
    let unregistered = json!({"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]});
    let nodes = [
        node("by-name", &json!({}), &json!({})),
        node("by-instance", &json!({}), &json!({"providerID": "aws:///zone-a/i-1"})),
        node("unregistered", &json!({}), &unregistered),
        node("starting", &json!({"karpenter.sh/nodepool": "default"}), &json!({})),
        // Its claim is gone, and the node is still there.
        node("left", &json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true"}), &json!({})),
        node("foreign", &json!({"team": "a"}), &json!({"providerID": "aws:///zone-a/i-2"})),
    ];
    let unmanaged = unmanaged_nodes(&claims, &nodes);
    assert_eq!(unmanaged.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["foreign", "left"]);
    let foreign = &unmanaged[&NodeName("foreign".to_owned())];
    assert_eq!(foreign.labels, [("team".to_owned(), "a".to_owned())].into());
    assert_eq!(foreign.capacity, Resources::from([("cpu", 2000), ("memory", 1 << 30), ("nodes", 1)]));
}

#[test]
fn an_invalid_quota_is_reported_once_and_again_when_its_problem_changes() {
    let quota = |cpu: &str| -> Arc<ApiQuota> {
        let quota = json!({"metadata": {"name": "q"}, "spec": {"limits": {"resources": {"cpu": cpu}}}});
        Arc::new(serde_json::from_value(quota).unwrap())
    };
    let mut reports = InvalidQuotas::default();
    let mut reported = |cpu: &str| reports.report(read(&[quota(cpu)]).1).len();
    let steps = ["500m", "500m", "700m", "1", "1", "700m"];
    assert_eq!(steps.map(&mut reported), [1, 0, 1, 0, 0, 1]);
}
