use super::ConditionChanges;
use crate::metrics::tests::{Fixture, at, claim, node, object, pool};
use serde_json::{Value, json};

fn claim_with(version: &str, registered: &str, since: &str) -> Value {
    let mut claim = claim("a", "default");
    claim["metadata"]["resourceVersion"] = json!(version);
    claim["status"]["conditions"] = json!([{"type": "Registered", "status": registered, "reason": "Because",
        "message": "", "lastTransitionTime": since}]);
    claim
}

const POOL: (&str, &str) = ("karpenter_sh_nodepool", "default");

#[test]
fn conditions_are_shown_with_their_age() {
    let fixture = Fixture::new();
    let mut with_condition = pool("default");
    with_condition["status"] = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Because",
        "message": "", "lastTransitionTime": "2026-01-02T11:59:00Z"}]});
    fixture.change(|view| {
        view.claims = vec![object(claim_with("1", "Unknown", "2026-01-02T11:55:00Z"))];
        view.nodes = vec![object(node("a", "default"))];
        view.pools = vec![object(with_condition)];
    });
    let labels = [("name", "a"), ("type", "Registered"), ("status", "Unknown"), ("reason", "Because"), POOL];
    assert_eq!(fixture.value("operator_nodeclaim_status_condition_count", &labels), Some(1.0));
    assert_eq!(fixture.value("operator_nodeclaim_status_condition_current_status_seconds", &labels), Some(300.0));
    let class = ("karpenter_k8s_aws_ec2nodeclass", "default");
    assert_eq!(fixture.value("operator_nodeclaim_status_condition_count", &[class]), Some(1.0));
    let ready = [("name", "a"), ("type", "Ready"), ("status", "True"), POOL];
    assert_eq!(fixture.value("operator_node_status_condition_current_status_seconds", &ready), Some(1800.0));
    let of_pool = [("name", "default"), ("type", "Ready"), ("status", "False")];
    assert_eq!(fixture.value("operator_nodepool_status_condition_current_status_seconds", &of_pool), Some(60.0));

    fixture.change(|view| view.claims = vec![object(claim_with("2", "True", "2026-01-02T11:59:00Z"))]);
    assert_eq!(fixture.value("operator_nodeclaim_status_condition_count", &labels), None, "the former state is gone");
    assert_eq!(fixture.series("operator_nodeclaim_status_condition_count").len(), 1);
}

#[test]
fn transitions_and_terminations_are_counted_once() {
    let (fixture, mut changes) = (Fixture::new(), ConditionChanges::default());
    let mut pass = |claim: Option<Value>| {
        fixture.change(|view| {
            view.claims = claim.map(object).into_iter().collect();
            changes.pass(&fixture.metrics.conditions, view);
        });
    };
    let transitions = |status: &str| {
        let labels = [("type", "Registered"), ("status", status), POOL];
        fixture.value("operator_nodeclaim_status_condition_transitions_total", &labels)
    };
    pass(Some(claim_with("1", "Unknown", "2026-01-02T11:50:00Z")));
    assert_eq!(transitions("Unknown"), None, "what a new leader finds is no change");
    pass(Some(claim_with("2", "Unknown", "2026-01-02T11:50:00Z")));
    pass(Some(claim_with("3", "True", "2026-01-02T11:50:45Z")));
    pass(Some(claim_with("3", "True", "2026-01-02T11:50:45Z")));
    assert_eq!((transitions("True"), transitions("Unknown")), (Some(1.0), None));
    let labels = [("type", "Registered"), ("status", "Unknown"), POOL];
    let sum = fixture.value("operator_nodeclaim_status_condition_transition_seconds_sum", &labels);
    assert_eq!(sum, Some(45.0), "it was Unknown for 45 s");

    let mut deleted = claim_with("4", "True", "2026-01-02T11:50:45Z");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-02T11:58:30Z");
    pass(Some(deleted));
    assert_eq!(fixture.value("operator_nodeclaim_termination_current_time_seconds", &[("name", "a")]), Some(90.0));
    pass(None);
    pass(None);
    assert_eq!(fixture.value("operator_nodeclaim_termination_duration_seconds_count", &[POOL]), Some(1.0));
    assert_eq!(fixture.value("operator_nodeclaim_termination_duration_seconds_sum", &[POOL]), Some(90.0));
    assert_eq!(fixture.series("operator_nodeclaim_termination_current_time_seconds"), Vec::new());
    assert_eq!(at("2026-01-02T12:00:00Z"), fixture.change(|view| view.now), "the time stood still");
}

#[test]
fn an_object_that_came_after_the_first_pass_counts_its_conditions() {
    let (fixture, mut changes) = (Fixture::new(), ConditionChanges::default());
    fixture.change(|view| changes.pass(&fixture.metrics.conditions, view));
    fixture.change(|view| {
        view.claims = vec![object(claim_with("1", "Unknown", "2026-01-02T11:50:00Z"))];
        changes.pass(&fixture.metrics.conditions, view);
    });
    let labels = [("type", "Registered"), ("status", "Unknown"), ("reason", "Because"), POOL];
    assert_eq!(fixture.value("operator_nodeclaim_status_condition_transitions_total", &labels), Some(1.0));
    assert_eq!(fixture.series("operator_nodeclaim_status_condition_transition_seconds_sum"), Vec::new());
}
