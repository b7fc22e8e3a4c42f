//! Node labels with any legal value and requirements on them: plans are valid, and pods are placed where a simple rule
//! finds a node. [`Cluster::plan_with`] checks each plan.

use super::builder::*;
use super::properties::steady;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{
    NodeSelectorRequirement, NodeSelectorTerm, Operator, selector_matches, selects_node,
};
use plimsoll_model::snapshot::{NodePool, PodShape, TopologySpread};
use proptest::prelude::*;
use std::collections::BTreeSet;

const TEAM: &str = "team";
const WORKER: &str = "node-role.kubernetes.io/worker";
const CATEGORY: &str = "karpenter.k8s.aws/instance-category";
const CPU: &str = "karpenter.k8s.aws/instance-cpu";
const FAMILIES: [&str; 3] = ["c5", "m5", "r5"];
const TYPES: [&str; 4] = ["c5.large", "c5.2xlarge", "m5.xlarge", "r5.xlarge"];
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// An operator with its values.
type Asked = (Operator, &'static [&'static str]);

const TEAMS: &[Asked] = &[
    (Operator::In, &["a", "b"]),
    (Operator::In, &["", "a"]),
    (Operator::In, &["b", "7"]),
    (Operator::NotIn, &["a"]),
    (Operator::NotIn, &["0", "b"]),
    (Operator::Exists, &[]),
    (Operator::DoesNotExist, &[]),
    (Operator::Gt, &["5"]),
    (Operator::Lt, &["8"]),
];
const WORKERS: &[Asked] =
    &[(Operator::In, &[""]), (Operator::In, &["x"]), (Operator::Exists, &[]), (Operator::DoesNotExist, &[])];

fn any_of(key: &'static str, asked: &'static [Asked]) -> impl Strategy<Value = NodeSelectorRequirement> {
    prop::sample::select(asked).prop_map(move |(operator, values)| requirement(key, operator, values))
}

/// A value of a label that is often empty or missing.
fn any_value(values: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    prop::option::of(prop::sample::select(values))
}

fn labelled(key: &str, value: Option<&str>) -> Option<(String, String)> {
    value.map(|value| (key.to_owned(), value.to_owned()))
}

/// Requirements of a pod, of which several may be on one label.
fn any_requirements() -> impl Strategy<Value = Vec<NodeSelectorRequirement>> {
    let families = prop::option::of(prop::sample::subsequence(FAMILIES.to_vec(), 1..=3));
    let cores = prop::option::of(Just(requirement(CPU, Operator::Gt, &["3"])));
    let worker = prop::option::weighted(0.3, any_of(WORKER, WORKERS));
    let teams = prop::collection::vec(any_of(TEAM, TEAMS), 0..3);
    (families, cores, worker, teams).prop_map(|(families, cores, worker, teams)| {
        let families = families.map(|some| requirement(label::INSTANCE_FAMILY, Operator::In, &some));
        families.into_iter().chain(cores).chain(worker).chain(teams).collect::<Vec<_>>()
    })
}

fn any_selecting_shape() -> impl Strategy<Value = PodShape> {
    let terms = prop::collection::vec(any_requirements(), 1..3);
    let selected = prop::option::weighted(0.2, prop::sample::select(vec!["", "x"]));
    (terms, selected, 1..4_i64).prop_map(|(terms, selected, size)| {
        let mut one = shape(size * 500, 1);
        // A term without requirements matches nothing.
        if terms.iter().all(|requirements| !requirements.is_empty()) {
            one.required_node_affinity = terms.iter().map(|requirements| term(requirements)).collect();
        }
        one.node_selector.extend(labelled(WORKER, selected));
        one
    })
}

/// Pools and nodes with empty labels, several requirements of a pool on one custom label, and pods that select them.
fn any_labelled_cluster() -> impl Strategy<Value = Cluster> {
    let teams = prop::collection::vec(any_of(TEAM, TEAMS), 0..4);
    let pools = prop::collection::vec((any_value(&["", "x"]), teams), 1..3);
    let node = (prop::sample::select(TYPES.to_vec()), any_value(&["", "x"]), any_value(&["", "a", "b", "7"]));
    let nodes = prop::collection::vec(node, 0..3);
    let pods = prop::collection::vec((any_selecting_shape(), 1..4_usize), 1..5);
    (pools, nodes, pods).prop_map(|(pools, nodes, pods)| {
        let pools = pools.into_iter().enumerate().map(|(index, (worker, teams))| {
            let mut one = pool(&format!("p{index}"));
            one.labels.extend(labelled(WORKER, worker));
            one.requirements.extend(teams);
            one
        });
        let mut cluster = Cluster::with(pools);
        for (index, (kind, worker, team)) in nodes.into_iter().enumerate() {
            let node = cluster.node(&format!("n{index}"), kind);
            node.node_pool = None;
            node.labels.extend(labelled(WORKER, worker).into_iter().chain(labelled(TEAM, team)));
        }
        for (index, (one, count)) in pods.into_iter().enumerate() {
            cluster.pending(&format!("p{index}"), count, &one);
        }
        cluster
    })
}

/// Whether the pool may launch a node that the shape selects. Tries each value that matters of the custom label.
fn can_launch(cluster: &Cluster, pool: &NodePool, shape: &PodShape) -> bool {
    let own: Vec<&NodeSelectorRequirement> = pool.requirements.iter().filter(|one| one.key == TEAM).collect();
    let numbers = (0..20).map(|number| number.to_string());
    let some = ["", "a", "b"].map(str::to_owned).into_iter().chain(numbers).filter(|_| !own.is_empty());
    let mut values = some.map(Some).chain([None]);
    values.any(|team| {
        let mut kinds = cluster.catalog.instance_types.iter().filter(|kind| kind.architecture == "amd64");
        own.iter().all(|one| selector_matches(one, team.as_deref()))
            && kinds.any(|kind| {
                selects_node(&shape.node_selector, &shape.required_node_affinity, "new", |key| match key {
                    TEAM => team.as_deref(),
                    WORKER => pool.labels.get(WORKER).map(String::as_str),
                    _ => kind.labels.get(key).map(String::as_str),
                })
            })
    })
}

/// Terms that nodes of several families and sizes match, and every time nodes of a family other than r5.
fn any_wide_terms() -> impl Strategy<Value = Vec<NodeSelectorTerm>> {
    let family = |operator, values: &[&str]| requirement(label::INSTANCE_FAMILY, operator, values);
    let listed = prop::sample::subsequence(FAMILIES.to_vec(), 2..=3);
    let listed = listed.prop_map(move |some| family(Operator::In, &some));
    let family = prop_oneof![3 => listed, 1 => Just(family(Operator::Exists, &[]))];
    let cores = prop::option::of(Just(requirement(CPU, Operator::Gt, &["1"])));
    let category = prop::option::of(Just(requirement(CATEGORY, Operator::NotIn, &["r"])));
    let one = (family, cores, category).prop_map(|(family, cores, category)| {
        term(&[family].into_iter().chain(cores).chain(category).collect::<Vec<_>>())
    });
    prop::collection::vec(one, 1..3)
}

/// Pods that are spread over zones, beside nodes of which some are full and some already run such pods.
fn any_spread_cluster() -> impl Strategy<Value = Cluster> {
    let preferred = (prop::sample::select(vec![CATEGORY, label::CAPACITY_TYPE, WORKER]), 1..3_i32);
    let web = (any_wide_terms(), 1..3_i32, prop::option::of(preferred), 1..6_usize);
    let others = prop::collection::vec((any_wide_terms(), 1..4_i64, 1..5_usize), 0..3);
    let node = (prop::sample::select(TYPES.to_vec()), any_value(&["", "x"]), 0..3_i64, any::<bool>());
    let nodes = prop::collection::vec(node, 2..5);
    (any_value(&["", "x"]), web, others, nodes).prop_map(|(worker, web, others, nodes)| {
        let mut cluster = Cluster::new();
        cluster.pool().labels.extend(labelled(WORKER, worker));
        for (index, (kind, worker, running, full)) in nodes.into_iter().enumerate() {
            let name = format!("n{index}");
            let node = cluster.node(&name, kind);
            node.node_pool = None;
            node.labels.insert(label::ZONE.into(), ZONES[index % ZONES.len()].into());
            node.labels.extend(labelled(WORKER, worker));
            let free = node.allocatable.get("cpu") - running * 500;
            for number in 0..running {
                cluster.bound(&format!("{name}-{number}"), &name, &app("web", 500));
            }
            if full {
                cluster.bound(&format!("{name}-full"), &name, &app("full", free));
            }
        }
        let (terms, skew, preferred, count) = web;
        let mut one = app("web", 500);
        one.required_node_affinity = terms;
        one.topology_spread = vec![spread(label::ZONE, skew)];
        one.topology_spread
            .extend(preferred.map(|(key, skew)| TopologySpread { required: false, ..spread(key, skew) }));
        cluster.pending("web", count, &one);
        for (index, (terms, size, count)) in others.into_iter().enumerate() {
            let mut one = app("other", size * 500);
            one.required_node_affinity = terms;
            cluster.pending(&format!("other{index}"), count, &one);
        }
        cluster
    })
}

/// The name of a new node is not known yet, but every node has a hostname. kube-scheduler counts the new nodes in the
/// spread, and the DaemonSet runs on them.
#[test]
fn a_new_node_has_a_hostname_that_no_requirement_names() {
    let select = |mut one: PodShape, operator, values: &[&str]| {
        one.required_node_affinity = vec![term(&[requirement(label::HOSTNAME, operator, values)])];
        one
    };
    let mut cluster = Cluster::new();
    cluster.daemon_set("agent", &select(shape(1000, 1), Operator::Exists, &[]));
    let mut web = app("web", 1500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let cases: [(Operator, &[&str], usize); 5] = [
        (Operator::Exists, &[], 6),
        (Operator::NotIn, &["n1"], 6),
        (Operator::DoesNotExist, &[], 0),
        (Operator::In, &["n1"], 0),
        (Operator::Gt, &["0"], 0),
    ];
    for (operator, values, placed) in cases {
        let plan = cluster.clone().pending("web", 6, &select(web.clone(), operator, values)).plan_with(false);
        assert_eq!(plan.launches.iter().map(|one| one.pods.len()).sum::<usize>(), placed, "{operator}");
        // A node with 2 cores has too little capacity beside the DaemonSet.
        assert!(launched(&plan).iter().all(|(kind, _)| kind != "c5.large"), "{operator}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..steady() })]

    #[test]
    fn pods_are_placed_if_and_only_if_labels_permit_it(cluster in any_labelled_cluster()) {
        let plan = cluster.plan_with(false);
        let refused: BTreeSet<&str> = plan.unschedulable.iter().map(|one| one.pod.uid.as_str()).collect();
        for pod in &cluster.snapshot.pods {
            let shape = cluster.snapshot.shapes.iter().find(|shape| shape.id == pod.shape).unwrap();
            let launchable = cluster.snapshot.node_pools.iter().any(|pool| can_launch(&cluster, pool, shape));
            let selected = cluster.snapshot.nodes.iter().any(|node| {
                let value = |key: &str| node.labels.get(key).map(String::as_str);
                selects_node(&shape.node_selector, &shape.required_node_affinity, node.name.as_str(), value)
            });
            let is_refused = refused.contains(pod.uid.as_str());
            prop_assert!(!launchable || !is_refused, "{} has no place: {plan:#?}", pod.name);
            prop_assert!(launchable || selected || is_refused, "{} has a place: {plan:#?}", pod.name);
        }
    }

    #[test]
    fn a_spread_over_zones_holds_whatever_families_its_pods_select(cluster in any_spread_cluster()) {
        let plan = cluster.plan_with(false);
        // New nodes are possible in each zone.
        prop_assert!(plan.unschedulable.is_empty(), "{:#?}", plan.unschedulable);
    }
}
