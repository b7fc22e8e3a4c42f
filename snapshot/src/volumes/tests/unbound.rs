//! Claims without a volume.

use super::{claim, class, objects, user};
use crate::{Extra, Objects, Source};
use plimsoll_model::snapshot::VolumeTopology;
use serde_json::{Value, json};

/// Topology of the first volume of pod `web`.
fn of_web(all: &Objects, source: Source) -> VolumeTopology {
    let (snapshot, faults) = crate::build(all, &Extra { source, ..Extra::default() });
    assert_eq!(faults, []);
    let pod = snapshot.pods.iter().find(|pod| pod.name == "web").unwrap();
    snapshot.shapes.iter().find(|shape| shape.id == pod.shape).unwrap().volumes[0].clone()
}

/// The alternatives as text.
fn places(topology: &VolumeTopology) -> Vec<String> {
    assert_eq!(topology.problem, None);
    let text = |term: &plimsoll_model::requirements::NodeSelectorTerm| {
        term.expressions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
    };
    topology.alternatives.iter().map(text).collect()
}

fn with_node(mut all: Objects, name: &str) -> Objects {
    let node: Value =
        json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": format!("{name}.internal")}}});
    all.nodes.push(serde_json::from_value(node).unwrap());
    all
}

#[test]
fn the_volume_is_provisioned_for_the_selected_node_while_that_exists() {
    let mut selected = claim(&json!({"storageClassName": "usual"}), "Pending");
    selected["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "n1"});
    let mut anywhere = class("usual", "WaitForFirstConsumer", false);
    anywhere["allowedTopologies"] = json!([]);
    let all = || objects(&[user("web", "data", None)], std::slice::from_ref(&selected), &[], &[anywhere.clone()]);
    let of = |name: &str| places(&of_web(&with_node(all(), name), Source::Files));
    assert_eq!(of("n1"), ["kubernetes.io/hostname In [n1.internal]"]);
    assert_eq!(of("n2"), [""; 0], "the provisioner removes the annotation");
}

/// A volume of 10 Gi in the zone.
fn free(name: &str, zone: &str, class: &str) -> Value {
    let expression = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
    json!({"metadata": {"name": name}, "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"}, "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": name},
        "nodeAffinity": affinity}})
}

#[test]
fn a_claim_from_a_file_without_a_status_is_bound_as_the_control_plane_would() {
    let classes = [class("at-once", "Immediate", false), class("waits", "WaitForFirstConsumer", false)];
    let mut reserved = free("pv-r", "r", "other");
    reserved["spec"]["claimRef"] = json!({"namespace": "shop", "name": "data"});
    let of = |class: &str, volumes: &[Value]| {
        let mut claim = claim(&json!({"storageClassName": class, "accessModes": ["ReadWriteOnce"]}), "Pending");
        claim.as_object_mut().unwrap().remove("status");
        of_web(&objects(&[user("web", "data", None)], &[claim], volumes, &classes), Source::Files)
    };
    let zone = |zone: &str| vec![format!("topology.kubernetes.io/zone In [{zone}]")];
    let volumes = ["", "manual", "at-once", "waits"].map(|class| free(&format!("pv-{class}"), class, class));
    assert_eq!(places(&of("manual", &volumes)), zone("manual"), "no class is needed");
    assert_eq!(places(&of("", &volumes)), zone(""));
    assert_eq!(places(&of("at-once", &volumes)), zone("at-once"));
    assert_eq!(places(&of("at-once", &[])), ["topology.kubernetes.io/zone In [a, b]"], "the volume is provisioned");
    assert_eq!(places(&of("waits", &volumes)), ["topology.kubernetes.io/zone In [a, b]"]);
    for class in ["", "manual", "at-once", "waits"] {
        let all = [volumes.as_slice(), &[reserved.clone()]].concat();
        assert_eq!(places(&of(class, &all)), zone("r"), "{class}");
    }
    let problem = of("manual", &[]).problem.unwrap();
    assert!(problem.starts_with("storage class \"manual\" of claim \"data\" not found"), "{problem}");
}

#[test]
fn local_volumes_may_come_with_a_node_unless_its_volumes_are_taken() {
    let mut local = class("local", "WaitForFirstConsumer", false);
    local["provisioner"] = json!("kubernetes.io/no-provisioner");
    let on_node = |name: &str, node: &str, size: &str, taken: bool| {
        let mut volume = free(name, "", "local");
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        volume["spec"]["nodeAffinity"] =
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
        volume["spec"]["local"] = json!({"path": "/mnt"});
        volume["spec"]["capacity"]["storage"] = json!(size);
        if taken {
            volume["spec"]["claimRef"] = json!({"namespace": "shop", "name": "other"});
        }
        volume
    };
    let spec = json!({"storageClassName": "local", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}}});
    let of = |volumes: &[Value], local: &Value| {
        let (pod, claim) = (user("web", "data", None), claim(&spec, "Pending"));
        of_web(&objects(&[pod], &[claim], volumes, std::slice::from_ref(local)), Source::Files)
    };
    let anywhere = "topology.kubernetes.io/zone In [a, b]".to_owned();
    assert_eq!(places(&of(&[], &local)), [anywhere.as_str()]);
    let taken = on_node("v1", "n1", "10Gi", true);
    let elsewhere = format!("{anywhere} and kubernetes.io/hostname NotIn [n1]");
    assert_eq!(places(&of(std::slice::from_ref(&taken), &local)), [elsewhere.as_str()]);
    let both = [taken.clone(), on_node("v2", "n1", "10Gi", false)];
    assert_eq!(places(&of(&both, &local)), ["kubernetes.io/hostname In [n1]", anywhere.as_str()]);
    // No node is launched after one whose volumes are too small.
    let small = [taken, on_node("v2", "n2", "5Gi", false)];
    assert_eq!(places(&of(&small, &local)), [elsewhere.as_str()]);
    let problem = of(&[free("v1", "b", "other")], &local).problem;
    assert_eq!(problem, None, "the class has no volumes");
    let mut reserved = free("v1", "a", "local");
    reserved["spec"]["claimRef"] = json!({"namespace": "shop", "name": "other"});
    let problem = of(&[reserved], &local).problem.unwrap();
    assert!(problem.contains("no free one suits"), "volumes of the class are on no node: {problem}");
    local["volumeBindingMode"] = json!("Immediate");
    assert!(of(&[], &local).problem.is_some());
}

#[test]
fn a_claim_is_bound_only_to_a_volume_that_is_free_and_what_it_asks_for() {
    let mut by_hand = class("by-hand", "WaitForFirstConsumer", false);
    by_hand["provisioner"] = json!("kubernetes.io/no-provisioner");
    let suits = |change: fn(&mut Value, &mut Value)| {
        let mut volume = free("v1", "a", "by-hand");
        let mut claim = claim(&json!({"storageClassName": "by-hand", "accessModes": ["ReadWriteOnce"]}), "Pending");
        change(&mut volume, &mut claim);
        let all = objects(&[user("web", "data", None)], &[claim], &[volume], std::slice::from_ref(&by_hand));
        of_web(&all, Source::Files).problem.is_none()
    };
    assert!(suits(|_, _| {}));
    assert!(!suits(|volume, _| volume["spec"]["volumeMode"] = json!("Block")));
    assert!(suits(|volume, _| volume["spec"]["volumeMode"] = json!("Filesystem")), "the default");
    assert!(!suits(|volume, _| volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")));
    assert!(!suits(|volume, _| volume["status"] = json!({"phase": "Released"})));
    assert!(suits(|volume, _| volume["status"] = json!({"phase": "Available"})));
    assert!(!suits(|_, claim| claim["spec"]["selector"] = json!({"matchLabels": {"disk": "ssd"}})));
    let selected = |volume: &mut Value, claim: &mut Value| {
        claim["spec"]["selector"] = json!({"matchLabels": {"disk": "ssd"}});
        volume["metadata"]["labels"] = json!({"disk": "ssd"});
    };
    assert!(suits(selected));
    // The volume has 10 Gi.
    assert!(suits(|_, claim| claim["spec"]["resources"] = json!({"requests": {"storage": "10Gi"}})));
    assert!(!suits(|_, claim| claim["spec"]["resources"] = json!({"requests": {"storage": "11Gi"}})));
    let unknown = |volume: &mut Value, claim: &mut Value| {
        claim["spec"]["resources"] = json!({"requests": {"storage": "1Gi"}});
        volume["spec"]["capacity"] = json!({});
    };
    assert!(!suits(unknown));
}

#[test]
fn the_former_driver_of_ebs_is_known_by_its_present_name() {
    let mut in_tree = class("in-tree", "WaitForFirstConsumer", true);
    in_tree["provisioner"] = json!("kubernetes.io/aws-ebs");
    let all = objects(&[user("web", "data", None)], &[claim(&json!({}), "Pending")], &[], &[in_tree]);
    assert_eq!(of_web(&all, Source::Files).driver, "ebs.csi.aws.com");
}
