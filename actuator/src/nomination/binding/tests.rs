use super::*;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_000_000);

fn merged(mut base: Value, change: &Value) -> Value {
    match (&mut base, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, value) in changes {
                let old = fields.remove(key).unwrap_or(Value::Null);
                fields.insert(key.clone(), merged(old, value));
            }
        }
        (base, change) => *base = change.clone(),
    }
    base
}

/// A ready node of 3 CPUs.
fn node(name: &str, change: &Value) -> Arc<Node> {
    let base = json!({
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
        "status": {"allocatable": {"cpu": "3", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Arc::new(serde_json::from_value(merged(base, change)).unwrap())
}

/// A pending pod of one CPU.
fn pod(name: &str, change: &Value) -> Arc<Pod> {
    let base = json!({
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    });
    Arc::new(serde_json::from_value(merged(base, change)).unwrap())
}

fn due(sent: &Sent, pods: &[Arc<Pod>], nodes: &[Arc<Node>], planned: &[(&str, &str)]) -> Vec<(String, String)> {
    let planned = planned.iter().map(|(pod, node)| (PodUid::from(*pod), (*node).to_owned())).collect();
    let bindings = sent.bindable(pods, nodes, &planned, NOW);
    bindings.into_iter().map(|it| (pods::uid(&it.pod), it.node)).collect()
}

/// Whether pod `a`, with this change, is bound to node `n`, with that change.
fn is_bound(pod_change: &Value, node_change: &Value) -> bool {
    let bound = due(&Sent::default(), &[pod("a", pod_change)], &[node("n", node_change)], &[("a", "n")]);
    bound == [("a".to_owned(), "n".to_owned())]
}

#[test]
fn a_pod_is_bound_only_to_its_planned_node() {
    let (pods, nodes) = ([pod("a", &json!({})), pod("b", &json!({}))], [node("n", &json!({})), node("m", &json!({}))]);
    let bound = due(&Sent::default(), &pods, &nodes, &[("a", "m"), ("b", "gone")]);
    assert_eq!(bound, [("a".to_owned(), "m".to_owned())]);
}

#[test]
fn a_node_must_accept_the_pod() {
    let plain = json!({});
    assert!(is_bound(&plain, &plain));
    let closed = [
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}}),
        json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}}),
        json!({"spec": {"taints": [{"key": "example.com/cni", "effect": "NoSchedule"}]}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}}),
        json!({"status": {"allocatable": {"cpu": "500m"}}}),
    ];
    for change in closed {
        assert!(!is_bound(&plain, &change), "{change}");
    }
    let tolerating = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    assert!(is_bound(&tolerating, &json!({"spec": {"taints": [{"key": "example.com/cni", "effect": "NoSchedule"}]}})));
    let unregistered = json!({"spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}});
    assert!(!is_bound(&tolerating, &unregistered), "the node is not matched with its claim yet");
    assert!(is_bound(&plain, &json!({"spec": {"taints": [{"key": "soft", "effect": "PreferNoSchedule"}]}})));
}

#[test]
fn a_pod_must_wait_for_nothing_but_a_node() {
    let others = [
        json!({"spec": {"schedulingGates": [{"name": "example.com/quota"}]}}),
        json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}),
        json!({"spec": {"volumes": [{"name": "v", "ephemeral": {}}]}}),
        json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}}),
        json!({"spec": {"schedulingGroup": {"podGroupName": "training"}}}),
        json!({"spec": {"schedulerName": "example.com/batch"}}),
        json!({"spec": {"nodeName": "elsewhere"}}),
        json!({"spec": {"nodeSelector": {"zone": "a"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}}),
        json!({"status": {"nominatedNodeName": "elsewhere"}}),
    ];
    for change in others {
        assert!(!is_bound(&change, &json!({})), "{change}");
    }
    assert!(is_bound(&json!({"status": {"nominatedNodeName": "n"}}), &json!({})));
    for name in ["default-scheduler", ""] {
        assert!(is_bound(&json!({"spec": {"schedulerName": name}}), &json!({})), "{name:?}");
    }
    assert!(is_bound(&json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}), &json!({})));
}

#[test]
fn pods_are_bound_beside_others_and_beside_those_just_sent() {
    let mut pods: Vec<Arc<Pod>> = ["a", "b", "c", "d"].map(|name| pod(name, &json!({}))).into();
    pods.push(pod("r", &json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})));
    let nodes = [node("n", &json!({}))];
    let planned: Vec<(&str, &str)> = ["a", "b", "c", "d"].map(|pod| (pod, "n")).into();
    let names = |sent: &Sent| due(sent, &pods, &nodes, &planned).into_iter().map(|(pod, _)| pod).collect::<Vec<_>>();
    assert_eq!(names(&Sent::default()), ["a", "b"], "one CPU of three is used");
    // The watch cache shows neither of these yet.
    let sent = |pods: &[&str]| Sent(pods.iter().map(|pod| (PodUid::from(*pod), ("n".to_owned(), NOW))).collect());
    assert_eq!(names(&sent(&["c"])), ["a"]);
    assert_eq!(names(&sent(&["c", "d"])), [""; 0]);
}

#[test]
fn pods_that_must_be_apart_are_not_bound_together() {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    let apart = json!({"spec": {"affinity": {"podAntiAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
    let pods = [pod("a", &apart), pod("b", &apart)];
    let bound = due(&Sent::default(), &pods, &[node("n", &json!({}))], &[("a", "n"), ("b", "n")]);
    assert_eq!(bound.len(), 1, "{bound:?}");
}

/// A required term that selects all pods of these namespaces on the same host.
fn term(kind: &str, namespaces: &Value) -> Value {
    let term = merged(json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}), namespaces);
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
}

#[test]
fn a_terminating_pod_counts_for_affinity_and_not_for_topology_spread() {
    let terminating = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]},
        "spec": {"nodeName": "n"}, "status": {"phase": "Running"},
    });
    let spread = json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    let spread = json!({"spec": {"topologySpreadConstraints": [spread]}});
    let (plain, apart) = (json!({}), term("podAntiAffinity", &json!({})));
    for (waiting, resident, expected) in
        [(&plain, &plain, true), (&apart, &plain, false), (&plain, &apart, false), (&spread, &plain, true)]
    {
        let pods = [pod("a", waiting), pod("r", &merged(terminating.clone(), resident))];
        let nodes = ["n", "m"].map(|name| node(name, &json!({})));
        let bound = due(&Sent::default(), &pods, &nodes, &[("a", "n")]);
        assert_eq!(bound.len(), usize::from(expected), "{waiting} beside {resident}");
    }
}

/// Namespaces are not watched, so that their labels are not known.
#[test]
fn pods_are_kept_apart_from_pods_of_all_namespaces_that_a_term_may_select() {
    let elsewhere = |affinity: &Value| {
        let bound = json!({"metadata": {"namespace": "e"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        pod("r", &merged(bound, affinity))
    };
    let (anti, plain) = ("podAntiAffinity", json!({}));
    let by_label = json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}});
    let all = json!({"namespaceSelector": {}});
    let none = json!({"namespaces": ["f"]});
    let own = json!({});
    for (waiting, running, expected) in [
        (plain.clone(), plain.clone(), true),
        (term(anti, &by_label), plain.clone(), false),
        (plain.clone(), term(anti, &by_label), false),
        (term(anti, &all), plain.clone(), false),
        (plain.clone(), term(anti, &all), false),
        (term(anti, &none), term(anti, &none), true),
        (term(anti, &own), term(anti, &own), true),
    ] {
        let pods = [pod("a", &waiting), elsewhere(&running)];
        let bound = due(&Sent::default(), &pods, &[node("n", &json!({}))], &[("a", "n")]);
        assert_eq!(bound.len(), usize::from(expected), "{waiting} beside {running}");
    }
}

#[test]
fn a_pod_that_must_be_near_pods_of_unknown_namespaces_is_left_to_kube_scheduler() {
    // Without a pod that matches, a term that selects the pod itself is satisfied. "DoesNotExist" would match each
    // namespace whose labels are not known.
    let near = |namespaces: Value| is_bound(&term("podAffinity", &namespaces), &json!({}));
    assert!(near(json!({"namespaceSelector": {}})));
    assert!(near(json!({})));
    let expression = json!({"key": "team", "operator": "DoesNotExist"});
    assert!(!near(json!({"namespaceSelector": {"matchExpressions": [expression]}})));
}
