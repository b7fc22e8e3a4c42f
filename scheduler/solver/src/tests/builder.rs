//! Builds small clusters: a catalog of a few types in three zones, pools, pods and nodes, with defaults that tests
//! change.

use crate::{Planner, solve};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::costs::NodeCosts;
use plimsoll_model::identity::{CatalogId, NodeName, NodePoolName, PodUid, ShapeId};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, PlanOptions, ReasonCode};
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{
    BufferPod, ConsolidationPolicy, DaemonSet, Disruption, DisruptionReason, LabelSelector, Node, NodePool, NodeState,
    Pod, PodAffinityTerm, PodDisruptionBudget, PodShape, PodState, Snapshot, SnapshotIndex, TopologySpread,
};
use plimsoll_model::taints::{Taint, TaintEffect, Toleration, TolerationOperator};
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;

pub(super) const GIB: i64 = 1 << 30;
/// The time of every snapshot.
pub(super) const NOW: Timestamp = Timestamp(1_000_000_000);

/// A type of family `family` (`c5`): `cpu` cores, `cpu` x `ratio` GiB, in zones a, b and c, on demand and as Spot for
/// 40 % of the price.
pub(super) fn instance(name: &str, cpu: i64, gib: i64, price: i64) -> InstanceType {
    let (family, size) = name.split_once('.').unwrap();
    let labels = [
        ("karpenter.k8s.aws/instance-category", &family[..1]),
        ("karpenter.k8s.aws/instance-family", family),
        ("karpenter.k8s.aws/instance-generation", &family[1..2]),
        ("karpenter.k8s.aws/instance-size", size),
    ];
    let mut labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    labels.insert("karpenter.k8s.aws/instance-cpu".into(), cpu.to_string());
    let offering = |zone: &str, capacity_type, price| Offering {
        zone: format!("zone-{zone}"),
        zone_id: String::new(),
        capacity_type,
        price: MicroUsdPerHour(price),
        available: true,
        list_price: None,
        reservation: None,
    };
    let both =
        |zone: &str| [offering(zone, CapacityType::Spot, price * 2 / 5), offering(zone, CapacityType::OnDemand, price)];
    InstanceType {
        name: name.into(),
        architecture: if family.ends_with('g') { "arm64" } else { "amd64" }.into(),
        operating_systems: vec!["linux".into()],
        capacity: Resources::from([("cpu", cpu * 1000), ("memory", gib * GIB), ("pods", 20)]),
        overhead: Resources::new(),
        labels,
        offerings: ["a", "b", "c"].iter().flat_map(|zone| both(zone)).collect(),
    }
}

/// Families c, m and r with 2, 4 and 8 cores. Within a family, prices depend on size only. arm64 is a fifth cheaper.
pub(super) fn catalog() -> Catalog {
    let mut instance_types = Vec::new();
    for (family, ratio, per_core) in [("c5", 2, 40_000), ("m5", 4, 48_000), ("r5", 8, 63_000), ("m6g", 4, 38_000)] {
        for (size, cpu) in [("large", 2), ("xlarge", 4), ("2xlarge", 8)] {
            instance_types.push(instance(&format!("{family}.{size}"), cpu, cpu * ratio, per_core * cpu));
        }
    }
    instance_types.sort_by(|a, b| a.name.cmp(&b.name));
    Catalog { region: "test".into(), instance_types }
}

pub(super) fn requirement(key: &str, operator: Operator, values: &[&str]) -> NodeSelectorRequirement {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    NodeSelectorRequirement { key: key.into(), operator, values, min_values: None }
}

pub(super) fn term(expressions: &[NodeSelectorRequirement]) -> NodeSelectorTerm {
    NodeSelectorTerm { expressions: expressions.to_vec(), fields: Vec::new() }
}

pub(super) fn taint(key: &str, effect: TaintEffect) -> Taint {
    Taint { key: key.into(), value: "yes".into(), effect }
}

pub(super) fn tolerate(key: &str) -> Toleration {
    Toleration { key: key.into(), operator: TolerationOperator::Exists, value: String::new(), effect: None }
}

/// A pool of amd64 On-Demand nodes that may be consolidated at once.
pub(super) fn pool(name: &str) -> NodePool {
    NodePool {
        name: NodePoolName::from(name),
        weight: 0,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        requirements: vec![
            requirement(label::ARCH, Operator::In, &["amd64"]),
            requirement(label::CAPACITY_TYPE, Operator::In, &["on-demand"]),
        ],
        limits: Resources::new(),
        replicas: None,
        node_class: "default".into(),
        catalog: Some(CatalogId::from("test")),
        not_ready: None,
        deleting: false,
        disruption: Disruption {
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: Some(Millis(0)),
            allowed: BTreeMap::new(),
            rollout_limit: None,
            next_budget_change: None,
        },
        on_demand: None,
        overlays: Vec::new(),
        costs: NodeCosts::default(),
    }
}

pub(super) fn shape(milli: i64, gib: i64) -> PodShape {
    let requests = Resources::from([("cpu", milli), ("memory", gib * GIB), ("pods", 1)]);
    PodShape { namespace: "ns".into(), requests, ..PodShape::default() }
}

/// Selects pods with the label `app`.
pub(super) fn selector(app: &str) -> Option<LabelSelector> {
    let match_labels = [("app".to_owned(), app.to_owned())].into();
    Some(LabelSelector { match_labels, match_expressions: Vec::new() })
}

/// A shape with the label `app`.
pub(crate) fn app(name: &str, milli: i64) -> PodShape {
    let mut one = shape(milli, 1);
    one.labels.insert("app".into(), name.into());
    one
}

/// Required spread over `key` of the `web` pods.
pub(crate) fn spread(key: &str, max_skew: i32) -> TopologySpread {
    TopologySpread {
        topology_key: key.into(),
        max_skew,
        min_domains: None,
        required: true,
        selector: selector("web"),
        honor_node_affinity: true,
        honor_node_taints: false,
    }
}

/// Required affinity to pods of `app`.
pub(super) fn affinity(key: &str, anti: bool, app: &str) -> PodAffinityTerm {
    let (topology_key, namespaces) = (key.into(), vec!["ns".into()]);
    PodAffinityTerm { anti, weight: None, topology_key, selector: selector(app), namespaces }
}

/// A cluster under construction.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) snapshot: Snapshot,
    pub(super) catalog: Catalog,
}

impl Cluster {
    /// Creates a cluster with one pool, `default`.
    pub(crate) fn new() -> Self {
        Self::with([pool("default")])
    }

    pub(super) fn with(pools: impl IntoIterator<Item = NodePool>) -> Self {
        let snapshot = Snapshot { now: NOW, node_pools: pools.into_iter().collect(), ..Snapshot::default() };
        Self { snapshot, catalog: catalog() }
    }

    fn intern(&mut self, mut shape: PodShape) -> ShapeId {
        shape.id = shape.content_id();
        let id = shape.id.clone();
        if !self.snapshot.shapes.iter().any(|known| known.id == id) {
            self.snapshot.shapes.push(shape);
        }
        id
    }

    fn pod(&mut self, name: &str, shape: PodShape, state: PodState) -> &mut Pod {
        let shape = self.intern(shape);
        self.snapshot.pods.push(Pod {
            uid: PodUid::from(name),
            namespace: "ns".into(),
            name: name.into(),
            shape,
            state,
            created: Timestamp(0),
            stays_with_node: false,
            terminating: false,
            returns: false,
            do_not_disrupt_until: None,
            eviction_cost_milli: 1000,
            pod_disruption_budgets: Vec::new(),
            buffer: None,
        });
        self.snapshot.pods.last_mut().unwrap()
    }

    /// Adds `count` pending pods `name-0`, `name-1`...
    pub(crate) fn pending(&mut self, name: &str, count: usize, shape: &PodShape) -> &mut Self {
        for index in 0..count {
            self.pod(&format!("{name}-{index}"), shape.clone(), PodState::Pending);
        }
        self
    }

    /// Adds `count` virtual pods `name-1`, `name-2`... with the lowest priority. If `node` is given, it was launched
    /// for them.
    pub(super) fn spare(&mut self, name: &str, count: usize, shape: &PodShape, node: Option<&str>) -> &mut Self {
        let shape = PodShape { priority: i32::MIN, ..shape.clone() };
        for number in 1..=count {
            let pod = self.pod(&format!("{name}-{number}"), shape.clone(), PodState::Pending);
            pod.buffer = Some(BufferPod { buffer: name.into(), node: node.map(NodeName::from) });
            pod.eviction_cost_milli = 0;
        }
        self
    }

    /// Adds a pod that runs on `node`.
    pub(super) fn bound(&mut self, name: &str, node: &str, shape: &PodShape) -> &mut Pod {
        self.pod(name, shape.clone(), PodState::Bound(NodeName::from(node)))
    }

    /// Adds an initialized On-Demand node of this type in pool `default` and zone a.
    pub(super) fn node(&mut self, name: &str, kind: &str) -> &mut Node {
        self.node_of(name, kind, "default", CapacityType::OnDemand)
    }

    pub(crate) fn node_of(&mut self, name: &str, kind: &str, pool: &str, bought: CapacityType) -> &mut Node {
        let found = self.catalog.get(kind).unwrap();
        let mut labels = found.labels.clone();
        for (key, value) in [
            (label::INSTANCE_TYPE, kind),
            (label::ZONE, "zone-a"),
            (label::CAPACITY_TYPE, bought.as_str()),
            (label::ARCH, &found.architecture),
            (label::OS, "linux"),
            (label::NODE_POOL, pool),
            (label::HOSTNAME, name),
        ] {
            labels.insert(key.into(), value.into());
        }
        let mut limit_usage = found.capacity.clone();
        limit_usage.set("nodes", 1);
        let allocatable = found.allocatable();
        self.snapshot.nodes.push(Node {
            name: NodeName::from(name),
            node_claim: Some(name.into()),
            node_pool: Some(NodePoolName::from(pool)),
            state: NodeState::Initialized,
            labels,
            taints: Vec::new(),
            allocatable,
            limit_usage,
            ready: true,
            cordoned: false,
            deleting: false,
            do_not_disrupt: false,
            created: Timestamp(0),
            expires: None,
            idle_since: None,
            drifted: None,
            termination_grace_period: None,
        });
        self.snapshot.nodes.last_mut().unwrap()
    }

    pub(crate) fn daemon_set(&mut self, name: &str, shape: &PodShape) -> &mut Self {
        let shape = self.intern(shape.clone());
        let uid = format!("kube-system/{name}");
        self.snapshot.daemon_sets.push(DaemonSet { uid, namespace: "kube-system".into(), name: name.into(), shape });
        self
    }

    pub(super) fn budget(&mut self, name: &str, allowed: i32) -> &mut PodDisruptionBudget {
        let name = format!("ns/{name}");
        let budget = PodDisruptionBudget { name, disruptions_allowed: allowed, fully_blocking: false };
        self.snapshot.pod_disruption_budgets.push(budget);
        self.snapshot.pod_disruption_budgets.last_mut().unwrap()
    }

    pub(super) fn pool(&mut self) -> &mut NodePool {
        &mut self.snapshot.node_pools[0]
    }

    pub(super) fn allow(&mut self, reason: DisruptionReason, count: u32) -> &mut Self {
        self.pool().disruption.allowed.insert(reason, count);
        self
    }

    /// Leaves these offerings without capacity.
    pub(super) fn close_offerings(&mut self, which: impl Fn(&Offering) -> bool) {
        let offerings = self.catalog.instance_types.iter_mut().flat_map(|kind| &mut kind.offerings);
        offerings.filter(|one| which(one)).for_each(|one| one.available = false);
    }

    pub(super) fn catalogs(&self) -> BTreeMap<CatalogId, Catalog> {
        BTreeMap::from([(CatalogId::from("test"), self.catalog.clone())])
    }

    /// Computes the plan and checks that it is valid.
    pub(super) fn plan(&self) -> Plan {
        self.plan_with(true)
    }

    pub(super) fn plan_with(&self, disruption: bool) -> Plan {
        self.plan_by(&PlanOptions { disruption, ..PlanOptions::default() })
    }

    pub(super) fn plan_by(&self, options: &PlanOptions) -> Plan {
        let catalogs = self.catalogs();
        let plan = solve(&self.snapshot, &catalogs, options);
        let violations = plimsoll_invariants::check(&self.snapshot, &catalogs, &plan);
        assert!(violations.is_empty(), "{violations:#?}\n{plan:#?}");
        plan
    }

    /// Work of the packing of a plan.
    pub(super) fn packing_work(&self) -> u64 {
        let (sorted, catalogs) = (self.snapshot.sorted(), self.catalogs());
        Planner::default().packing_work((&sorted, &SnapshotIndex::new(&sorted)), &catalogs)
    }

    /// Lower bound of the cost of any plan for the pods of `plan`, not cut to the cost of this plan.
    pub(super) fn uncut_bound(&self, plan: &Plan) -> i64 {
        let (sorted, catalogs) = (self.snapshot.sorted(), self.catalogs());
        Planner::default().uncut_bound((&sorted, &SnapshotIndex::new(&sorted)), &catalogs, plan).0
    }
}

/// Type and number of pods of each launch, sorted.
pub(super) fn launched(plan: &Plan) -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> =
        plan.launches.iter().map(|one| (one.offerings[0].instance_type.clone(), one.pods.len())).collect();
    all.sort();
    all
}

/// Node and number of pending pods of each placement.
pub(super) fn kept(plan: &Plan) -> Vec<(&str, usize)> {
    plan.placements.iter().map(|one| (one.node.as_str(), one.pods.len())).collect()
}

/// Node and reason of each termination.
pub(super) fn removed(plan: &Plan) -> Vec<(&str, DisruptionReason)> {
    plan.terminations.iter().map(|one| (one.node.as_str(), one.reason)).collect()
}

/// Codes of the reasons why pools cannot run the first unschedulable pod; empty if all pods are placed.
pub(super) fn refused(plan: &Plan) -> Vec<ReasonCode> {
    let codes = plan.unschedulable.iter().take(1).flat_map(|one| one.reasons.iter()).map(|reason| reason.code);
    codes.filter(|code| *code != ReasonCode::NoExistingNode).collect()
}

/// The message with this code for the first unschedulable pod.
pub(super) fn message_of(plan: &Plan, code: ReasonCode) -> &str {
    let reasons = &plan.unschedulable[0].reasons;
    reasons.iter().find(|one| one.code == code).map_or_else(|| panic!("{reasons:#?}"), |one| &one.message)
}

/// Distinct values of all offerings of all launches.
pub(super) fn distinct(plan: &Plan, value: fn(&plimsoll_model::plan::OfferingChoice) -> &str) -> Vec<&str> {
    let all: std::collections::BTreeSet<&str> =
        plan.launches.iter().flat_map(|launch| launch.offerings.iter()).map(value).collect();
    all.into_iter().collect()
}

/// Pods by domain of launches that have a single domain.
pub(super) fn counts(plan: &Plan, domain: fn(&plimsoll_model::plan::OfferingChoice) -> &str) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for launch in &plan.launches {
        let first = domain(&launch.offerings[0]);
        assert!(launch.offerings.iter().all(|one| domain(one) == first), "{launch:?} is not pinned");
        *counts.entry(first.to_owned()).or_default() += launch.pods.len();
    }
    counts.into_iter().collect()
}
