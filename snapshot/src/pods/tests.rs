use super::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn snapshot(source: Source, pod: Value) -> (plimsoll_model::snapshot::Snapshot, Vec<Problem>) {
    let objects = Objects {
        pods: vec![Arc::new(serde_json::from_value(pod).unwrap())],
        nodes: vec![serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()],
        ..Objects::default()
    };
    crate::build(&objects, &Extra { source, ..Extra::default() })
}

fn pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1"},
        "spec": {"containers": [{"name": "app"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    change(&mut pod);
    pod
}

#[test]
fn only_unschedulable_pods_are_pending_in_a_cluster() {
    let unbound = pod(|_| {});
    assert_eq!(snapshot(Source::Cluster, unbound).0.pods[0].state, PodState::Pending);
    type Case = (&'static str, fn(&mut Value), &'static str);
    let table: [Case; 7] = [
        ("not looked at", |pod| pod["status"] = json!({}), "kube-scheduler has not found it unschedulable"),
        (
            "nominated",
            |pod| pod["status"]["nominatedNodeName"] = json!("gone"),
            "kube-scheduler has nominated a node for it that is not known",
        ),
        ("gated", |pod| pod["spec"]["schedulingGates"] = json!([{"name": "later"}]), "it has scheduling gates"),
        (
            "terminating",
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            "it is being deleted",
        ),
        (
            "of a DaemonSet",
            |pod| {
                pod["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "x"}]);
            },
            "it belongs to one node: its owner is a DaemonSet or a Node",
        ),
        (
            "mirror",
            |pod| pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"}),
            "it belongs to one node: its owner is a DaemonSet or a Node",
        ),
        (
            "avoids pools",
            |pod| {
                pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}]}}});
            },
            "its node affinity excludes every NodePool",
        ),
    ];
    for (name, change, reason) in table {
        let (snapshot, problems) = snapshot(Source::Cluster, pod(change));
        assert_eq!((snapshot.pods.len(), problems.len()), (0, 0), "{name}");
        assert_eq!(snapshot.ignored[0].reason, reason, "{name}");
    }
}

/// Its other terms may match nodes of pools.
#[test]
fn a_pod_is_ignored_only_if_each_term_of_its_node_affinity_excludes_every_pool() {
    let term = |operator: &str| json!({"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": operator}]});
    let is_ignored = |terms: &[Value]| {
        let with_terms = pod(|pod| {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            pod["spec"]["affinity"] = json!({"nodeAffinity": required});
        });
        !snapshot(Source::Cluster, with_terms).0.ignored.is_empty()
    };
    let (excludes, includes) = (term("DoesNotExist"), term("Exists"));
    assert!(is_ignored(&[excludes.clone(), excludes.clone()]));
    assert!(!is_ignored(&[excludes.clone(), includes.clone()]) && !is_ignored(&[includes]));
    let other = json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]});
    assert!(!is_ignored(&[other]), "a node without the label may be of a pool");
    assert!(!is_ignored(&[]));
}

#[test]
fn only_a_pod_of_a_stateful_set_returns_under_its_name() {
    let returns = |api_version: &str, kind: &str| {
        let owned = pod(|pod| {
            pod["metadata"]["ownerReferences"] =
                json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "x"}]);
            pod["spec"]["nodeName"] = json!("n1");
        });
        snapshot(Source::Cluster, owned).0.pods[0].returns
    };
    assert!(returns("apps/v1", "StatefulSet"));
    assert!(!returns("apps/v1", "ReplicaSet") && !returns("example.com/v1", "StatefulSet"));
}

#[test]
fn the_eviction_cost_is_bounded() {
    for (deletion_cost, expected) in [("2147483647", 10_000), ("-2147483648", -10_000), ("many", 1000)] {
        let annotated = pod(|pod| {
            pod["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": deletion_cost});
        });
        let cost = snapshot(Source::Cluster, annotated).0.pods[0].eviction_cost_milli;
        assert_eq!(cost, expected, "{deletion_cost}");
    }
}

/// The DaemonSet controller binds its pods with an affinity to the name of their node.
#[test]
fn pods_of_a_daemon_set_share_their_shape() {
    let of_node = |node: &str| {
        let pod = pod(|pod| {
            pod["metadata"]["uid"] = json!(node);
            pod["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "x"}]);
            pod["spec"]["nodeName"] = json!(node);
            pod["spec"]["affinity"] = json!({
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "noisy"}}}]},
            });
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    let node = |name: &str| serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let objects =
        Objects { pods: vec![of_node("n1"), of_node("n2")], nodes: vec![node("n1"), node("n2")], ..Objects::default() };
    let (snapshot, problems) = crate::build(&objects, &Extra::default());
    assert_eq!((snapshot.pods.len(), snapshot.shapes.len(), problems.len()), (2, 1, 0));
    // The anti-affinity keeps other pods away.
    assert_eq!(snapshot.shapes[0].pod_affinity.len(), 1);
}

#[test]
fn in_files_every_unbound_pod_is_pending() {
    let without_conditions = pod(|pod| pod["status"] = json!({}));
    assert_eq!(snapshot(Source::Files, without_conditions).0.pods[0].state, PodState::Pending);
}

#[test]
fn a_bound_pod_is_on_its_node_and_an_ended_pod_is_dropped() {
    let bound = pod(|pod| pod["spec"]["nodeName"] = json!("n1"));
    assert_eq!(snapshot(Source::Cluster, bound).0.pods[0].state, PodState::Bound("n1".into()));
    let lost = pod(|pod| pod["spec"]["nodeName"] = json!("n2"));
    let (snapshot_of_lost, _) = snapshot(Source::Cluster, lost);
    assert!(snapshot_of_lost.pods.is_empty(), "a snapshot does not refer to nodes that are not in it");
    assert_eq!(snapshot_of_lost.ignored[0].reason, "it runs on node \"n2\", which is not known");
    let ended = pod(|pod| pod["status"]["phase"] = json!("Succeeded"));
    let (snapshot, problems) = snapshot(Source::Cluster, ended);
    assert_eq!((snapshot.pods.len(), snapshot.ignored.len(), problems.len()), (0, 0, 0));
}

#[test]
fn an_unreadable_pod_is_left_out_and_reported() {
    let bad = pod(|pod| pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "lots"}}));
    let (snapshot, problems) = snapshot(Source::Cluster, bad);
    assert!(snapshot.pods.is_empty());
    assert_eq!(
        (problems[0].name.as_str(), problems[0].field.as_str()),
        ("shop/web", "spec.containers[0].resources.requests.cpu")
    );
}

#[test]
fn disruption_protection_and_eviction_cost_come_from_annotations_and_priority() {
    let costly = pod(|pod| {
        pod["metadata"]["annotations"] =
            json!({"karpenter.sh/do-not-disrupt": "10m", "controller.kubernetes.io/pod-deletion-cost": "134217728"});
        pod["spec"]["priority"] = json!(33_554_432);
        pod["status"]["startTime"] = json!("1970-01-01T00:01:00Z");
    });
    let (snapshot, _) = snapshot(Source::Cluster, costly);
    assert_eq!(snapshot.pods[0].eviction_cost_milli, 3000);
    assert_eq!(snapshot.pods[0].do_not_disrupt_until, Some(Timestamp(660_000)));
}

/// The value `true` is common where Cluster Autoscaler was used, and the caches drop it.
#[test]
fn a_pod_that_is_not_safe_to_evict_is_protected_for_ever() {
    let until = |value: &str, owner: &str| {
        let annotated = pod(|pod| {
            pod["metadata"]["annotations"] = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": value});
            pod["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "x"}]);
            pod["spec"]["nodeName"] = json!("n1");
        });
        let mut trimmed = serde_json::from_value(annotated.clone()).unwrap();
        crate::trim::pod(&mut trimmed);
        assert_eq!(trimmed.metadata.annotations.is_some(), value != "true");
        let of = |pod: Value| snapshot(Source::Cluster, pod).0.pods[0].do_not_disrupt_until;
        assert_eq!(of(annotated.clone()), of(serde_json::to_value(trimmed).unwrap()));
        of(annotated)
    };
    assert_eq!(until("false", "ReplicaSet"), Some(Timestamp(i64::MAX)));
    assert_eq!(until("on-completion", "Job"), Some(Timestamp(i64::MAX)), "a pod that has ended does not count");
    assert_eq!(until("false", "DaemonSet"), None, "Cluster Autoscaler evicts it, too");
    assert_eq!(until("true", "ReplicaSet"), None);
}

#[test]
fn a_nominated_pod_is_reserved_on_its_node() {
    let nominated = pod(|pod| pod["status"]["nominatedNodeName"] = json!("n1"));
    let (found, _) = snapshot(Source::Cluster, nominated);
    assert_eq!((found.pods[0].state.clone(), found.ignored.len()), (PodState::Reserved("n1".into()), 0));
}

#[test]
fn pods_of_other_schedulers_are_treated_alike() {
    let other = pod(|pod| pod["spec"]["schedulerName"] = json!("batch"));
    assert_eq!(snapshot(Source::Cluster, other).0.pods[0].state, PodState::Pending);
    let silent = pod(|pod| {
        pod["spec"]["schedulerName"] = json!("batch");
        pod["status"] = json!({});
    });
    assert_eq!(snapshot(Source::Cluster, silent).0.ignored.len(), 1);
}

#[test]
fn on_demand_annotations_of_a_pod_apply_to_its_workload() {
    let with_ratio = pod(|pod| pod["metadata"]["annotations"] = json!({"plimsoll.dev/on-demand-percentage": "40"}));
    let ratio = snapshot(Source::Cluster, with_ratio).0.shapes[0].on_demand.clone().unwrap();
    assert_eq!((ratio.workload.as_str(), ratio.mix.base, ratio.mix.percentage), ("Pod/web", 0, 40));
    let wrong = pod(|pod| pod["metadata"]["annotations"] = json!({"plimsoll.dev/on-demand-base": "many"}));
    let (_, problems) = snapshot(Source::Cluster, wrong);
    assert_eq!(problems[0].field, "metadata.annotations[plimsoll.dev/on-demand-base]");
}

#[test]
fn a_pod_with_invalid_on_demand_annotations_is_used_without_them() {
    for place in ["", "n1"] {
        let wrong = pod(|pod| {
            pod["spec"]["nodeName"] = json!(place);
            pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3500m"}});
            pod["metadata"]["annotations"] = json!({"plimsoll.dev/on-demand-percentage": "30%"});
        });
        let (snapshot, problems) = snapshot(Source::Cluster, wrong);
        assert_eq!(snapshot.pods.len(), 1, "{place}");
        let shape = &snapshot.shapes[0];
        assert_eq!((shape.requests.get("cpu"), shape.on_demand.as_ref()), (3500, None));
        assert_eq!(problems.len(), 1, "it is told, and refused as input");
        assert!(!snapshot.nodes[0].cordoned, "its room is known");
    }
}

#[test]
fn the_node_of_an_unreadable_pod_is_cordoned_and_not_disrupted() {
    let bad = pod(|pod| {
        pod["spec"]["nodeName"] = json!("n1");
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "lots"}});
    });
    let (snapshot, problems) = snapshot(Source::Cluster, bad);
    assert_eq!((snapshot.pods.len(), problems.len()), (0, 1));
    let node = &snapshot.nodes[0];
    assert!(node.cordoned && node.do_not_disrupt);
}
