//! Small test clusters.

use crate::PlanFn;
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::identity::{CatalogId, NodePoolName};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::*;
use plimsoll_model::taints::{Taint, TaintEffect};
use plimsoll_model::time::{Millis, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(crate) const GIB: i64 = 1 << 30;
pub(crate) const NOW: Timestamp = Timestamp(1_000_000);

/// Instance types with 2, 4 and 8 CPUs and 4 GiB per CPU, on demand in two zones at 0.05 USD/h per CPU.
pub(crate) fn catalog() -> Catalog {
    let instance_type = |name: &str, cpus: i64| InstanceType {
        name: name.into(),
        architecture: "amd64".into(),
        operating_systems: vec!["linux".into()],
        capacity: resources(cpus * 1000, cpus * 4, 20),
        offerings: ["a", "b"]
            .map(|zone| Offering {
                zone: zone.into(),
                capacity_type: CapacityType::OnDemand,
                price: MicroUsdPerHour(cpus * 50_000),
                available: true,
                ..Offering::default()
            })
            .into(),
        ..InstanceType::default()
    };
    Catalog {
        region: "test".into(),
        instance_types: vec![instance_type("m.2xlarge", 8), instance_type("m.large", 2), instance_type("m.xlarge", 4)],
    }
}

pub(crate) fn catalogs() -> BTreeMap<CatalogId, Catalog> {
    BTreeMap::from([(catalog().id(), catalog())])
}

pub(crate) fn resources(milli_cpu: i64, gib: i64, pods: i64) -> Resources {
    [("cpu", milli_cpu), ("memory", gib * GIB), ("pods", pods)].into()
}

pub(crate) fn pool(name: &str) -> NodePool {
    NodePool {
        name: name.into(),
        node_class: "default".into(),
        catalog: Some(catalog().id()),
        disruption: Disruption { consolidate_after: Some(Millis(0)), ..Disruption::default() },
        ..NodePool::default()
    }
}

pub(crate) fn shape(id: &str, milli_cpu: i64) -> PodShape {
    PodShape { id: id.into(), namespace: "default".into(), requests: resources(milli_cpu, 1, 1), ..Default::default() }
}

pub(crate) fn pod(name: &str, shape: &str, state: PodState) -> Pod {
    Pod {
        uid: name.into(),
        namespace: "default".into(),
        name: name.into(),
        shape: shape.into(),
        state,
        eviction_cost_milli: 1000,
        ..Pod::default()
    }
}

/// An initialized node of `pool` with 4 CPUs.
pub(crate) fn node(name: &str, pool: &str) -> Node {
    let labels = [
        (label::INSTANCE_TYPE, "m.xlarge"),
        (label::ZONE, "a"),
        (label::CAPACITY_TYPE, "on-demand"),
        (label::NODE_POOL, pool),
    ];
    Node {
        name: name.into(),
        node_claim: Some(name.into()),
        node_pool: Some(NodePoolName::from(pool)),
        state: NodeState::Initialized,
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        allocatable: resources(4000, 16, 20),
        limit_usage: resources(4000, 16, 20),
        ready: true,
        ..Node::default()
    }
}

/// One pool, one shape of half a CPU, and `pods` pending pods.
pub(crate) fn waiting(pods: usize) -> Snapshot {
    let mut snapshot = Snapshot {
        sequence: 1,
        now: NOW,
        shapes: vec![shape("web", 500)],
        pods: (0..pods).map(|number| pod(&format!("web-{number}"), "web", PodState::Pending)).collect(),
        node_pools: vec![pool("default")],
        ..Snapshot::default()
    };
    snapshot.sort();
    snapshot
}

/// Three pods of the shape `web` and two of the shape `cursed`, for which the planners of tests fail.
pub(crate) fn waiting_with_cursed() -> Snapshot {
    let mut snapshot = waiting(3);
    snapshot.shapes.push(shape("cursed", 1000));
    snapshot.pods.extend(["c-0", "c-1"].map(|name| pod(name, "cursed", PodState::Pending)));
    snapshot.sort();
    snapshot
}

/// Whether a pod of the shape `cursed` is pending.
pub(crate) fn is_cursed(snapshot: &Snapshot) -> bool {
    snapshot.pods.iter().any(|pod| pod.shape.as_str() == "cursed" && pod.state == PodState::Pending)
}

/// Panics for pods of the shape `cursed`.
pub(crate) const PANICS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    assert!(!is_cursed(snapshot), "a bug");
    planner.solve_early(snapshot, index, catalogs, options, early)
});

/// Random small clusters that need work from a solver.
pub(crate) fn snapshots() -> impl Strategy<Value = Snapshot> {
    let shapes = vec((50..4500_i64, option::of(prop::sample::select(vec!["a", "b", "c"]))), 1..4);
    let nodes = vec((any::<[bool; 4]>(), 0..3_u8), 0..5);
    let pools = vec((option::of(1..40_i64), any::<[bool; 3]>(), -1..2_i32), 0..3);
    let pods = vec((0..4_usize, option::of((0..5_usize, any::<bool>())), any::<[bool; 3]>()), 0..14);
    (shapes, nodes, pools, pods, any::<u8>()).prop_map(|(shapes, nodes, pools, pods, sequence)| {
        let mut snapshot = Snapshot { sequence: sequence.into(), now: NOW, ..Snapshot::default() };
        snapshot.node_pools =
            pools.into_iter().enumerate().map(|(number, properties)| random_pool(number, properties)).collect();
        snapshot.shapes =
            shapes.into_iter().enumerate().map(|(number, properties)| random_shape(number, properties)).collect();
        snapshot.nodes =
            nodes.into_iter().enumerate().map(|(number, properties)| random_node(number, properties)).collect();
        for (number, (shape, place, [stays, terminating, protected])) in pods.into_iter().enumerate() {
            let shape = snapshot.shapes[shape % snapshot.shapes.len()].id.clone();
            let node = place
                .filter(|_| !snapshot.nodes.is_empty())
                .map(|(index, reserved)| (snapshot.nodes[index % snapshot.nodes.len()].name.clone(), reserved));
            let state = match node {
                Some((node, true)) => PodState::Reserved(node),
                Some((node, false)) => PodState::Bound(node),
                None => PodState::Pending,
            };
            let bound = matches!(state, PodState::Bound(_));
            let mut pod = pod(&format!("p{number}"), shape.as_str(), state);
            pod.stays_with_node = stays && bound;
            pod.terminating = terminating && stays;
            pod.do_not_disrupt_until = (protected && terminating).then_some(Timestamp(i64::MAX));
            snapshot.pods.push(pod);
        }
        snapshot.sort();
        snapshot
    })
}

fn random_pool(number: usize, (limit, [tainted, broken, thrifty], weight): (Option<i64>, [bool; 3], i32)) -> NodePool {
    let mut pool = pool(&format!("pool-{number}"));
    pool.weight = weight;
    pool.limits = limit.map(|cpus| ("cpu", cpus * 1000)).into_iter().collect();
    if tainted && broken {
        pool.taints = vec![Taint { key: "team".into(), value: "x".into(), effect: TaintEffect::NoSchedule }];
    }
    if broken && thrifty {
        pool.catalog = None;
        pool.not_ready = Some(PoolProblem { code: "NodeClassNotFound".into(), message: "no such class".into() });
    }
    if !thrifty {
        pool.disruption.policy = ConsolidationPolicy::WhenEmpty;
    }
    pool
}

fn random_shape(number: usize, (milli_cpu, zone): (i64, Option<&str>)) -> PodShape {
    let mut shape = shape(&format!("s{number}"), milli_cpu);
    shape.node_selector = zone.map(|zone| (label::ZONE.to_owned(), zone.to_owned())).into_iter().collect();
    shape
}

fn random_node(number: usize, ([pooled, ready, cordoned, drifted], state): ([bool; 4], u8)) -> Node {
    let mut node = node(&format!("n{number}"), "pool-0");
    node.state = [NodeState::InFlight, NodeState::Registered, NodeState::Initialized][usize::from(state)];
    node.ready = ready;
    node.cordoned = cordoned && !ready;
    node.drifted = (drifted && pooled).then(|| "AMIDrift".to_owned());
    if !pooled && node.state == NodeState::Initialized {
        (node.node_pool, node.node_claim) = (None, None);
    }
    node
}
