use super::PodWaits;
use crate::metrics::tests::{Fixture, NOW, at, claim, node, object, pod};
use plimsoll_api::Pod;
use plimsoll_model::plan::{Placement, Plan, PodRef};
use serde_json::json;
use std::sync::Arc;

#[test]
fn state_has_the_labels_of_pod_and_node() {
    let fixture = Fixture::new();
    let mut web = pod("web", "a");
    web["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "1"}]);
    fixture.change(|view| {
        view.nodes = vec![object(node("a", "default"))];
        view.claims = vec![object(claim("a", "default"))];
        view.pods = vec![object(web), object(pod("new", ""))];
    });
    let series = fixture.series("karpenter_pods_state");
    let of = |name: &str| series.iter().find(|(labels, _)| labels["name"] == name).unwrap();
    let (labels, value) = of("web");
    assert!((value - 1.0).abs() < 1e-9);
    for (name, value) in [
        ("namespace", "shop"),
        ("owner", "/apis/apps/v1/namespaces/shop/replicasets/web-1"),
        ("node", "a"),
        ("nodepool", "default"),
        ("zone", "us-west-2a"),
        ("arch", "amd64"),
        ("capacity_type", "spot"),
        ("instance_type", "m5.large"),
        ("phase", "Running"),
        ("scheduled", "true"),
        ("ready", "true"),
        ("managed", "true"),
    ] {
        assert_eq!(labels.get(name).map(String::as_str), Some(value), "{name}");
    }
    let (labels, _) = of("new");
    assert_eq!(
        (labels.get("node"), labels["phase"].as_str(), labels["scheduled"].as_str()),
        (None, "Pending", "false")
    );
}

#[test]
fn a_pending_pod_is_undecided_until_a_plan_has_it() {
    let fixture = Fixture::new();
    fixture.change(|view| view.pods = vec![object(pod("new", "")), object(pod("web", "a"))]);
    let age = |name: &str| fixture.value(&format!("karpenter_pods_{name}_time_seconds"), &[("name", "new")]);
    let undecided = "provisioning_scheduling_undecided";
    assert_eq!((age("unbound"), age("unstarted"), age(undecided)), (Some(60.0), Some(60.0), Some(60.0)));
    assert_eq!(age("provisioning_unbound"), None, "no plan yet");
    assert_eq!(fixture.series("karpenter_pods_unbound_time_seconds").len(), 1, "a pod that runs waits for nothing");

    let new = PodRef { name: "shop/new".to_owned(), uid: "pod-new".into() };
    let plan = Plan { placements: vec![Placement { node: "a".into(), pods: vec![new] }], ..Plan::default() };
    let (created, planned) = (at("2026-01-02T11:59:00Z"), at("2026-01-02T11:59:45Z"));
    assert!(fixture.metrics.pods.has_news(&plan));
    fixture.metrics.pods.planned(&plan, planned, |uid| (uid == "pod-new").then_some(created));
    fixture.metrics.pods.planned(&plan, at(NOW), |_| Some(created));
    assert!(!fixture.metrics.pods.has_news(&plan));
    assert_eq!((age("provisioning_unbound"), age("provisioning_unstarted")), (Some(15.0), Some(15.0)));
    assert_eq!(age(undecided), None);
    let sum = fixture.value("karpenter_pods_scheduling_decision_duration_seconds_sum", &[]);
    assert_eq!(sum, Some(45.0), "only the first plan counts");

    fixture.change(|view| view.pods.clear());
    assert_eq!(age("unbound"), None, "the pod is gone");
}

fn pass(waits: &mut PodWaits, fixture: &Fixture, pods: &[Arc<Pod>], now: &str) {
    waits.pass(&fixture.metrics.pods, pods, at(now));
}

fn sums(fixture: &Fixture) -> [Option<f64>; 4] {
    ["pods_startup", "pods_bound", "pods_provisioning_startup", "pods_provisioning_bound"]
        .map(|name| fixture.value(&format!("karpenter_{name}_duration_seconds_sum"), &[]))
}

#[test]
fn waits_come_from_the_times_in_the_pod_not_from_the_passes() {
    let (fixture, mut waits) = (Fixture::new(), PodWaits::default());
    let old = object(pod("old", "a"));
    pass(&mut waits, &fixture, &[Arc::clone(&old), object(pod("web", ""))], "2026-01-02T11:59:05Z");
    assert_eq!(sums(&fixture), [Some(0.0); 4]);
    let web = PodRef { name: "shop/web".to_owned(), uid: "pod-web".into() };
    let plan = Plan { placements: vec![Placement { node: "a".into(), pods: vec![web] }], ..Plan::default() };
    fixture.metrics.pods.planned(&plan, at("2026-01-02T11:59:10Z"), |_| Some(at("2026-01-02T11:59:00Z")));
    pass(&mut waits, &fixture, &[Arc::clone(&old), object(pod("web", "a"))], "2026-01-02T12:00:00Z");
    // Created at :00, planned at :10, bound at :20, ready at :50.
    assert_eq!(sums(&fixture), [Some(50.0), Some(20.0), Some(40.0), Some(10.0)]);
    pass(&mut waits, &fixture, &[old, object(pod("web", "a"))], "2026-01-02T12:00:05Z");
    assert_eq!(sums(&fixture), [Some(50.0), Some(20.0), Some(40.0), Some(10.0)], "nothing counts twice");
}

#[test]
fn a_pod_that_starts_between_two_passes_counts_once_and_one_from_before_the_term_does_not() {
    let (fixture, mut waits) = (Fixture::new(), PodWaits::default());
    pass(&mut waits, &fixture, &[object(pod("old", "a"))], "2026-01-02T11:59:00.300Z");
    let mut quick = pod("quick", "a");
    quick["metadata"]["creationTimestamp"] = json!("2026-01-02T11:59:00Z");
    let pods = [object(pod("old", "a")), object(quick)];
    for now in ["2026-01-02T11:59:55.300Z", "2026-01-02T11:59:55.900Z", "2026-01-02T12:00:00Z"] {
        pass(&mut waits, &fixture, &pods, now);
    }
    // `old` has the same creation second as the first pass, in which it already ran.
    assert_eq!(fixture.value("karpenter_pods_startup_duration_seconds_count", &[]), Some(1.0));
}

#[test]
fn pods_that_leave_are_counted() {
    let fixture = Fixture::new();
    let mut empty = claim("a", "default");
    empty["status"]["conditions"] = json!([{"type": "DisruptionReason", "status": "True", "reason": "Underutilized",
        "message": "", "lastTransitionTime": "2026-01-02T11:10:00Z"}]);
    let claim: Arc<plimsoll_api::NodeClaim> = object(empty);
    fixture.metrics.pods.eviction(200);
    fixture.metrics.pods.eviction(429);
    fixture.metrics.pods.drained(Some(&claim));
    fixture.metrics.pods.drained(None);
    let evictions = |code: &str| fixture.value("karpenter_pods_eviction_requests_total", &[("code", code)]);
    assert_eq!((evictions("200"), evictions("429"), evictions("500")), (Some(1.0), Some(1.0), None));
    let drained = |reason: &str| fixture.value("karpenter_pods_drained_total", &[("reason", reason)]);
    assert_eq!((drained("underutilized"), drained("")), (Some(1.0), Some(1.0)));
}
