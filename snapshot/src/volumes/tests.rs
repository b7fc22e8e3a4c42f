mod unbound;

use crate::{Extra, Objects, Problem, Source};
use plimsoll_model::identity::ShapeId;
use plimsoll_model::snapshot::{Snapshot, VolumeTopology};
use serde_json::{Value, json};
use std::sync::Arc;

fn claim(spec: &Value, phase: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": "data"}, "spec": spec, "status": {"phase": phase}})
}

fn class(name: &str, mode: &str, default: bool) -> Value {
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": default.to_string()});
    json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": "ebs.csi.aws.com", "volumeBindingMode": mode,
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]}]})
}

fn volume(spec: &Value) -> Value {
    json!({"metadata": {"name": "pv-1"}, "spec": spec})
}

/// Builds the snapshot of a pod with one volume `data`, and its problems.
fn built(claims: &[Value], volumes: &[Value], classes: &[Value]) -> (Snapshot, Vec<Problem>) {
    let pod = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"containers": [{"name": "app"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    let objects = Objects {
        pods: vec![Arc::new(serde_json::from_value(pod).unwrap())],
        persistent_volume_claims: claims.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        persistent_volumes: volumes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        storage_classes: classes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        ..Objects::default()
    };
    crate::build(&objects, &Extra { source: Source::Files, ..Extra::default() })
}

/// Topology of the volume `data`.
fn topology(claims: &[Value], volumes: &[Value], classes: &[Value]) -> VolumeTopology {
    let (snapshot, problems) = built(claims, volumes, classes);
    assert_eq!(problems, []);
    let [topology] = &snapshot.shapes[0].volumes[..] else { panic!("{:?}", snapshot.shapes[0].volumes) };
    topology.clone()
}

/// Values of each alternative.
fn zones(topology: &VolumeTopology) -> Vec<Vec<&str>> {
    topology
        .alternatives
        .iter()
        .map(|term| term.expressions.iter().flat_map(|it| it.values.iter().map(String::as_str)).collect())
        .collect()
}

#[test]
fn a_bound_volume_has_the_node_affinity_of_its_volume() {
    let affinity = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}});
    let spec = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}, "nodeAffinity": affinity});
    let result = topology(&[claim(&json!({"volumeName": "pv-1"}), "Bound")], &[volume(&spec)], &[]);
    assert_eq!((result.driver.as_str(), zones(&result), &result.problem), ("ebs.csi.aws.com", vec![vec!["a"]], &None));
}

#[test]
fn an_empty_label_key_is_reported_with_its_path() {
    let expression = json!({"key": "", "operator": "In", "values": ["a"]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
    let spec = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}, "nodeAffinity": affinity});
    let bound = built(&[claim(&json!({"volumeName": "pv-1"}), "Bound")], &[volume(&spec)], &[]);
    let mut nameless = class("usual", "WaitForFirstConsumer", true);
    nameless["allowedTopologies"][0]["matchLabelExpressions"][0]["key"] = "".into();
    let waiting = built(&[claim(&json!({}), "Pending")], &[], &[nameless]);
    let fields = [
        (bound, "spec.volumes.data.nodeAffinity.matchExpressions[0].key"),
        (waiting, "spec.volumes.data.storageClass.allowedTopologies[0].matchLabelExpressions[0].key"),
    ];
    for ((snapshot, problems), field) in fields {
        let reported: Vec<(&str, &str, &str)> =
            problems.iter().map(|it| (it.name.as_str(), it.field.as_str(), it.message.as_str())).collect();
        assert_eq!(reported, [("shop/web", field, "must not be empty")]);
        // The wire format rejects an empty label key, and with it all other pods.
        assert!(snapshot.pods.is_empty());
    }
}

#[test]
fn an_unbound_claim_is_restricted_by_its_storage_class() {
    let classes = [class("slow", "WaitForFirstConsumer", false), class("usual", "WaitForFirstConsumer", true)];
    for spec in [json!({"storageClassName": "slow"}), json!({})] {
        let result = topology(&[claim(&spec, "Pending")], &[], &classes);
        assert_eq!((zones(&result), &result.problem), (vec![vec!["a", "b"]], &None), "{spec}");
    }
}

#[test]
fn a_volume_that_cannot_be_attached_has_a_problem() {
    let table = [
        (vec![], vec![], "persistent volume claim \"data\" not found in the input; add pvc, pv and sc to it"),
        (
            vec![claim(&json!({"volumeName": "pv-1"}), "Lost")],
            vec![],
            "persistent volume claim \"data\" has lost its volume",
        ),
        (
            vec![claim(&json!({"volumeName": "pv-1"}), "Bound")],
            vec![],
            "persistent volume \"pv-1\" of claim \"data\" not found in the input; add pvc, pv and sc to it",
        ),
        (
            vec![claim(&json!({}), "Pending")],
            vec![],
            "claim \"data\" is not bound and has no storage class in the input; add pvc, pv and sc to it",
        ),
        (
            vec![claim(&json!({"storageClassName": "x"}), "Pending")],
            vec![],
            "storage class \"x\" of claim \"data\" not found in the input; add pvc, pv and sc to it",
        ),
        (
            vec![claim(&json!({"storageClassName": "x"}), "Pending")],
            vec![class("x", "Immediate", false)],
            "claim \"data\" is not bound yet, and its storage class binds at once",
        ),
    ];
    for (claims, classes, problem) in table {
        assert_eq!(topology(&claims, &[], &classes).problem.as_deref(), Some(problem));
    }
}

/// All objects of the tests below.
fn objects(pods: &[Value], claims: &[Value], volumes: &[Value], classes: &[Value]) -> Objects {
    Objects {
        pods: pods.iter().map(|it| Arc::new(serde_json::from_value(it.clone()).unwrap())).collect(),
        persistent_volume_claims: claims.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        persistent_volumes: volumes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        storage_classes: classes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        ..Objects::default()
    }
}

/// A pod `name` that uses claim `claim`.
fn user(name: &str, claim: &str, node: Option<&str>) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"containers": [{"name": "app"}], "nodeName": node,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

/// Volume problems of pending pods, by pod name.
fn problems(objects: &Objects, source: Source) -> Vec<(String, Option<String>)> {
    let (snapshot, faults) = crate::build(objects, &Extra { source, ..Extra::default() });
    assert_eq!(faults, []);
    let shape = |id| snapshot.shapes.iter().find(|shape| shape.id == id).unwrap();
    let mut all: Vec<_> = snapshot
        .pods
        .iter()
        .map(|pod| (pod.name.clone(), shape(pod.shape.clone()).volumes[0].problem.clone()))
        .collect();
    all.sort();
    all
}

#[test]
fn labels_of_old_volumes_restrict_the_topology() {
    let mut old = volume(&json!({"awsElasticBlockStore": {"volumeID": "v"}}));
    old["metadata"]["labels"] = json!({"failure-domain.beta.kubernetes.io/zone": "a__b", "app": "x"});
    let result = topology(&[claim(&json!({"volumeName": "pv-1"}), "Bound")], &[old], &[]);
    assert_eq!((result.driver.as_str(), zones(&result)), ("ebs.csi.aws.com", vec![vec!["a", "b"]]));
    assert_eq!(result.alternatives[0].expressions[0].key, "failure-domain.beta.kubernetes.io/zone");
}

#[test]
fn a_pending_pod_can_only_run_on_the_node_of_its_local_volume() {
    let affinity = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]}});
    let local = volume(&json!({"local": {"path": "/data"}, "nodeAffinity": affinity}));
    let claim = claim(&json!({"volumeName": "pv-1"}), "Bound");
    let result = topology(std::slice::from_ref(&claim), std::slice::from_ref(&local), &[]);
    assert_eq!(zones(&result), [["n1"]]);
    let node = json!({"metadata": {"name": "n1"}});
    let mut all = objects(&[user("web", "data", Some("n1"))], &[claim], &[local], &[]);
    all.nodes = vec![serde_json::from_value(node).unwrap()];
    let (snapshot, _) = crate::build(&all, &Extra { source: Source::Files, ..Extra::default() });
    // A pod that runs there can be moved: the volume disappears with its node.
    assert_eq!(snapshot.shapes[0].volumes[0].alternatives, []);
}

#[test]
fn a_volume_that_is_being_deleted_is_a_problem_of_pods_without_a_node_only() {
    let mut leaving = volume(&json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}}));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let claim = claim(&json!({"volumeName": "pv-1"}), "Bound");
    let pods = [user("runs", "data", Some("n1")), user("waits", "data", None)];
    let mut all = objects(&pods, &[claim], &[leaving], &[]);
    all.nodes = vec![serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()];
    let deleted = "persistent volume \"pv-1\" of claim \"data\" is being deleted".to_owned();
    assert_eq!(problems(&all, Source::Files), [("runs".into(), None), ("waits".into(), Some(deleted))]);
}

#[test]
fn the_newest_default_class_is_used() {
    let mut classes = [class("a", "Immediate", true), class("b", "WaitForFirstConsumer", true)];
    for (class, year) in classes.iter_mut().zip([2024, 2025]) {
        class["metadata"]["creationTimestamp"] = json!(format!("{year}-01-01T00:00:00Z"));
    }
    assert_eq!(topology(&[claim(&json!({}), "Pending")], &[], &classes).problem, None);
    let mut old = claim(&json!({}), "Pending");
    old["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "a"});
    let problem = topology(&[old], &[], &classes).problem;
    assert_eq!(problem.as_deref(), Some("claim \"data\" is not bound yet, and its storage class binds at once"));
}

#[test]
fn a_class_without_provisioner_needs_a_suitable_free_volume() {
    let mut by_hand = class("by-hand", "WaitForFirstConsumer", false);
    by_hand["provisioner"] = json!("kubernetes.io/no-provisioner");
    let wanted = claim(
        &json!({"storageClassName": "by-hand", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}}}),
        "Pending",
    );
    let free = |zone: &str, size: &str, class: &str, mode: &str| {
        let affinity = json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]}});
        json!({"metadata": {"name": format!("pv-{zone}")}, "spec": {"storageClassName": class, "accessModes": [mode],
            "capacity": {"storage": size}, "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}, "nodeAffinity": affinity}})
    };
    let mut taken = free("e", "20Gi", "by-hand", "ReadWriteOnce");
    taken["spec"]["claimRef"] = json!({"namespace": "other", "name": "data"});
    let volumes = [
        free("a", "20Gi", "by-hand", "ReadWriteOnce"),
        free("b", "5Gi", "by-hand", "ReadWriteOnce"),
        free("c", "20Gi", "other", "ReadWriteOnce"),
        free("d", "20Gi", "by-hand", "ReadOnlyMany"),
        taken,
    ];
    let result = topology(std::slice::from_ref(&wanted), &volumes, std::slice::from_ref(&by_hand));
    assert_eq!(zones(&result), [["a"]]);
    let problem = topology(&[wanted], &volumes[1..], &[by_hand]).problem.unwrap();
    assert!(problem.contains("no free one suits"), "{problem}");
}

#[test]
fn claim_names_are_in_the_shape_only_if_shared() {
    let classes = [class("slow", "WaitForFirstConsumer", false)];
    let named = |name: &str| {
        let mut claim = claim(&json!({"storageClassName": "slow"}), "Pending");
        claim["metadata"]["name"] = json!(name);
        claim
    };
    let claims = [named("data-0"), named("data-1"), named("both")];
    let pods = [user("a", "data-0", None), user("b", "data-1", None), user("c", "both", None), user("d", "both", None)];
    let build = |pods: &[Value]| {
        let all = objects(pods, &claims, &[], &classes);
        crate::build(&all, &Extra { source: Source::Files, ..Extra::default() }).0
    };
    assert_eq!(build(&pods[..2]).shapes.len(), 1);
    let names: Vec<_> = build(&pods).shapes.iter().map(|shape| shape.volumes[0].claim.clone()).collect();
    assert_eq!(names.iter().filter(|name| *name == "both").count(), 1, "{names:?}");
    assert_eq!(names.len(), 2);
}

#[test]
fn a_read_write_once_pod_claim_belongs_to_the_pod_that_has_it() {
    let classes = [class("slow", "WaitForFirstConsumer", false)];
    let spec = json!({"storageClassName": "slow", "accessModes": ["ReadWriteOncePod"]});
    let mut pods = [user("a", "data", None), user("b", "data", None)];
    pods[1]["spec"]["priority"] = json!(5);
    let mut gated = user("0", "data", None);
    gated["spec"]["priority"] = json!(9);
    gated["spec"]["schedulingGates"] = json!([{"name": "quota"}]);
    let pods = [pods.as_slice(), &[gated]].concat();
    let mut all = objects(&pods, &[claim(&spec, "Pending")], &[], &classes);
    let refused = |by: &str| Some(format!("persistent volume claim \"data\" is for one pod only, and pod {by} has it"));
    assert_eq!(problems(&all, Source::Files), [("a".into(), refused("b")), ("b".into(), None)]);
    all.pods.push(serde_json::from_value(user("c", "data", Some("n1"))).unwrap());
    all.nodes = vec![serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()];
    let all = problems(&all, Source::Files);
    assert_eq!(all, [("a".into(), refused("c")), ("b".into(), refused("c")), ("c".into(), None)]);
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_named_after_its_pod() {
    let classes = [class("slow", "WaitForFirstConsumer", true)];
    let mut pod = user("web", "data", None);
    pod["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    let mut made = claim(&json!({"storageClassName": "none"}), "Pending");
    made["metadata"]["name"] = json!("web-scratch");
    let of = |claims: &[Value], source| {
        let all = objects(std::slice::from_ref(&pod), claims, &[], &classes);
        problems(&all, source)[0].1.clone()
    };
    assert_eq!(of(&[], Source::Files), None, "made from the template");
    let missing = Some(
        "storage class \"none\" of claim \"web-scratch\" not found in the input; add pvc, pv and sc to it".to_owned(),
    );
    assert_eq!(of(std::slice::from_ref(&made), Source::Files), missing, "the claim itself counts");
    made["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "1"}]);
    let foreign = Some("persistent volume claim \"web-scratch\" was not made for this pod".to_owned());
    assert_eq!(of(&[made], Source::Files), foreign);
}

#[test]
fn in_a_cluster_a_claim_is_bound_once_annotated() {
    let mut pod = user("web", "data", None);
    pod["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
    let volume = volume(&json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}}));
    let mut bound = claim(&json!({"volumeName": "pv-1"}), "Pending");
    let of = |claim: &Value| {
        let all = objects(std::slice::from_ref(&pod), std::slice::from_ref(claim), std::slice::from_ref(&volume), &[]);
        problems(&all, Source::Cluster)[0].1.clone()
    };
    assert_eq!(of(&bound).as_deref(), Some("persistent volume claim \"data\" is being bound to \"pv-1\""));
    bound["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    assert_eq!(of(&bound), None);
}

#[test]
fn attach_limits_come_from_csi_nodes() {
    let drivers = json!([{"name": "ebs.csi.aws.com", "nodeID": "i", "allocatable": {"count": 24}},
        {"name": "efs.csi.aws.com", "nodeID": "i"}]);
    let all = Objects {
        nodes: vec![serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()],
        csi_nodes: vec![
            serde_json::from_value(json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})).unwrap(),
        ],
        ..Objects::default()
    };
    let (snapshot, _) = crate::build(&all, &Extra::default());
    let allocatable: Vec<(&str, i64)> = snapshot.nodes[0].allocatable.iter().collect();
    assert_eq!(allocatable, [("attachable-volumes-csi-ebs.csi.aws.com", 24)]);
}

#[test]
fn the_driver_of_a_volume_that_is_attached_is_known() {
    let mut agent = user("agent", "none", Some("n1"));
    agent["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    let template = json!({"spec": agent["spec"]});
    agent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u"}]);
    let mut ending = claim(&json!({"volumeName": "pv-1"}), "Bound");
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let classes = [class("usual", "WaitForFirstConsumer", true)];
    let csi = volume(&json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}}));
    let mut all = objects(&[agent, user("web", "data", Some("n1"))], &[ending], &[csi], &classes);
    all.nodes = vec![serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()];
    let set =
        json!({"metadata": {"namespace": "shop", "name": "agent"}, "spec": {"selector": {}, "template": template}});
    all.daemon_sets = vec![serde_json::from_value(set).unwrap()];
    let (snapshot, faults) = crate::build(&all, &Extra { source: Source::Files, ..Extra::default() });
    assert_eq!(faults, []);
    let volume = |id: &ShapeId| {
        let shape = snapshot.shapes.iter().find(|shape| shape.id == *id).unwrap();
        shape.volumes[0].clone()
    };
    let pod = |name: &str| volume(&snapshot.pods.iter().find(|pod| pod.name == name).unwrap().shape);
    let agents = [pod("agent"), volume(&snapshot.daemon_sets[0].shape)];
    for volume in agents {
        assert_eq!((volume.driver.as_str(), volume.alternatives, volume.problem), ("ebs.csi.aws.com", vec![], None));
    }
    let problem = Some("persistent volume claim \"data\" is being deleted".to_owned());
    assert_eq!((pod("web").driver.as_str(), pod("web").problem), ("ebs.csi.aws.com", problem));
}

#[test]
fn each_volume_that_must_be_attached_elsewhere_makes_an_eviction_dearer() {
    let affinity = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}});
    let zonal = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}, "nodeAffinity": affinity});
    let anywhere = json!({"csi": {"driver": "efs.csi.aws.com", "volumeHandle": "v"}});
    let named = |mut object: Value, name: &str| {
        object["metadata"]["name"] = json!(name);
        object
    };
    let bound = |name: &str| named(claim(&json!({"volumeName": name}), "Bound"), name);
    let claims = ["log", "data", "shared"].map(bound);
    let volumes = [("log", &zonal), ("data", &zonal), ("shared", &anywhere)];
    let volumes = volumes.map(|(name, spec)| named(volume(spec), name));
    let cost = |used: &[&str], deletion_cost: &str| {
        let mut pod = user("web", "none", Some("n1"));
        let of_claims = used.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        pod["spec"]["volumes"] = of_claims.chain([json!({"name": "scratch", "emptyDir": {}})]).collect();
        pod["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": deletion_cost});
        let mut all = objects(&[pod], &claims, &volumes, &[]);
        all.nodes = vec![serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()];
        let (snapshot, problems) = crate::build(&all, &Extra { source: Source::Files, ..Extra::default() });
        assert_eq!(problems, []);
        snapshot.pods[0].eviction_cost_milli
    };
    assert_eq!(cost(&[], "0"), 1000);
    assert_eq!(cost(&["log"], "0"), 2000);
    assert_eq!(cost(&["log", "data", "shared"], "0"), 3000, "any node can mount the last one");
    assert_eq!(cost(&["log", "data"], "134217728"), 4000);
    assert_eq!(cost(&["log", "data"], "1342177280"), 10_000, "the greatest cost");
}
