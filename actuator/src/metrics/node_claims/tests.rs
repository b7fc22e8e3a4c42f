use crate::metrics::tests::{Fixture, NOW, at, claim, object, pool};
use plimsoll_api::{NodeClaim, NodePool};
use plimsoll_model::snapshot::DisruptionReason;
use serde_json::json;
use std::sync::Arc;

#[test]
fn created_claims_have_the_reason_of_what_they_replace() {
    let fixture = Fixture::new();
    let claim: Arc<NodeClaim> = object(claim("a", "default"));
    fixture.metrics.claims.created(&claim, None);
    fixture.metrics.claims.created(&claim, Some(DisruptionReason::Underutilized));
    let created = |reason: &str| {
        let labels = [("reason", reason), ("nodepool", "default"), ("min_values_relaxed", "false")];
        fixture.value("karpenter_nodeclaims_created_total", &labels)
    };
    assert_eq!((created("provisioned"), created("underutilized"), created("drifted")), (Some(1.0), Some(1.0), None));
}

#[test]
fn disruptions_have_policy_and_mode() {
    let fixture = Fixture::new();
    let with_period = |period: Option<&str>| -> Arc<NodeClaim> {
        let mut claim = claim("a", "default");
        if let Some(period) = period {
            claim["spec"]["terminationGracePeriod"] = json!(period);
        }
        object(claim)
    };
    let mut balanced = pool("default");
    balanced["spec"]["disruption"] = json!({"consolidateAfter": "0s", "consolidationPolicy": "Balanced"});
    let (balanced, plain): (Arc<NodePool>, Arc<NodePool>) = (object(balanced), object(pool("default")));
    let metrics = &fixture.metrics.claims;
    metrics.disrupted(&with_period(None), "underutilized", Some(&balanced), 3);
    metrics.disrupted(&with_period(Some("5m")), "empty", Some(&plain), 0);
    metrics.disrupted(&with_period(Some("0s")), "drifted", Some(&balanced), 2);
    for (reason, policy, mode, pods) in [
        ("underutilized", "balanced", "graceful", 3.0),
        ("empty", "when_empty_or_underutilized", "eventual", 0.0),
        ("drifted", "", "forceful", 2.0),
    ] {
        let labels = [
            ("reason", reason),
            ("nodepool", "default"),
            ("capacity_type", "spot"),
            ("consolidation_policy", policy),
            ("termination_mode", mode),
        ];
        assert_eq!(fixture.value("karpenter_nodeclaims_disrupted_total", &labels), Some(1.0), "{reason}");
        assert_eq!(fixture.value("karpenter_pods_disruption_initiated_total", &labels), Some(pods), "{reason}");
    }
}

#[test]
fn repairs_are_counted_by_condition_and_image() {
    let fixture = Fixture::new();
    let mut broken = claim("a", "default");
    broken["status"]["imageID"] = json!("ami-1");
    fixture.metrics.claims.unhealthy_disrupted(&object(broken), "AcceleratedHardwareReady");
    let labels = [
        ("condition", "accelerated_hardware_ready"),
        ("nodepool", "default"),
        ("capacity_type", "spot"),
        ("image_id", "ami-1"),
    ];
    assert_eq!(fixture.value("karpenter_nodeclaims_unhealthy_disrupted_total", &labels), Some(1.0));
}

#[test]
fn terminations_are_measured_from_deletion_and_from_the_call() {
    let fixture = Fixture::new();
    let mut gone = claim("a", "default");
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-02T11:58:00Z");
    gone["status"]["conditions"] = json!([{"type": "InstanceTerminating", "status": "True", "reason": "r",
        "message": "", "lastTransitionTime": "2026-01-02T11:59:20Z"}]);
    fixture.metrics.claims.terminated(&object(gone), at(NOW));
    // Without a call, for an instance that was never launched.
    fixture.metrics.claims.terminated(&object(claim("b", "default")), at(NOW));
    let labels = [("nodepool", "default"), ("capacity_type", "spot"), ("zone", "us-west-2a")];
    assert_eq!(fixture.value("karpenter_nodeclaims_terminated_total", &labels), Some(2.0));
    let sum = |name: &str| {
        fixture.value(&format!("karpenter_nodeclaims_{name}_duration_seconds_sum"), &[("nodepool", "default")])
    };
    assert_eq!((sum("termination"), sum("instance_termination")), (Some(120.0), Some(40.0)));
}

#[test]
fn registrations_are_measured_from_the_launch_by_type() {
    let fixture = Fixture::new();
    let mut launched = claim("a", "default");
    launched["metadata"]["labels"]["node.kubernetes.io/instance-type"] = json!("m5.metal");
    launched["status"]["conditions"] = json!([{"type": "Launched", "status": "True", "reason": "r",
        "message": "", "lastTransitionTime": "2026-01-02T11:50:00Z"}]);
    fixture.metrics.claims.registered(&object(launched.clone()), at(NOW));
    launched["status"]["conditions"][0]["status"] = json!("False");
    fixture.metrics.claims.registered(&object(launched), at(NOW));
    let value = |name: &str| {
        fixture.value(&format!("plimsoll_actuator_node_registration_seconds_{name}"), &[("instance_type", "m5.metal")])
    };
    assert_eq!((value("sum"), value("count")), (Some(600.0), Some(1.0)), "a claim that was not launched says nothing");
}
