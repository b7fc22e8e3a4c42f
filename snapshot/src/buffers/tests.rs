use super::*;
use plimsoll_model::execution::{BufferReady, InFlightClaim};
use plimsoll_model::plan::PodRef;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn read<T: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod_spec(cpu: &str) -> Value {
    json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]})
}

/// Objects with a PodTemplate `web` of 500m and 1Gi, and a Deployment, a StatefulSet and a ReplicaSet of 1 cpu with 10
/// replicas.
fn objects(spec: Value) -> Objects {
    let named = |name: &str| json!({"namespace": "shop", "name": name, "generation": 3});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": pod_spec("1")});
    let workload = json!({"metadata": named("web"), "spec": {"replicas": 10, "selector": {}, "template": template}});
    let buffer = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"namespace": "shop", "name": "spare", "uid": "b1", "creationTimestamp": "1970-01-01T00:00:07Z"}});
    Objects {
        capacity_buffers: vec![read(with(buffer, Value::Object([("spec".to_owned(), spec)].into_iter().collect())))],
        pod_templates: vec![read(json!({"metadata": named("web"), "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": pod_spec("500m")}}))],
        deployments: vec![read(workload.clone())],
        stateful_sets: vec![read(workload.clone())],
        replica_sets: vec![read(workload)],
        ..Objects::default()
    }
}

fn with(mut spec: Value, more: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (spec.as_object_mut(), more) {
        fields.extend(more);
    }
    spec
}

fn of_template(more: Value) -> Value {
    with(json!({"podTemplateRef": {"name": "web"}}), more)
}

fn of(kind: &str, more: Value) -> Value {
    with(json!({"scalableRef": {"apiGroup": "apps", "kind": kind, "name": "web"}}), more)
}

fn replicas(spec: Value) -> Result<usize, (Option<BufferReady>, &'static str)> {
    let objects = objects(spec);
    let result = resolve(&objects);
    result[0].room.as_ref().map(|capacity| capacity.replicas).map_err(|why| (why.reason, why.field))
}

#[test]
fn the_larger_of_replicas_and_percentage_is_used_up_to_the_limits() {
    let deployment = |more: Value| replicas(of("Deployment", more));
    assert_eq!(replicas(of_template(json!({"replicas": 4}))), Ok(4));
    assert_eq!(replicas(of_template(json!({"replicas": 0}))), Ok(0));
    // 25 % of 10 is 2.5, rounded up.
    assert_eq!(deployment(json!({"percentage": 25})), Ok(3));
    assert_eq!(deployment(json!({"percentage": 25, "replicas": 2})), Ok(3));
    assert_eq!(deployment(json!({"percentage": 25, "replicas": 5})), Ok(5));
    assert_eq!(deployment(json!({"percentage": 1})), Ok(1));
    assert_eq!(deployment(json!({"percentage": 0})), Ok(0));
    assert_eq!(deployment(json!({"percentage": 0, "replicas": 2})), Ok(2));
    assert_eq!(deployment(json!({"percentage": 0, "limits": {"cpu": "4"}})), Ok(0));
    assert_eq!(replicas(of("StatefulSet", json!({"percentage": 100}))), Ok(10));
    assert_eq!(replicas(of("ReplicaSet", json!({"percentage": 11}))), Ok(2));
    // 2 cpu allow four pods of 500m, and 3Gi allow three pods of 1Gi.
    let limits = json!({"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": "1"});
    assert_eq!(replicas(of_template(json!({"limits": limits}))), Ok(3));
    assert_eq!(replicas(of_template(json!({"limits": limits, "replicas": 2}))), Ok(2));
    assert_eq!(replicas(of_template(json!({"limits": limits, "replicas": 9}))), Ok(3));
    assert_eq!(replicas(of_template(json!({"limits": {"pods": "6"}}))), Ok(6));
    assert_eq!(replicas(of_template(json!({"limits": {"cpu": "100m"}, "replicas": 9}))), Ok(0), "not even one fits");
    assert_eq!(deployment(json!({"percentage": i32::MAX, "limits": {"cpu": "4"}})), Ok(4));
}

#[test]
fn a_workload_without_replicas_has_no_share() {
    let idle = |more: Value| {
        let mut objects = objects(of("Deployment", more));
        objects.deployments[0].spec.as_mut().unwrap().replicas = Some(0);
        let report = reports(&objects).pop().unwrap();
        (report.ready, report.replicas)
    };
    assert_eq!(idle(json!({"percentage": 20})), (BufferReady::Resolved, 0));
    assert_eq!(idle(json!({"percentage": 20, "replicas": 2})), (BufferReady::Resolved, 2));
    // Two pods of 1 cpu: the limits alone decide.
    assert_eq!(idle(json!({"percentage": 20, "limits": {"cpu": "2"}})), (BufferReady::Resolved, 2));
    assert_eq!(idle(json!({})), (BufferReady::ResolutionFailed, 0), "no number is asked for");
}

#[test]
fn the_api_group_defaults_to_apps() {
    let named = |group: Value, kind: &str| {
        replicas(json!({"replicas": 1, "scalableRef": {"apiGroup": group, "kind": kind, "name": "web"}}))
    };
    assert_eq!(named(json!(""), "Deployment"), Ok(1));
    assert_eq!(named(Value::Null, "Deployment"), Ok(1));
    assert_eq!(named(json!("batch"), "Job"), Err((Some(BufferReady::ResolutionFailed), "spec.scalableRef")));
}

#[test]
fn buffer_pods_tolerate_the_taints_of_extended_resources() {
    let mut objects = objects(of_template(json!({"replicas": 1})));
    let pod = objects.pod_templates[0].template.as_mut().unwrap().spec.as_mut().unwrap();
    pod.containers[0].resources = read(json!({"limits": {"nvidia.com/gpu": "1"}}));
    let spec = resolve(&objects)[0].room.clone().unwrap().spec;
    let keys: Vec<Option<String>> = spec.tolerations.into_iter().flatten().map(|it| it.key).collect();
    assert_eq!(keys, [Some("nvidia.com/gpu".to_owned())]);
}

#[test]
fn an_unresolved_buffer_has_a_reason() {
    let other = json!({"provisioningStrategy": "example.com/other", "replicas": 1});
    assert_eq!(replicas(of_template(other)), Err((None, "spec.provisioningStrategy")));
    let missing = json!({"podTemplateRef": {"name": "none"}, "replicas": 1});
    assert_eq!(replicas(missing), Err((Some(BufferReady::PodTemplateNotFound), "spec.podTemplateRef")));
    let missing = json!({"scalableRef": {"kind": "Deployment", "name": "none"}, "replicas": 1});
    assert_eq!(replicas(missing), Err((Some(BufferReady::ScalableRefNotFound), "spec.scalableRef")));
    assert_eq!(replicas(json!({"replicas": 1})), Err((Some(BufferReady::ResolutionFailed), "spec")));
    assert_eq!(replicas(of("Deployment", json!({}))), Err((Some(BufferReady::ResolutionFailed), "spec")));
    let beside = json!({"limits": {"nvidia.com/gpu": "1"}});
    assert_eq!(replicas(of_template(beside)), Err((Some(BufferReady::ResolutionFailed), "spec")));
    let wrong = json!({"limits": {"cpu": "much"}});
    assert_eq!(replicas(of_template(wrong)), Err((Some(BufferReady::ResolutionFailed), "spec.limits")));
    let mut other_namespace = objects(of_template(json!({"replicas": 1})));
    other_namespace.pod_templates[0].metadata.namespace = Some("other".to_owned());
    let why = resolve(&other_namespace)[0].room.clone().unwrap_err();
    assert_eq!(why.reason, Some(BufferReady::PodTemplateNotFound), "only the buffer's own namespace is looked at");
}

#[test]
fn an_owned_replica_set_is_rejected_with_a_hint_at_its_owner() {
    let mut objects = objects(of("ReplicaSet", json!({"replicas": 1})));
    let set = &mut objects.replica_sets[0];
    set.spec.as_mut().unwrap().template = None;
    set.metadata.owner_references =
        read(json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "front", "uid": "d"}]));
    let why = resolve(&objects)[0].room.clone().unwrap_err();
    assert_eq!(why.message, "ReplicaSet \"web\" belongs to Deployment \"front\": name that instead");
}

#[test]
fn the_number_of_virtual_pods_is_bounded() {
    let mut objects = objects(of_template(json!({"replicas": 1200})));
    for number in 0..5 {
        let mut other = objects.capacity_buffers[0].clone();
        other.metadata.name = Some(format!("spare-{number}"));
        objects.capacity_buffers.push(other);
    }
    let capacities: Vec<BufferCapacity> = resolve(&objects).into_iter().map(|buffer| buffer.room.unwrap()).collect();
    let counts: Vec<usize> = capacities.iter().map(|capacity| capacity.replicas).collect();
    assert_eq!(counts, [1000, 1000, 1000, 1000, 1000, 0]);
    let bounded_message = |room: &BufferCapacity| room.bounded.clone().unwrap();
    assert_eq!(
        bounded_message(&capacities[0]),
        "room for 1200 pods is asked for, one CapacityBuffer keeps at most 1000"
    );
    assert_eq!(
        bounded_message(&capacities[5]),
        "room for 1000 pods is asked for, its namespace's share of all CapacityBuffers leaves at most 0"
    );
}

#[test]
fn one_namespace_does_not_use_up_the_share_of_others() {
    let mut objects = objects(of_template(json!({"replicas": 1000})));
    let first = objects.capacity_buffers.remove(0);
    let (template, all) = (objects.pod_templates[0].clone(), [("greedy", 8), ("modest", 1), ("other", 8)]);
    for (namespace, count) in all {
        let mut template = template.clone();
        template.metadata.namespace = Some(namespace.to_owned());
        objects.pod_templates.push(template);
        for number in 0..count {
            let mut buffer = first.clone();
            buffer.metadata.namespace = Some(namespace.to_owned());
            buffer.metadata.name = Some(format!("spare-{number}"));
            objects.capacity_buffers.push(buffer);
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for buffer in resolve(&objects) {
        let namespace = buffer.object.metadata.namespace.clone().unwrap();
        *counts.entry(namespace).or_default() += buffer.room.unwrap().replicas;
    }
    let expected = [("greedy", 2000), ("modest", 1000), ("other", 2000)];
    assert_eq!(counts, expected.map(|(namespace, pods)| (namespace.to_owned(), pods)).into());
}

#[test]
fn a_buffer_refers_to_the_first_object_of_a_name_in_its_namespace() {
    let mut objects = objects(of_template(json!({"replicas": 1})));
    let labelled = |namespace: &str, label: &str| {
        read(json!({"metadata": {"namespace": namespace, "name": "web"}, "template": {
            "metadata": {"labels": {"app": label}}, "spec": pod_spec("1")}}))
    };
    objects.pod_templates = vec![labelled("other", "foreign"), labelled("shop", "first"), labelled("shop", "second")];
    assert_eq!(resolve(&objects)[0].room.as_ref().unwrap().labels["app"], "first");
}

fn snapshot(objects: &Objects, extra: &Extra) -> plimsoll_model::snapshot::Snapshot {
    let (snapshot, problems) = crate::build(objects, extra);
    assert_eq!(problems, []);
    snapshot
}

#[test]
fn virtual_pods_have_the_lowest_priority_and_no_preferences() {
    let mut objects = objects(of_template(json!({"replicas": 2})));
    let template = objects.pod_templates[0].template.as_mut().unwrap();
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    let spread =
        |when: &str| json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": when});
    let mut spec = pod_spec("500m");
    spec["priorityClassName"] = json!("system-node-critical");
    spec["volumes"] = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    spec["affinity"] = json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}});
    spec["topologySpreadConstraints"] = json!([spread("DoNotSchedule"), spread("ScheduleAnyway")]);
    template.spec = Some(read(spec));
    let result = snapshot(&objects, &Extra::default());
    let names: Vec<(&str, &str)> = result.pods.iter().map(|pod| (pod.uid.as_str(), pod.name.as_str())).collect();
    assert_eq!(names, [("b1-1", "capacity-buffer-spare-1"), ("b1-2", "capacity-buffer-spare-2")]);
    let pod = &result.pods[0];
    assert_eq!((pod.namespace.as_str(), pod.state.clone(), pod.created.0), ("shop", PodState::Pending, 7000));
    assert_eq!(pod.buffer, Some(BufferPod { buffer: "spare".to_owned(), node: None }));
    let [shape] = result.shapes.as_slice() else { panic!("{:?}", result.shapes) };
    assert_eq!((shape.priority, shape.labels["app"].as_str(), shape.volumes.len()), (i32::MIN, "web", 0));
    assert_eq!((shape.requests.get("cpu"), shape.requests.get("pods")), (500, 1));
    assert_eq!((shape.pod_affinity.len(), shape.topology_spread.len()), (1, 1));
    assert!(shape.pod_affinity[0].weight.is_none() && shape.topology_spread[0].required);
}

#[test]
fn pods_of_a_buffer_without_uid_have_unique_uids() {
    let mut objects = objects(of_template(json!({"replicas": 1})));
    objects.capacity_buffers[0].metadata.uid = None;
    assert_eq!(snapshot(&objects, &Extra::default()).pods[0].uid.as_str(), "CapacityBuffer/shop/spare-1");
}

#[test]
fn an_unresolved_buffer_is_a_problem_only_in_a_cluster() {
    let missing = objects(json!({"podTemplateRef": {"name": "none"}, "replicas": 1}));
    let (result, problems) = crate::build(&missing, &Extra::default());
    let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["CapacityBuffer shop/spare: spec.podTemplateRef: there is no PodTemplate \"none\""]);
    assert!(result.pods.is_empty());
    snapshot(&missing, &Extra { source: Source::Files, ..Extra::default() });
    let mut leaving = objects(of_template(json!({"replicas": 1})));
    leaving.capacity_buffers[0].metadata.deletion_timestamp = read(json!("2026-01-01T00:00:00Z"));
    assert!(snapshot(&leaving, &Extra::default()).pods.is_empty());
}

#[test]
fn reports_contain_the_resolution_of_each_buffer() {
    let of = |spec: Value| reports(&objects(spec)).pop();
    let good = of(of_template(json!({"replicas": 2}))).unwrap();
    assert_eq!((good.namespace.as_str(), good.name.as_str(), good.uid.as_str()), ("shop", "spare", "b1"));
    assert_eq!((good.pod_template.as_deref(), good.pod_template_generation, good.replicas), (Some("web"), Some(3), 2));
    assert_eq!((good.ready, good.message.as_str(), good.provisioning), (BufferReady::Resolved, "", None));
    let bad = of(json!({"podTemplateRef": {"name": "none"}, "replicas": 1})).unwrap();
    assert_eq!((bad.ready, bad.replicas), (BufferReady::PodTemplateNotFound, 0));
    assert_eq!(bad.message, "spec.podTemplateRef: there is no PodTemplate \"none\"");
    let foreign = of_template(json!({"provisioningStrategy": "example.com/other", "replicas": 1}));
    assert_eq!(of(foreign), None, "that is somebody else's to say");
}

/// A claim with virtual pods in its annotation.
fn claim(name: &str, second: u32, pods: &[&str]) -> plimsoll_api::NodeClaim {
    let pods = serde_json::to_string(pods).unwrap();
    read(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            "labels": {"karpenter.sh/nodepool": "default"}, "annotations": {"plimsoll.dev/pods": pods}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": []}}))
}

#[test]
fn virtual_pods_refer_to_the_youngest_node_launched_for_them() {
    let mut objects = objects(of_template(json!({"replicas": 4})));
    objects.node_claims =
        vec![claim("new", 2, &["b1-2"]), claim("old", 1, &["b1-1", "b1-2"]), claim("gone", 3, &["b1-1"])];
    objects.node_claims[2].metadata.deletion_timestamp = read(json!("2026-01-02T00:00:00Z"));
    let in_flight = |name: &str, pod: &str| InFlightClaim {
        name: name.to_owned(),
        node_pool: "default".into(),
        pods: vec![PodRef { name: "shop/x".to_owned(), uid: pod.into() }],
        state: plimsoll_model::execution::ClaimState::Launching,
        ..InFlightClaim::default()
    };
    let extra = Extra { in_flight: vec![Arc::new(in_flight("admitted", "b1-3"))], ..Extra::default() };
    let result = snapshot(&objects, &extra);
    let pod_nodes: Vec<Option<&str>> = result
        .pods
        .iter()
        .map(|pod| {
            // The node is not reserved: a real pod may use its capacity.
            assert_eq!(pod.state, PodState::Pending);
            pod.buffer.as_ref().unwrap().node.as_ref().map(|node| node.as_str())
        })
        .collect();
    assert_eq!(pod_nodes, [Some("old"), Some("new"), Some("admitted"), None]);
}
