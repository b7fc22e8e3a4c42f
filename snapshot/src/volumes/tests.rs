use crate::{Extra, Objects, Source};
use plimsoll_model::snapshot::VolumeTopology;
use serde_json::{Value, json};

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

/// The topology of the one volume `data` of a pod.
fn topology(claims: &[Value], volumes: &[Value], classes: &[Value]) -> VolumeTopology {
    let pod = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {"containers": [{"name": "app"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    let objects = Objects {
        pods: vec![serde_json::from_value(pod).unwrap()],
        persistent_volume_claims: claims.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        persistent_volumes: volumes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        storage_classes: classes.iter().map(|it| serde_json::from_value(it.clone()).unwrap()).collect(),
        ..Objects::default()
    };
    let (snapshot, problems) = crate::build(&objects, &Extra { source: Source::Files, ..Extra::default() });
    assert_eq!(problems, []);
    let [topology] = &snapshot.shapes[0].volumes[..] else { panic!("{:?}", snapshot.shapes[0].volumes) };
    topology.clone()
}

/// Values by alternative.
fn zones(topology: &VolumeTopology) -> Vec<Vec<&str>> {
    topology
        .alternatives
        .iter()
        .map(|term| term.expressions.iter().flat_map(|it| it.values.iter().map(String::as_str)).collect())
        .collect()
}

#[test]
fn a_bound_volume_says_where_it_can_be_attached() {
    let affinity = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}});
    let spec = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}, "nodeAffinity": affinity});
    let found = topology(&[claim(&json!({"volumeName": "pv-1"}), "Bound")], &[volume(&spec)], &[]);
    assert_eq!((found.driver.as_str(), zones(&found), &found.problem), ("ebs.csi.aws.com", vec![vec!["a"]], &None));
}

#[test]
fn a_volume_on_a_nodes_own_disk_does_not_tie_to_the_nodes_name() {
    let affinity = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]}});
    let spec = json!({"local": {"path": "/data"}, "nodeAffinity": affinity});
    let found = topology(&[claim(&json!({"volumeName": "pv-1"}), "Bound")], &[volume(&spec)], &[]);
    assert_eq!((found.alternatives, found.problem), (Vec::new(), None));
}

#[test]
fn a_volume_that_is_made_where_its_pod_goes_is_bound_by_its_class() {
    let classes = [class("slow", "WaitForFirstConsumer", false), class("usual", "WaitForFirstConsumer", true)];
    for spec in [json!({"storageClassName": "slow"}), json!({})] {
        let found = topology(&[claim(&spec, "Pending")], &[], &classes);
        assert_eq!((zones(&found), &found.problem), (vec![vec!["a", "b"]], &None), "{spec}");
    }
}

#[test]
fn volumes_that_cannot_be_attached_say_why() {
    let table = [
        (vec![], vec![], "persistent volume claim \"data\" not found"),
        (
            vec![claim(&json!({"volumeName": "pv-1"}), "Lost")],
            vec![],
            "persistent volume claim \"data\" has lost its volume",
        ),
        (
            vec![claim(&json!({"volumeName": "pv-1"}), "Bound")],
            vec![],
            "persistent volume \"pv-1\" of claim \"data\" not found",
        ),
        (vec![claim(&json!({}), "Pending")], vec![], "claim \"data\" is not bound and has no storage class"),
        (
            vec![claim(&json!({"storageClassName": "x"}), "Pending")],
            vec![],
            "storage class \"x\" of claim \"data\" not found",
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
