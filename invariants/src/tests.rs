//! Tests that each invalid change to a valid plan is detected.

use crate::{Violation, check};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::identity::{ActionId, CatalogId, NodeName, NodePoolName, PodUid, ShapeId};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::{
    Launch, OfferingChoice, Placement, Plan, PodRef, Reason, ReasonCode, Termination, Unschedulable,
};
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{
    DaemonSet, Disruption, DisruptionReason, HostPort, Node, NodePool, NodeState, Pod, PodDisruptionBudget, PodShape,
    PodState, PoolProblem, Snapshot, UnavailableOffering,
};
use plimsoll_model::taints::{Taint, TaintEffect};
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: Timestamp = Timestamp(1_000_000);

/// A plan with its snapshot and catalog.
struct Case {
    snapshot: Snapshot,
    catalog: Catalog,
    plan: Plan,
}

impl Case {
    fn check(&self) -> Vec<Violation> {
        check(&self.snapshot, &BTreeMap::from([(CatalogId::from("c"), self.catalog.clone())]), &self.plan)
    }

    fn pod(&mut self, name: &str) -> &mut Pod {
        self.snapshot.pods.iter_mut().find(|pod| pod.name == name).unwrap()
    }

    fn node(&mut self, name: &str) -> &mut Node {
        self.snapshot.nodes.iter_mut().find(|node| node.name.as_str() == name).unwrap()
    }

    fn removal(&mut self, node: &str) -> &mut Termination {
        self.plan.terminations.iter_mut().find(|termination| termination.node.as_str() == node).unwrap()
    }

    /// Gives the pod its own shape, modified by `change`.
    fn reshape(&mut self, pod: &str, change: impl FnOnce(&mut PodShape)) {
        let mut shape = self.snapshot.shapes[0].clone();
        shape.id = ShapeId(format!("shape of {pod}"));
        change(&mut shape);
        self.pod(pod).shape = shape.id.clone();
        self.snapshot.shapes.push(shape);
    }
}

/// Offerings of the launch.
fn offerings(case: &mut Case) -> &mut Vec<OfferingChoice> {
    Arc::make_mut(&mut case.plan.launches[0].offerings)
}

fn requirement(key: &str, operator: Operator, values: &[&str], min_values: Option<u32>) -> NodeSelectorRequirement {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    NodeSelectorRequirement { key: key.into(), operator, values, min_values }
}

fn kind(name: &str, price: i64) -> InstanceType {
    let offering = |zone: &str| Offering {
        zone: zone.into(),
        capacity_type: CapacityType::OnDemand,
        price: MicroUsdPerHour(price),
        available: true,
        ..Offering::default()
    };
    InstanceType {
        name: name.into(),
        architecture: "amd64".into(),
        operating_systems: vec!["linux".into()],
        capacity: Resources::from([("cpu", 2000), ("pods", 10)]),
        offerings: vec![offering("zone-a"), offering("zone-b")],
        ..InstanceType::default()
    }
}

fn pool() -> NodePool {
    NodePool {
        name: NodePoolName::from("default"),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        requirements: vec![
            requirement(label::ARCH, Operator::In, &["amd64"], None),
            requirement(label::INSTANCE_TYPE, Operator::Exists, &[], Some(2)),
        ],
        limits: Resources::from([("cpu", 14_000), ("nodes", 4)]),
        node_class: "default".into(),
        catalog: Some(CatalogId::from("c")),
        disruption: Disruption {
            consolidate_after: Some(Millis(0)),
            allowed: BTreeMap::from([(DisruptionReason::Empty, 2), (DisruptionReason::Underutilized, 2)]),
            ..Disruption::default()
        },
        ..NodePool::default()
    }
}

fn pod(name: &str, state: PodState) -> Pod {
    Pod {
        uid: PodUid::from(name),
        namespace: "ns".into(),
        name: name.into(),
        shape: ShapeId::from("core"),
        state,
        ..Pod::default()
    }
}

fn node(name: &str) -> Node {
    let labels = [(label::ARCH, "amd64"), (label::ZONE, "zone-a"), (label::HOSTNAME, name)];
    Node {
        name: NodeName::from(name),
        node_claim: Some(name.into()),
        node_pool: Some(NodePoolName::from("default")),
        state: NodeState::Initialized,
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        allocatable: Resources::from([("cpu", 4000), ("pods", 10)]),
        limit_usage: Resources::from([("cpu", 4000), ("nodes", 1)]),
        ready: true,
        ..Node::default()
    }
}

fn pod_ref(name: &str) -> PodRef {
    PodRef { name: format!("ns/{name}"), uid: PodUid::from(name) }
}

fn choice(kind: &str, zone: &str, price: i64) -> OfferingChoice {
    let (instance_type, zone, capacity_type) = (kind.to_owned(), zone.to_owned(), CapacityType::OnDemand);
    OfferingChoice { instance_type, zone, capacity_type, price: MicroUsdPerHour(price), reservation: None }
}

fn termination(node: &str, reason: DisruptionReason, pods: &[&str], to: Option<&str>) -> Termination {
    let pods: Vec<PodRef> = pods.iter().map(|pod| pod_ref(pod)).collect();
    let moved = to.map(|to| Placement { node: NodeName::from(to), pods: pods.clone() });
    Termination {
        action_id: ActionId(format!("remove {node}")),
        node: NodeName::from(node),
        reason,
        moved_to: moved.into_iter().collect(),
        pods,
        ..Termination::default()
    }
}

/// Returns a valid plan: `new` gets a launch, `fits` is placed on n1, the pod of n2 moves to n1, and n3 is empty.
fn valid() -> Case {
    let bound = |name: &str, at: &str| pod(name, PodState::Bound(NodeName::from(at)));
    let snapshot = Snapshot {
        now: NOW,
        shapes: vec![PodShape {
            id: ShapeId::from("core"),
            requests: Resources::from([("cpu", 1000), ("pods", 1)]),
            ..PodShape::default()
        }],
        pods: vec![
            pod("new", PodState::Pending),
            pod("fits", PodState::Pending),
            pod("refused", PodState::Pending),
            bound("stays", "n1"),
            bound("moves", "n2"),
        ]
        .into(),
        nodes: vec![node("n1"), node("n2"), node("n3")],
        node_pools: vec![pool()],
        ..Snapshot::default()
    };
    let launch = Launch {
        action_id: ActionId("launch".into()),
        node_pool: NodePoolName::from("default"),
        node_class: "default".into(),
        offerings: Arc::new(vec![choice("a", "zone-a", 100), choice("a", "zone-b", 100), choice("b", "zone-a", 120)]),
        requirements: Arc::new(pool().requirements),
        labels: pool().labels,
        pods: vec![pod_ref("new")],
        ..Launch::default()
    };
    let reason = Reason { node_pool: String::new(), code: ReasonCode::NotSupported, message: "no".into() };
    let plan = Plan {
        launches: vec![launch],
        placements: vec![Placement { node: NodeName::from("n1"), pods: vec![pod_ref("fits")] }],
        terminations: vec![
            termination("n2", DisruptionReason::Underutilized, &["moves"], Some("n1")),
            termination("n3", DisruptionReason::Empty, &[], None),
        ],
        unschedulable: vec![Unschedulable { pod: pod_ref("refused"), reasons: vec![reason].into() }],
        hourly: MicroUsdPerHour(100),
        lower_bound: MicroUsdPerHour(90),
        ..Plan::default()
    };
    let catalog = Catalog { region: "test".into(), instance_types: vec![kind("a", 100), kind("b", 120)] };
    Case { snapshot, catalog, plan }
}

/// Asserts that `change` makes the valid plan invalid, with a violation that contains `expected`.
#[track_caller]
fn rejected(expected: &str, change: impl FnOnce(&mut Case)) {
    let mut case = valid();
    change(&mut case);
    let violations: Vec<String> = case.check().iter().map(ToString::to_string).collect();
    assert!(violations.iter().any(|one| one.contains(expected)), "{expected:?} is not among {violations:#?}");
}

/// Asserts that the plan is still valid after `change`.
#[track_caller]
fn accepted(change: impl FnOnce(&mut Case)) {
    let mut case = valid();
    change(&mut case);
    assert_eq!(case.check(), []);
}

#[test]
fn the_unchanged_plan_is_valid() {
    accepted(|_| {});
}

#[test]
fn each_pod_appears_exactly_once() {
    rejected("pod ns/new appears twice", |case| case.plan.placements[0].pods.push(pod_ref("new")));
    rejected("pod ns/moves appears twice", |case| case.plan.launches[0].pods.push(pod_ref("moves")));
    rejected("pod ns/ghost is not one to be placed", |case| case.plan.placements[0].pods.push(pod_ref("ghost")));
    rejected("pod ns/stays is not one to be placed", |case| case.plan.launches[0].pods.push(pod_ref("stays")));
    rejected("pod ns/fits is not one to be placed", |case| case.pod("fits").terminating = true);
    rejected("pod ns/fits is not one to be placed", |case| case.pod("fits").stays_with_node = true);
    rejected("pod ns/fits is neither placed nor unschedulable", |case| case.plan.placements.clear());
    rejected("pod ns/refused is unschedulable without a reason", |case| {
        case.plan.unschedulable[0].reasons = Default::default();
    });
}

#[test]
fn totals_are_consistent() {
    rejected("launches cost 0.0001, the plan says 0.000099", |case| case.plan.hourly = MicroUsdPerHour(99));
    rejected("lower bound 0.000101 is above 0.0001", |case| case.plan.lower_bound = MicroUsdPerHour(101));
}

#[test]
fn launches_match_their_pool() {
    rejected("launch launch has no pods or no offerings", |case| case.plan.launches[0].pods.clear());
    rejected("launch launch has no pods or no offerings", |case| offerings(case).clear());
    rejected("pool other cannot launch nodes", |case| case.plan.launches[0].node_pool = NodePoolName::from("other"));
    rejected("pool default cannot launch nodes", |case| case.snapshot.node_pools[0].deleting = true);
    rejected("pool default cannot launch nodes", |case| case.snapshot.node_pools[0].replicas = Some(1));
    rejected("pool default cannot launch nodes", |case| {
        case.snapshot.node_pools[0].not_ready = Some(PoolProblem { code: "X".into(), message: String::new() });
    });
    rejected("the node class of the pool is default, not other", |case| {
        case.plan.launches[0].node_class = "other".into();
    });
    let taint = Taint { key: "t".into(), value: String::new(), effect: TaintEffect::NoSchedule };
    rejected("taints or labels are not those of the pool", |case| case.plan.launches[0].taints.push(taint.clone()));
    rejected("taints or labels are not those of the pool", |case| case.plan.launches[0].labels.clear());
    rejected("it requests more cpu than one of its instance types has", |case| {
        case.plan.launches[0].requests.set("cpu", 2001);
    });
    accepted(|case| case.plan.launches[0].requests.set("cpu", 2000));
    rejected("launch: prioritized is true", |case| case.plan.launches[0].prioritized = true);
    rejected("the requirement of the pool on kubernetes.io/arch is dropped", |case| {
        Arc::make_mut(&mut case.plan.launches[0].requirements).remove(0);
    });
    rejected("1 values of node.kubernetes.io/instance-type, at least 2 are wanted", |case| {
        offerings(case).pop();
    });
}

#[test]
fn offerings_match_the_catalog() {
    rejected("no such type", |case| offerings(case)[0].instance_type = "z".into());
    rejected("no such offering", |case| offerings(case)[0].zone = "zone-c".into());
    rejected("costs 0.0001, the plan says 0.00009", |case| offerings(case)[0].price.0 = 90);
    rejected("offerings are not cheapest first", |case| offerings(case).reverse());
    rejected("a in zone-a (on-demand): not available", |case| {
        case.catalog.instance_types[0].offerings[0].available = false;
    });
    for (name, zone) in [(Some("b"), Some("zone-a")), (None, Some("zone-a")), (Some("b"), None), (None, None)] {
        rejected("b in zone-a (on-demand): not available", |case| {
            case.snapshot.unavailable_offerings.push(UnavailableOffering {
                instance_type: name.map(str::to_owned),
                zone: zone.map(str::to_owned),
                capacity_type: CapacityType::OnDemand,
                remaining: Millis(1),
            });
        });
    }
    rejected("the pool has no catalog", |case| case.snapshot.node_pools[0].catalog = Some(CatalogId::from("other")));
    rejected("b in zone-a (on-demand): requirement of the pool on kubernetes.io/arch", |case| {
        case.catalog.instance_types[1].architecture = "arm64".into();
    });
    rejected("requirement of the pool on karpenter.k8s.aws/instance-gpu-count", |case| {
        let gpu = requirement("karpenter.k8s.aws/instance-gpu-count", Operator::Exists, &[], None);
        case.snapshot.node_pools[0].requirements.push(gpu.clone());
        Arc::make_mut(&mut case.plan.launches[0].requirements).push(gpu);
    });
}

#[test]
fn pods_fit_on_every_offering_of_their_launch() {
    rejected("b in zone-a (on-demand) has too little cpu", |case| {
        case.catalog.instance_types[1].capacity.set("cpu", 900);
    });
    rejected("a in zone-a (on-demand) has too little cpu", |case| {
        case.snapshot.shapes[0].requests.set("cpu", 2100);
    });
    rejected("has too little cpu", |case| {
        case.reshape("new", |shape| shape.requests.set("cpu", 1500));
        let daemon =
            DaemonSet { uid: "d".into(), namespace: "ns".into(), name: "d".into(), shape: ShapeId::from("core") };
        case.snapshot.daemon_sets.push(daemon);
    });
    rejected(
        "pod ns/new cannot run on a in zone-b (on-demand): node selector topology.kubernetes.io/zone=zone-a",
        |case| {
            case.reshape("new", |shape| drop(shape.node_selector.insert(label::ZONE.into(), "zone-a".into())));
        },
    );
    rejected("pod ns/new cannot run on a in zone-a (on-demand): required node affinity", |case| {
        let expressions = vec![requirement("beta.kubernetes.io/arch", Operator::NotIn, &["amd64"], None)];
        let term = NodeSelectorTerm { expressions, fields: Vec::new() };
        case.reshape("new", |shape| shape.required_node_affinity = vec![term]);
    });
    rejected("pod ns/new cannot run on a in zone-a (on-demand): taint t=:NoSchedule", |case| {
        let taint = Taint { key: "t".into(), value: String::new(), effect: TaintEffect::NoSchedule };
        case.snapshot.node_pools[0].taints.push(taint.clone());
        case.plan.launches[0].taints.push(taint);
    });
    let port = HostPort { ip: "0.0.0.0".into(), port: 80, protocol: "TCP".into() };
    rejected("pod ns/new cannot run on a in zone-a (on-demand): host port", |case| {
        case.reshape("new", |shape| shape.host_ports.push(port.clone()));
        let shape = case.pod("new").shape.clone();
        case.pod("fits").shape = shape;
        case.plan.placements.clear();
        case.plan.launches[0].pods.push(pod_ref("fits"));
    });
    accepted(|case| {
        case.reshape("new", |shape| {
            shape.node_selector.insert("beta.kubernetes.io/arch".into(), "amd64".into());
            shape.node_selector.insert("team".into(), "blue".into());
        });
    });
}

#[test]
fn pool_limits_count_the_largest_type_of_each_launch() {
    rejected("pool default exceeds its limit of cpu", |case| case.snapshot.node_pools[0].limits.set("cpu", 13_999));
    rejected("pool default exceeds its limit of cpu", |case| case.catalog.instance_types[1].capacity.set("cpu", 2001));
    rejected("pool default exceeds its limit of nodes", |case| case.snapshot.node_pools[0].limits.set("nodes", 3));
    accepted(|case| case.snapshot.node_pools[0].limits = Resources::from([("memory", 0)]));
}

mod capacity_quotas;
mod existing;
mod labels;
mod min_values;
mod price;
mod removals;
mod reservations;
mod topology;
mod volumes_and_pools;
