//! Rules that do not depend on topology: node state, ports, resources, and the order of pods.

use super::{node, pod, selector, shape, snapshot};
use crate::{ClusterState, Nominated, Rejection};
use plimsoll_model::identity::NodeName;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{
    HostPort, Node, NodeState, Pod, PodShape, PodState, PreferredTerm, Snapshot, SnapshotIndex, TopologySpread,
    VolumeTopology,
};
use plimsoll_model::taints::{Taint, TaintEffect, Toleration, TolerationOperator};
use plimsoll_model::time::Timestamp;

fn bound(node: &str) -> PodState {
    PodState::Bound(NodeName::from(node))
}

fn state(snapshot: &Snapshot) -> ClusterState {
    ClusterState::new(snapshot, &SnapshotIndex::new(snapshot))
}

/// The verdict of the only node on the only pending pod.
fn verdict(node: Node, others: Vec<(&str, PodShape, PodState)>, pending: PodShape) -> Result<(), Rejection> {
    let mut pods = others;
    pods.push(("pending", pending, PodState::Pending));
    let state = state(&snapshot(vec![node], pods));
    state.filter(state.pods()[0].shape, 0, &Nominated::default())
}

fn with_port(mut shape: PodShape, ip: &str) -> PodShape {
    shape.host_ports = vec![HostPort { ip: ip.into(), port: 80, protocol: "TCP".into() }];
    shape
}

#[test]
fn the_node_itself() {
    let web = || shape("web", 1000);
    let in_zone = |zone: &str| NodeSelectorTerm {
        expressions: vec![NodeSelectorRequirement::new("zone", Operator::In, [zone])],
        fields: Vec::new(),
    };
    let plain = || node("n", &[("zone", "a")]);
    assert_eq!(verdict(plain(), vec![], web()), Ok(()));
    assert_eq!(verdict(Node { cordoned: true, ..plain() }, vec![], web()), Err(Rejection::Unschedulable));
    assert_eq!(verdict(Node { deleting: true, ..plain() }, vec![], web()), Err(Rejection::Unschedulable));
    assert_eq!(verdict(Node { ready: false, ..plain() }, vec![], web()), Err(Rejection::NotReady));
    let taint = |effect| Taint { key: "dedicated".into(), value: String::new(), effect };
    for (effect, expected) in [
        (TaintEffect::NoSchedule, Err(Rejection::Taint)),
        (TaintEffect::NoExecute, Err(Rejection::Taint)),
        (TaintEffect::PreferNoSchedule, Ok(())),
    ] {
        assert_eq!(verdict(Node { taints: vec![taint(effect)], ..plain() }, vec![], web()), expected, "{effect:?}");
    }
    let elsewhere = PodShape { required_node_affinity: vec![in_zone("b")], ..web() };
    assert_eq!(verdict(plain(), vec![], elsewhere), Err(Rejection::NodeAffinity));
    let volume = |zone| VolumeTopology {
        claim: "data".into(),
        driver: "disk".into(),
        alternatives: vec![in_zone(zone)],
        problem: None,
    };
    assert_eq!(verdict(plain(), vec![], PodShape { volumes: vec![volume("a")], ..web() }), Ok(()));
    let far = PodShape { volumes: vec![volume("b")], ..web() };
    assert_eq!(verdict(plain(), vec![], far), Err(Rejection::VolumeAffinity));
    let unknown = VolumeTopology { alternatives: vec![], problem: Some("claim not found".into()), ..volume("a") };
    let unknown = PodShape { volumes: vec![unknown], ..web() };
    assert_eq!(verdict(plain(), vec![], unknown), Err(Rejection::VolumeAffinity));
}

#[test]
fn ports_and_resources_of_the_pods_that_are_there() {
    let there = |shape| vec![("there", shape, bound("n"))];
    let web = || shape("web", 1000);
    let plain = || node("n", &[]);
    assert_eq!(verdict(plain(), there(shape("big", 3000)), web()), Ok(()));
    assert_eq!(verdict(plain(), there(shape("big", 3001)), web()), Err(Rejection::Resources));
    let reserved = vec![("coming", shape("big", 3001), PodState::Reserved(NodeName::from("n")))];
    assert_eq!(verdict(plain(), reserved, web()), Err(Rejection::Resources), "a reserved pod uses resources");
    let own = |ip| with_port(web(), ip);
    assert_eq!(verdict(plain(), there(with_port(shape("other", 1), "10.0.0.1")), own("10.0.0.2")), Ok(()));
    let everywhere = there(with_port(shape("other", 1), "0.0.0.0"));
    assert_eq!(verdict(plain(), everywhere, own("10.0.0.2")), Err(Rejection::HostPorts));
}

#[test]
fn a_node_takes_only_so_many_volumes_and_a_shared_claim_counts_once() {
    let with_volume = |claim: &str| {
        let (driver, alternatives) = ("disk".to_owned(), Vec::new());
        let volumes = vec![VolumeTopology { claim: claim.into(), driver, alternatives, problem: None }];
        PodShape { volumes, ..shape("db", 1) }
    };
    let mut limited = node("n", &[]);
    limited.allocatable.set("attachable-volumes-csi-disk", 1);
    assert_eq!(verdict(limited.clone(), vec![], with_volume("a")), Ok(()));
    let other = vec![("there", with_volume("b"), bound("n"))];
    assert_eq!(verdict(limited.clone(), other, with_volume("a")), Err(Rejection::Resources));
    let same = vec![("there", with_volume("a"), bound("n"))];
    assert_eq!(verdict(limited, same, with_volume("a")), Ok(()));
}

#[test]
fn nominated_pods_take_room_and_ports() {
    let small = shape("small", 1500);
    let pods = vec![("a", small.clone(), PodState::Pending), ("b", with_port(small, "0.0.0.0"), PodState::Pending)];
    let state = state(&snapshot(vec![node("n", &[])], pods));
    let [first, second] = state.pods() else { panic!("two pods are pending") };
    let filter = |nominated: &[usize]| {
        let mut pods = Nominated::default();
        nominated.iter().for_each(|shape| pods.add(*shape));
        state.filter(second.shape, 0, &pods)
    };
    assert_eq!(filter(&[first.shape]), Ok(()));
    assert_eq!(filter(&[first.shape, first.shape]), Err(Rejection::Resources));
    assert_eq!(filter(&[second.shape]), Err(Rejection::HostPorts));
    assert_eq!(state.insufficient(second.shape, 0, &Nominated::default()).count(), 0);
    let mut both = Nominated::default();
    (0..2).for_each(|_| both.add(first.shape));
    assert_eq!(state.insufficient(second.shape, 0, &both).collect::<Vec<_>>(), ["cpu"]);
}

/// A pod, and one node on which a DaemonSet's pod does not run yet.
fn beside_a_daemon_set(pod: PodShape, agent: PodShape, node: Node) -> Snapshot {
    let mut facts = snapshot(vec![node], vec![("a", pod, PodState::Pending)]);
    let agent = PodShape { id: agent.content_id(), ..agent };
    facts.daemon_sets = vec![plimsoll_model::snapshot::DaemonSet {
        uid: "agent".into(),
        namespace: "default".into(),
        name: "agent".into(),
        shape: agent.id.clone(),
    }];
    facts.shapes.push(agent);
    facts.sort();
    facts
}

#[test]
fn the_host_ports_of_daemon_sets_are_kept_until_a_node_is_initialized() {
    let with_port = |name: &str| with_port(shape(name, 100), "0.0.0.0");
    for (node_state, expected) in [(NodeState::Registered, Err(Rejection::HostPorts)), (NodeState::Initialized, Ok(()))]
    {
        let node = Node { state: node_state, ..node("n", &[]) };
        let facts = beside_a_daemon_set(with_port("web"), with_port("agent"), node);
        let state = state(&facts);
        assert_eq!(state.filter(state.pods()[0].shape, 0, &Nominated::default()), expected);
    }
}

#[test]
fn room_for_pods_of_daemon_sets_is_kept() {
    let facts = beside_a_daemon_set(shape("web", 3500), shape("agent", 1000), node("n", &[]));
    let state = state(&facts);
    let web = state.pods()[0].shape;
    assert_eq!(state.filter(web, 0, &Nominated::default()), Err(Rejection::Resources));
    assert_eq!(state.insufficient(web, 0, &Nominated::default()).collect::<Vec<_>>(), ["cpu"]);
}

#[test]
fn a_static_pod_is_no_pod_of_a_daemon_set() {
    let exists = |key: &str| Toleration {
        key: key.into(),
        operator: TolerationOperator::Exists,
        value: String::new(),
        effect: Some(TaintEffect::NoExecute),
    };
    let of_controller = vec![exists(""), exists("node.kubernetes.io/not-ready")];
    for (tolerations, expected) in [(vec![exists("")], Err(Rejection::Resources)), (of_controller, Ok(()))] {
        let mut facts = beside_a_daemon_set(shape("web", 2500), shape("agent", 1000), node("n", &[]));
        let there = PodShape { tolerations, ..shape("there", 1000) };
        let there = PodShape { id: there.content_id(), ..there };
        facts.pods.push(Pod { stays_with_node: true, ..pod("there", &there, bound("n")) });
        facts.shapes.push(there);
        facts.sort();
        let state = state(&facts);
        assert_eq!(state.filter(state.pods()[0].shape, 0, &Nominated::default()), expected);
    }
}

#[test]
fn pods_are_queued_by_priority_then_age_then_name() {
    let high = PodShape { priority: 7, ..shape("high", 1) };
    let low = || shape("low", 1);
    let mut facts = snapshot(
        vec![],
        vec![
            ("web-10", low(), PodState::Pending),
            ("web-2", low(), PodState::Pending),
            ("old", low(), PodState::Pending),
            ("late", high, PodState::Pending),
            ("there", low(), bound("n")),
        ],
    );
    for pod in &mut facts.pods {
        pod.created = Timestamp(if pod.name == "old" { 1 } else { 2 });
    }
    let names: Vec<_> = state(&facts).pods().iter().map(|pod| pod.uid.0.clone()).collect();
    assert_eq!(names, ["late", "old", "web-2", "web-10"]);
}

#[test]
fn scores_prefer_preferred_nodes_and_empty_ones() {
    let term = NodeSelectorTerm {
        expressions: vec![NodeSelectorRequirement::new("zone", Operator::In, ["b"])],
        fields: Vec::new(),
    };
    let picky = PodShape { preferred_node_affinity: vec![PreferredTerm { weight: 1, term }], ..shape("picky", 100) };
    let nodes = vec![node("a", &[("zone", "a")]), node("b", &[("zone", "b")]), node("c", &[("zone", "c")])];
    let there = ("there", shape("big", 2000), bound("a"));
    let state = state(&snapshot(nodes, vec![there, ("picky", picky, PodState::Pending)]));
    let scores = state.scores(state.pods()[0].shape, &[0, 1, 2]);
    assert!(scores[1] > scores[2] && scores[2] > scores[0], "{scores:?}");
}

#[test]
fn a_resized_node_has_the_room_of_the_other_machine_until_it_is_rolled_back() {
    let facts = snapshot(vec![node("n", &[])], vec![("a", shape("big", 5000), PodState::Pending)]);
    let mut state = state(&facts);
    let big = state.pods()[0].shape;
    let larger = state.resized(0, &Resources::from([("cpu", 8000), ("pods", 10)]));
    let before = state.checkpoint();
    state.resize(0, larger);
    assert_eq!(state.filter(big, 0, &Nominated::default()), Ok(()));
    state.rollback(before);
    assert_eq!(state.filter(big, 0, &Nominated::default()), Err(Rejection::Resources));
}

#[test]
fn all_pending_pods_are_scheduled_in_order_each_beside_those_before() {
    let spread = TopologySpread {
        topology_key: "zone".into(),
        max_skew: 1,
        min_domains: None,
        required: true,
        selector: Some(selector("web")),
        honor_node_affinity: true,
        honor_node_taints: false,
    };
    let web = || PodShape { topology_spread: vec![spread.clone()], ..shape("web", 1000) };
    let first = PodShape { priority: 7, ..shape("first", 3500) };
    let nodes = vec![node("a", &[("zone", "a")]), node("b", &[("zone", "b")])];
    let pods = ["w1", "w2", "w3", "w4"].map(|name| (name, web(), PodState::Pending)).into_iter();
    let facts = snapshot(nodes, pods.chain([("first", first, PodState::Pending)]).collect());
    let mut state = state(&facts);
    // The first pod leaves too few resources in its zone for the others. Only one further pod fits within the skew, in
    // the other zone.
    let shapes: Vec<usize> = state.pods().iter().map(|pod| pod.shape).collect();
    let assignment: Vec<Option<usize>> = shapes.into_iter().map(|shape| state.schedule(shape)).collect();
    assert_eq!(assignment.iter().flatten().count(), 2, "{assignment:?}");
    assert!(assignment[0].is_some() && assignment[1].is_some() && assignment[0] != assignment[1], "{assignment:?}");
}
