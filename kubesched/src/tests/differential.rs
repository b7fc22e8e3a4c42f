//! Random clusters: `filter` against `plimsoll-invariants`, which judges plans without knowing this crate; and the undo
//! log.

use super::{node, selector, shape, snapshot};
use crate::{ClusterState, Nominated, Rejection};
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Placement, Plan, PodRef};
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::{
    HostPort, LabelSelector, Node, PodAffinityTerm, PodShape, PodState, Snapshot, SnapshotIndex, TopologySpread,
    VolumeTopology,
};
use plimsoll_model::taints::{Taint, TaintEffect, Toleration, TolerationOperator};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const APPS: [&str; 3] = ["web", "db", "cache"];
const ZONES: [&str; 3] = ["a", "b", "c"];
const NODES: usize = 5;

fn any_node(number: usize) -> impl Strategy<Value = Node> {
    let zone = prop::option::weighted(0.9, prop::sample::select(ZONES.to_vec()));
    (zone, any::<bool>(), 0..8_u8, 0..4_u8, 1..5_i64).prop_map(move |(zone, has_rack, special, size, volumes)| {
        let name = format!("n{number}");
        let mut labels = vec![(label::HOSTNAME, name.as_str())];
        labels.extend(zone.map(|zone| (label::ZONE, zone)));
        let size = size.to_string();
        labels.push(("size", &size));
        if has_rack {
            labels.push(("rack", if number.is_multiple_of(2) { "left" } else { "right" }));
        }
        let mut node = node(&name, &labels);
        node.allocatable.set("attachable-volumes-csi-disk", volumes);
        node.cordoned = special == 0;
        let effect = match special {
            1 => Some(TaintEffect::NoSchedule),
            2 => Some(TaintEffect::PreferNoSchedule),
            3 => Some(TaintEffect::NoExecute),
            _ => None,
        };
        node.taints.extend(effect.map(|effect| Taint { key: "dedicated".into(), value: "x".into(), effect }));
        node
    })
}

/// Includes selectors by expressions, some of them invalid.
fn any_selector() -> impl Strategy<Value = LabelSelector> {
    let expression = (0..4_u8, prop::sample::select(APPS.to_vec())).prop_map(|(operator, app)| match operator {
        0 => NodeSelectorRequirement::new("app", Operator::In, [app]),
        1 => NodeSelectorRequirement::new("app", Operator::NotIn, [app]),
        2 => NodeSelectorRequirement::new("tier", Operator::Exists, [""; 0]),
        _ => NodeSelectorRequirement::new("tier", Operator::DoesNotExist, [""; 0]),
    });
    let by_app = prop::sample::select(APPS.to_vec()).prop_map(selector);
    let by_expression = expression
        .prop_map(|expression| LabelSelector { match_labels: BTreeMap::new(), match_expressions: vec![expression] });
    prop_oneof![3 => by_app, 1 => by_expression]
}

fn any_spread() -> impl Strategy<Value = TopologySpread> {
    let key = prop::sample::select(vec![label::ZONE, label::HOSTNAME, "rack"]);
    let honor = (any::<bool>(), any::<bool>());
    (key, 1..3_i32, prop::option::of(1..5_i32), any_selector(), honor, 0..4_u8).prop_map(
        |(key, max_skew, min_domains, selector, (honor_node_affinity, honor_node_taints), preferred)| TopologySpread {
            topology_key: key.into(),
            max_skew,
            min_domains,
            required: preferred > 0,
            selector: Some(selector),
            honor_node_affinity,
            honor_node_taints,
        },
    )
}

fn any_affinity() -> impl Strategy<Value = PodAffinityTerm> {
    let key = prop::sample::select(vec![label::ZONE, label::HOSTNAME]);
    (key, any::<bool>(), prop::option::weighted(0.2, 1..100_i32), any_selector(), any::<bool>()).prop_map(
        |(key, anti, weight, selector, other)| PodAffinityTerm {
            anti,
            weight,
            topology_key: key.into(),
            selector: Some(selector),
            namespaces: vec![if other { "other".into() } else { "default".into() }],
        },
    )
}

/// Adds requirements on nodes to a shape.
fn choose_nodes(shape: &mut PodShape, choice: u8, zone: &str) {
    let term = |key: &str, operator, value: &str| NodeSelectorTerm {
        expressions: vec![NodeSelectorRequirement::new(key, operator, [value])],
        fields: Vec::new(),
    };
    match choice {
        0 => shape.node_selector = [(label::ZONE.to_owned(), zone.to_owned())].into(),
        1 => shape.required_node_affinity = vec![term("size", Operator::Gt, "1"), term("rack", Operator::In, "left")],
        2 => shape.required_node_affinity = vec![term("rack", Operator::NotIn, "left")],
        3 => {
            let named = NodeSelectorRequirement::new("metadata.name", Operator::NotIn, ["n0"]);
            shape.required_node_affinity = vec![NodeSelectorTerm { expressions: Vec::new(), fields: vec![named] }];
        }
        4 => {
            let operator = TolerationOperator::Equal;
            shape.tolerations = vec![Toleration { key: "dedicated".into(), operator, value: "x".into(), effect: None }];
        }
        _ => {}
    }
}

fn any_shape() -> impl Strategy<Value = PodShape> {
    let app = prop::sample::select(APPS.to_vec());
    let zone = prop::sample::select(ZONES.to_vec());
    let company = (prop::collection::vec(any_spread(), 0..3), prop::collection::vec(any_affinity(), 0..2));
    (app, 1..20_i64, zone, 0..12_u8, company, 0..8_u8).prop_map(|(app, cores, zone, choice, company, special)| {
        let mut shape = shape(app, cores * 100);
        (shape.topology_spread, shape.pod_affinity) = company;
        choose_nodes(&mut shape, choice, zone);
        match special {
            0 => shape.host_ports = vec![HostPort { ip: "0.0.0.0".into(), port: 80, protocol: "TCP".into() }],
            1 => shape.host_ports = vec![HostPort { ip: "10.0.0.1".into(), port: 80, protocol: "TCP".into() }],
            2 => drop(shape.labels.insert("tier".into(), "front".into())),
            3 => shape.namespace = "other".into(),
            // invariants counts where volumes are as node affinity of spreads, kube-scheduler does not.
            4 | 5 if shape.topology_spread.is_empty() => {
                let zone = NodeSelectorRequirement::new(label::ZONE, Operator::In, [zone]);
                let near = NodeSelectorTerm { expressions: vec![zone], fields: Vec::new() };
                let alternatives = if special == 4 { vec![near] } else { Vec::new() };
                let (claim, driver) = (String::new(), "disk".to_owned());
                shape.volumes = vec![VolumeTopology { claim, driver, alternatives, problem: None }];
            }
            _ => {}
        }
        shape
    })
}

/// Nodes, pods on them, and a few pending pods.
fn any_cluster() -> impl Strategy<Value = Snapshot> {
    let nodes: Vec<_> = (0..NODES).map(any_node).collect();
    let bound = prop::collection::vec((any_shape(), 0..NODES), 0..8);
    (nodes, bound, prop::collection::vec(any_shape(), 1..4)).prop_map(|(nodes, bound, pending)| {
        let names: Vec<String> = (0..bound.len() + pending.len()).map(|number| format!("p{number}")).collect();
        let on = |node: usize| PodState::Bound(NodeName::from(format!("n{node}").as_str()));
        let bound = bound.into_iter().map(|(shape, node)| (shape, on(node)));
        let pods = bound.chain(pending.into_iter().map(|shape| (shape, PodState::Pending)));
        snapshot(
            nodes,
            names.iter().map(String::as_str).zip(pods).map(|(name, (shape, at))| (name, shape, at)).collect(),
        )
    })
}

/// For each pending pod and each node: the verdict of `filter`, and the violations of a plan that places only this pod
/// on this node.
fn compare(facts: &Snapshot) -> Vec<(Result<(), Rejection>, Vec<plimsoll_invariants::Violation>)> {
    let index = SnapshotIndex::new(facts);
    let state = ClusterState::new(facts, &index);
    let mut all = Vec::new();
    for slot in state.pods() {
        for node in 0..state.nodes() {
            let pods = vec![PodRef { name: slot.uid.0.clone(), uid: slot.uid.clone() }];
            let placements = vec![Placement { node: state.node_name(node).clone(), pods }];
            let plan = Plan { placements, ..Plan::default() };
            let violations = plimsoll_invariants::check_part(facts, &index, &BTreeMap::new(), &plan);
            all.push((state.filter(slot.shape, node, &Nominated::default()), violations));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_pod_is_admitted_where_a_plan_may_place_it_and_nowhere_else(facts in any_cluster()) {
        for (verdict, violations) in compare(&facts) {
            prop_assert_eq!(verdict.is_ok(), violations.is_empty(), "{:?} and {:?} of {:#?}", verdict, violations, facts);
        }
    }
}

proptest! {
    #[test]
    fn a_rollback_restores_all_verdicts_and_scores(
        facts in any_cluster(),
        places in prop::collection::vec((0..3_usize, 0..NODES), 1..20),
    ) {
        let mut state = ClusterState::new(&facts, &SnapshotIndex::new(&facts));
        let shapes: Vec<usize> = state.pods().iter().map(|slot| slot.shape).collect();
        let all = |state: &ClusterState| {
            let nodes: Vec<usize> = (0..NODES).collect();
            let of_shape = |shape: &usize| {
                let verdict = |node: &usize| state.filter(*shape, *node, &Nominated::default());
                (nodes.iter().map(verdict).collect::<Vec<_>>(), state.scores(*shape, &nodes))
            };
            shapes.iter().map(of_shape).collect::<Vec<_>>()
        };
        let (mut checkpoints, mut seen) = (Vec::new(), Vec::new());
        for (pod, node) in &places {
            checkpoints.push(state.checkpoint());
            seen.push(all(&state));
            state.bind(shapes[pod % shapes.len()], *node);
        }
        for (checkpoint, seen) in checkpoints.into_iter().zip(&seen).rev() {
            state.rollback(checkpoint);
            prop_assert_eq!(&all(&state), seen);
        }
        // Binds the same pods again, which detects counts that a rollback left wrong but that no verdict showed yet.
        for ((pod, node), seen) in places.iter().zip(&seen) {
            prop_assert_eq!(&all(&state), seen);
            state.bind(shapes[pod % shapes.len()], *node);
        }
    }
}

/// The property above is meaningful only if random clusters produce each verdict.
#[test]
fn random_clusters_meet_every_rule() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut met: BTreeSet<String> = BTreeSet::new();
    for _ in 0..500 {
        let facts = any_cluster().new_tree(&mut runner).unwrap().current();
        met.extend(compare(&facts).into_iter().map(|(verdict, _)| format!("{verdict:?}")));
    }
    for expected in [
        Ok(()),
        Err(Rejection::Unschedulable),
        Err(Rejection::Taint),
        Err(Rejection::NodeAffinity),
        Err(Rejection::HostPorts),
        Err(Rejection::Resources),
        Err(Rejection::VolumeAffinity),
        Err(Rejection::MissingTopologyLabel),
        Err(Rejection::TopologySpread),
        Err(Rejection::PodAffinity),
        Err(Rejection::PodAntiAffinity),
        Err(Rejection::ExistingPodAntiAffinity),
    ] {
        assert!(met.contains(&format!("{expected:?}")), "no random cluster produces {expected:?}");
    }
}
