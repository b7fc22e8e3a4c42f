//! Tests of existing nodes.

use super::*;

#[test]
fn placed_pods_fit_on_existing_nodes() {
    rejected("node n9 is not in the snapshot", |case| case.plan.placements[0].node = NodeName::from("n9"));
    rejected("n1 has too little cpu", |case| case.node("n1").allocatable.set("cpu", 2999));
    rejected("n1 has too little pods", |case| case.node("n1").allocatable.set("pods", 2));
    rejected("pod ns/fits cannot run on n1: the node takes no new pods", |case| case.node("n1").cordoned = true);
    rejected("pod ns/fits cannot run on n3: the node takes no new pods", |case| {
        case.plan.placements[0].node = NodeName::from("n3");
    });
    rejected("pod ns/fits cannot run on n1: taint t=:NoExecute", |case| {
        let taint = Taint { key: "t".into(), value: String::new(), effect: TaintEffect::NoExecute };
        case.node("n1").taints.push(taint);
    });
    rejected("pod ns/moves cannot run on n1: node selector topology.kubernetes.io/zone=zone-b", |case| {
        case.reshape("moves", |shape| drop(shape.node_selector.insert(label::ZONE.into(), "zone-b".into())));
    });
    let port = HostPort { ip: "0.0.0.0".into(), port: 80, protocol: "TCP".into() };
    rejected("pod ns/fits cannot run on n1: host port", |case| {
        case.reshape("stays", |shape| shape.host_ports.push(port.clone()));
        let shape = case.pod("stays").shape.clone();
        case.pod("fits").shape = shape;
    });
    accepted(|case| {
        let taint = Taint { key: "t".into(), value: String::new(), effect: TaintEffect::PreferNoSchedule };
        case.node("n1").taints.push(taint);
    });
}
