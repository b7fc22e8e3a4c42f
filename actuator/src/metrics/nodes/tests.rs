use crate::metrics::tests::{Fixture, NOW, at, claim, node, object, pod};
use serde_json::json;

const GIB: f64 = 1_073_741_824.0;

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let mut daemon = pod("agent", "a");
    daemon["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1"}]);
    let mut done = pod("job", "a");
    done["status"]["phase"] = json!("Succeeded");
    fixture.change(|view| {
        view.nodes = vec![object(node("a", "default")), object(node("b", ""))];
        view.claims = vec![object(claim("a", "default"))];
        view.pods = vec![object(pod("web", "a")), object(daemon), object(done), object(pod("new", ""))];
    });
    fixture
}

#[test]
fn resources_of_a_node_are_in_cores_and_bytes() {
    let fixture = fixture();
    let of = |name: &str, resource: &str| {
        fixture.value(&format!("karpenter_nodes_{name}"), &[("node_name", "a"), ("resource_type", resource)])
    };
    assert_eq!(of("allocatable", "cpu"), Some(1.93));
    assert_eq!(of("allocatable", "memory"), Some(7.0 * GIB));
    let overhead = of("system_overhead", "cpu").unwrap();
    assert!((overhead - 0.07).abs() < 1e-9, "{overhead}");
    // Two pods run: an ordinary one and one of a DaemonSet; the job has ended.
    assert_eq!((of("total_pod_requests", "cpu"), of("total_daemon_requests", "cpu")), (Some(0.5), Some(0.25)));
    assert_eq!((of("total_pod_requests", "pods"), of("total_daemon_requests", "pods")), (Some(2.0), Some(1.0)));
    assert_eq!(of("total_pod_limits", "memory"), Some(4.0 * GIB));
    assert_eq!(of("total_daemon_limits", "memory"), Some(2.0 * GIB));
    assert_eq!(of("total_pod_limits", "cpu"), None, "no pod has a limit of CPU");
}

#[test]
fn a_node_has_its_well_known_labels_and_no_others() {
    let fixture = fixture();
    let series = fixture.series("karpenter_nodes_current_lifetime_seconds");
    let (labels, age) = series.iter().find(|(labels, _)| labels["node_name"] == "a").unwrap();
    let expected = [
        ("arch", "amd64"),
        ("capacity_type", "spot"),
        ("instance_family", "m5"),
        ("instance_type", "m5.large"),
        ("managed", "true"),
        ("node_name", "a"),
        ("nodepool", "default"),
        ("phase", "Running"),
        ("zone", "us-west-2a"),
    ];
    let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(labels, expected);
    assert!((age - 3600.0).abs() < 1e-9, "created an hour ago: {age}");
    let unmanaged =
        fixture.value("karpenter_nodes_current_lifetime_seconds", &[("node_name", "b"), ("managed", "false")]);
    assert!(unmanaged.is_some(), "a node without claim");
}

#[test]
fn utilization_is_of_all_nodes() {
    let fixture = fixture();
    let cpu = fixture.value("karpenter_cluster_utilization_percent", &[("resource_type", "cpu")]).unwrap();
    assert!((cpu - 100.0 * 0.5 / 3.86).abs() < 1e-9, "{cpu}");
    fixture.change(|view| view.nodes.retain(|node| node.metadata.name.as_deref() == Some("b")));
    assert_eq!(fixture.value("karpenter_cluster_utilization_percent", &[("resource_type", "cpu")]), Some(0.0));
    assert_eq!(fixture.value("karpenter_nodes_allocatable", &[("node_name", "a"), ("resource_type", "cpu")]), None);
}

#[test]
fn nodes_that_come_and_go_are_counted_by_pool_and_zone() {
    let fixture = Fixture::new();
    let claim = object(claim("a", "default"));
    fixture.metrics.nodes.created(&claim);
    fixture.metrics.nodes.drained(&claim);
    let mut gone = node("a", "default");
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-02T11:58:20Z");
    fixture.metrics.nodes.terminated(&object(gone), at(NOW));
    let by_zone = [("nodepool", "default"), ("zone", "us-west-2a")];
    for name in ["karpenter_nodes_created_total", "karpenter_nodes_terminated_total"] {
        assert_eq!(fixture.value(name, &by_zone), Some(1.0), "{name}");
    }
    assert_eq!(fixture.value("karpenter_nodes_drained_total", &[("nodepool", "default")]), Some(1.0));
    let of_pool = ("nodepool", "default");
    let median = fixture.value("karpenter_nodes_termination_duration_seconds", &[of_pool, ("quantile", "0.5")]);
    assert_eq!(median, Some(100.0), "the only one took 100 s");
    let within = |le: &str| fixture.value("karpenter_nodes_lifetime_duration_seconds_bucket", &[of_pool, ("le", le)]);
    assert_eq!((within("1800"), within("3600")), (Some(0.0), Some(1.0)), "it lived for an hour");
}
