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
