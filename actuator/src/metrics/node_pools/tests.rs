use crate::metrics::tests::{Fixture, catalog, claim, node, object, offering, pool};
use plimsoll_model::catalog::CapacityType;
use serde_json::json;

#[test]
fn usage_limit_and_cost_of_a_pool() {
    let fixture = Fixture::new();
    let mut limited = pool("default");
    limited["spec"]["limits"] = json!({"cpu": "10", "memory": "64Gi", "plimsoll.dev/usd-per-hour": "1.5"});
    let mut priced = claim("a", "default");
    priced["metadata"]["annotations"] = json!({"plimsoll.dev/usd-per-hour": "0.125"});
    let mut deleting = claim("c", "default");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-02T11:58:00Z");
    let mut unknown = claim("d", "default");
    unknown["metadata"]["labels"]["node.kubernetes.io/instance-type"] = json!("x9.huge");
    let mut unlaunched = claim("e", "default");
    unlaunched["status"]["providerID"] = json!("");
    fixture.change(|view| {
        view.pools = vec![object(limited), object(pool("other"))];
        view.nodes = vec![object(node("a", "default"))];
        view.claims = [priced, claim("b", "default"), deleting, unknown, unlaunched].map(object).into();
        view.catalogs = catalog(vec![
            offering("us-west-2a", CapacityType::Spot, 40_000, true),
            offering("us-west-2a", CapacityType::OnDemand, 96_000, true),
            offering("us-west-2b", CapacityType::Spot, 10_000, true),
        ]);
    });
    let of = |name: &str, resource: &str, pool: &str| {
        fixture.value(&format!("karpenter_nodepools_{name}"), &[("resource_type", resource), ("nodepool", pool)])
    };
    assert_eq!(
        (of("limit", "cpu", "default"), of("limit", "memory", "default")),
        (Some(10.0), Some(64.0 * 1024.0_f64.powi(3)))
    );
    assert_eq!(of("limit", "cpu", "other"), None);
    let usd = "plimsoll.dev/usd_per_hour";
    assert_eq!((of("limit", usd, "default"), of("usage", usd, "default")), (Some(1.5), Some(0.125)));
    // Claims a, b and d; c is being deleted and e has no instance.
    assert_eq!((of("usage", "cpu", "default"), of("usage", "nodes", "default")), (Some(6.0), Some(3.0)));
    assert_eq!((of("usage", "cpu", "other"), of("usage", "ephemeral_storage", "other")), (Some(0.0), Some(0.0)));
    let cost = |pool: &str| fixture.value("karpenter_nodepools_cost_total", &[("nodepool", pool)]);
    assert_eq!((cost("default"), cost("other")), (Some(0.12), Some(0.0)), "a, b and c until its instance is gone");
    let unpriced = fixture.value("plimsoll_actuator_nodepool_nodes_without_price", &[("nodepool", "default")]);
    assert_eq!(unpriced, Some(1.0));

    fixture.change(|view| view.pools.retain(|pool| pool.metadata.name.as_deref() == Some("other")));
    assert_eq!((cost("default"), of("usage", "cpu", "default")), (None, None), "the pool is gone");
}

#[test]
fn budgets_are_of_the_nodes_in_service() {
    let fixture = Fixture::new();
    let mut with_budgets = pool("default");
    with_budgets["spec"]["disruption"] = json!({"consolidateAfter": "0s", "budgets": [
        {"nodes": "50%"}, {"nodes": "0", "reasons": ["Drifted"]}]});
    let mut leaving = claim("d", "default");
    leaving["metadata"]["annotations"] = json!({"plimsoll.dev/removal": "{}"});
    fixture.change(|view| {
        view.pools = vec![object(with_budgets)];
        let mut terminating = claim("e", "default");
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-02T11:58:00Z");
        let condition = json!({"type": "InstanceTerminating", "status": "True", "reason": "r", "message": "",
            "lastTransitionTime": "2026-01-02T11:59:00Z"});
        terminating["status"]["conditions"].as_array_mut().unwrap().push(condition);
        let claims = [claim("a", "default"), claim("b", "default"), claim("c", "default"), leaving, terminating];
        view.claims = claims.map(object).into();
    });
    let of = |name: &str, reason: &str| {
        fixture.value(&format!("karpenter_nodepools_{name}"), &[("nodepool", "default"), ("reason", reason)])
    };
    assert_eq!((of("allowed_disruptions", "Empty"), of("allowed_disruptions", "Drifted")), (Some(2.0), Some(0.0)));
    for reason in ["Empty", "Underutilized", "Drifted"] {
        assert_eq!(of("nodes_consuming_budgets", reason), Some(1.0), "{reason}");
    }
}

#[test]
fn nodes_in_service_that_are_not_ready_consume_budgets() {
    let fixture = Fixture::new();
    let mut broken = node("a", "default");
    broken["status"]["conditions"][0]["status"] = json!("Unknown");
    let (mut starting, mut not_ready) = (claim("b", "default"), node("b", "default"));
    starting["status"]["conditions"][0]["status"] = json!("Unknown");
    not_ready["status"]["conditions"][0]["status"] = json!("False");
    fixture.change(|view| {
        view.pools = vec![object(pool("default"))];
        view.nodes = [broken, not_ready, node("c", "default")].map(object).into();
        view.claims = [claim("a", "default"), starting, claim("c", "default")].map(object).into();
    });
    let labels = [("nodepool", "default"), ("reason", "Empty")];
    assert_eq!(fixture.value("karpenter_nodepools_nodes_consuming_budgets", &labels), Some(1.0), "only node a");
}
