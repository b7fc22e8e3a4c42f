use crate::{Extra, Objects, Problem, Source};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{PodShape, Snapshot};
use plimsoll_model::taints::TolerationOperator;
use serde_json::{Value, json};
use std::sync::Arc;

fn build(specs: &[Value]) -> (Snapshot, Vec<Problem>) {
    let pod = |(index, spec): (usize, &Value)| {
        let mut spec = spec.clone();
        spec["containers"] = json!([{"name": "app"}]);
        let metadata = json!({"namespace": "shop", "name": format!("p{index}"), "labels": {"app": "web", "rev": "7"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    let namespace = |name: &str, team: &str| {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"team": team}}})).unwrap()
    };
    let objects = Objects {
        pods: specs.iter().enumerate().map(pod).map(Arc::new).collect(),
        namespaces: vec![namespace("shop", "blue"), namespace("billing", "blue"), namespace("ops", "red")],
        ..Objects::default()
    };
    crate::build(&objects, &Extra { source: Source::Files, ..Extra::default() })
}

fn shape(spec: Value) -> PodShape {
    let (snapshot, problems) = build(&[spec]);
    assert_eq!(problems, []);
    snapshot.shapes[0].clone()
}

fn term(rest: &Value) -> Value {
    let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}});
    term.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    term
}

/// The controllers of StatefulSets and Jobs give each pod labels of its own.
#[test]
fn labels_that_no_selector_names_are_dropped() {
    let pod = |index: usize, spec: &Value| {
        let labels = json!({"app": "db", "apps.kubernetes.io/pod-index": index.to_string()});
        let mut spec = spec.clone();
        spec["containers"] = json!([{"name": "app"}]);
        let metadata = json!({"namespace": "shop", "name": format!("db-{index}"), "labels": labels});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
    };
    let shapes = |specs: &[Value]| {
        let pods = specs.iter().enumerate().map(|(index, spec)| pod(index, spec)).collect();
        let objects = Objects { pods, ..Objects::default() };
        crate::build(&objects, &Extra { source: Source::Files, ..Extra::default() }).0.shapes
    };
    let spread = |selector: Value| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]})
    };
    assert_eq!(shapes(&[json!({}), json!({})])[0].labels.len(), 0);
    let by_app = spread(json!({"matchLabels": {"app": "db"}}));
    let alike = shapes(&[by_app.clone(), by_app.clone()]);
    assert_eq!((alike.len(), alike[0].labels.get("app").map(String::as_str)), (1, Some("db")));
    // A pod that selects by the label of each pod.
    let by_index = spread(json!({"matchExpressions": [{"key": "apps.kubernetes.io/pod-index", "operator": "Exists"}]}));
    assert_eq!(shapes(&[by_app.clone(), by_app, by_index]).len(), 3);
}

#[test]
fn equal_pods_share_a_shape() {
    let (snapshot, _) = build(&[json!({}), json!({}), json!({"nodeSelector": {"zone": "a"}})]);
    assert_eq!((snapshot.pods.len(), snapshot.shapes.len()), (3, 2));
    assert_eq!(snapshot.pods[0].shape, snapshot.pods[1].shape);
}

#[test]
fn affinity_namespaces_are_the_pods_own_the_listed_and_the_selected() {
    let table = [
        (json!({}), vec!["shop"]),
        (json!({"namespaces": ["ops", "billing"]}), vec!["billing", "ops"]),
        (json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}), vec!["billing", "shop"]),
        (json!({"namespaceSelector": {}}), vec!["billing", "ops", "shop"]),
        (json!({"namespaces": ["ops"], "namespaceSelector": {"matchLabels": {"team": "none"}}}), vec!["ops"]),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}}), vec!["ops"]),
    ];
    for (rest, namespaces) in table {
        let required = json!([term(&rest)]);
        let result =
            shape(json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}));
        assert_eq!(result.pod_affinity[0].namespaces, namespaces, "{rest}");
    }
}

#[test]
fn affinity_terms_keep_kind_and_weight() {
    let result = shape(json!({"affinity": {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 30, "podAffinityTerm": term(&json!({}))}]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(&json!({"matchLabelKeys": ["rev"]}))]},
    }}));
    let mut kinds: Vec<_> = result.pod_affinity.iter().map(|it| (it.anti, it.weight)).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [(false, Some(30)), (true, None)]);
    let apart = result.pod_affinity.iter().find(|it| it.anti).and_then(|it| it.selector.clone()).unwrap();
    let expression = &apart.match_expressions[0];
    assert_eq!((expression.key.as_str(), expression.operator), ("rev", Operator::In));
    assert_eq!(expression.values, ["7"], "matchLabelKeys take the pod's own value");
}

#[test]
fn spread_constraints_keep_their_policies() {
    let result = shape(json!({"topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
         "labelSelector": {"matchLabels": {"app": "web"}}},
        {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway",
         "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
    ]}));
    let seen: Vec<_> = result
        .topology_spread
        .iter()
        .map(|it| (it.required, it.min_domains, it.selector.is_some(), it.honor_node_affinity, it.honor_node_taints))
        .collect();
    assert_eq!(seen, [(true, Some(3), true, true, false), (false, None, false, false, true)]);
}

#[test]
fn an_invalid_value_names_its_field() {
    let table = [
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
            "spec.topologySpreadConstraints[0].maxSkew",
        ),
        (
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}}}),
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
        ),
        (json!({"tolerations": [{"key": "a", "operator": "Likes"}]}), "spec.tolerations[0].operator"),
        (json!({"tolerations": [{"key": "a", "effect": "Never"}]}), "spec.tolerations[0].effect"),
    ];
    for (spec, field) in table {
        let (snapshot, problems) = build(std::slice::from_ref(&spec));
        assert_eq!((snapshot.pods.len(), problems.len()), (0, 1), "{spec}");
        assert_eq!(problems[0].field, field);
    }
}

#[test]
fn the_priority_is_that_of_the_pod_of_its_class_or_the_default() {
    let class = |name: &str, value: i32, default: bool| {
        serde_json::from_value(json!({"metadata": {"name": name}, "value": value, "globalDefault": default})).unwrap()
    };
    let priority = |spec: Value, defaults: bool| {
        let pod = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec});
        let objects = Objects {
            pods: vec![Arc::new(serde_json::from_value(pod).unwrap())],
            priority_classes: vec![class("high", 9, false), class("a", 5, defaults), class("b", 3, defaults)],
            ..Objects::default()
        };
        crate::build(&objects, &Extra { source: Source::Files, ..Extra::default() }).0.shapes[0].priority
    };
    let of = |name: &str| json!({"containers": [], "priorityClassName": name});
    assert_eq!(priority(json!({"containers": [], "priorityClassName": "high", "priority": 7}), false), 7);
    assert_eq!((priority(of("high"), true), priority(of("a"), true)), (9, 5));
    assert_eq!(priority(of("system-cluster-critical"), true), 2_000_000_000);
    assert_eq!(priority(of("system-node-critical"), true), 2_000_001_000);
    for spec in [of(""), of("gone"), json!({"containers": []})] {
        assert_eq!((priority(spec.clone(), false), priority(spec.clone(), true)), (0, 3), "{spec}: the lowest default");
    }
}

#[test]
fn tolerations_with_numeric_operators_are_ignored() {
    let toleration = |operator: Value| json!({"key": "a", "operator": operator, "value": "5"});
    let of = |operator: Value| shape(json!({"tolerations": [toleration(operator)]})).tolerations;
    for operator in ["Gt", "Lt"] {
        assert_eq!(of(json!(operator)), []);
    }
    for operator in [json!("Equal"), json!(""), Value::Null] {
        assert_eq!(of(operator)[0].operator, TolerationOperator::Equal);
    }
    assert_eq!(of(json!("Exists"))[0].operator, TolerationOperator::Exists);
}

#[test]
fn host_ports_are_those_of_containers_and_sidecars() {
    let ports = |host_network: bool| {
        let port = |container: u16, host: u16| json!([{"containerPort": container, "hostPort": host}]);
        let spec = json!({"hostNetwork": host_network,
            "containers": [{"name": "app", "ports": port(80, 8080)}, {"name": "more", "ports": port(90, 0)}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "ports": port(70, 7070)},
                {"name": "init", "ports": port(60, 6060)}]});
        let pod = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec});
        let objects = Objects { pods: vec![Arc::new(serde_json::from_value(pod).unwrap())], ..Objects::default() };
        let (snapshot, _) = crate::build(&objects, &Extra { source: Source::Files, ..Extra::default() });
        snapshot.shapes[0].host_ports.iter().map(|port| port.port).collect::<Vec<_>>()
    };
    assert_eq!((ports(false), ports(true)), (vec![7070, 8080], vec![90, 7070, 8080]));
}
