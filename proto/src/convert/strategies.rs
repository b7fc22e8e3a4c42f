//! Random valid snapshots, catalogs and plans.

use plimsoll_model::catalog::{CapacityReservation, CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::costs::NodeCosts;
use plimsoll_model::identity::{CatalogId, NodeName, NodePoolName, PodUid, ShapeId};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay::{NodeOverlay, PriceChange};
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::*;
use plimsoll_model::taints::{Taint, TaintEffect, Toleration, TolerationOperator};
use plimsoll_model::time::{Millis, Timestamp};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn resources() -> impl Strategy<Value = Resources> {
    btree_map("[a-z]{1,3}", 0..i64::MAX, 0..3).prop_map(|amounts| amounts.into_iter().collect())
}

pub(crate) fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[a-z]{1,3}", "[a-z]{0,2}", 0..3)
}

fn requirement() -> impl Strategy<Value = NodeSelectorRequirement> {
    let operator = prop::sample::select(Operator::ALL.to_vec());
    ("[a-z]{1,3}", operator, vec("[0-9]{1,2}", 0..3), option::of(1..9_u32))
        .prop_map(|(key, operator, values, min_values)| NodeSelectorRequirement { key, operator, values, min_values })
}

fn term() -> impl Strategy<Value = NodeSelectorTerm> {
    (vec(requirement(), 0..3), vec(requirement(), 0..2))
        .prop_map(|(expressions, fields)| NodeSelectorTerm { expressions, fields })
}

fn selector() -> impl Strategy<Value = LabelSelector> {
    (labels(), vec(requirement(), 0..2))
        .prop_map(|(match_labels, match_expressions)| LabelSelector { match_labels, match_expressions })
}

fn effect() -> impl Strategy<Value = TaintEffect> {
    prop_oneof![Just(TaintEffect::NoSchedule), Just(TaintEffect::PreferNoSchedule), Just(TaintEffect::NoExecute)]
}

pub(crate) fn taint() -> impl Strategy<Value = Taint> {
    ("[a-z]{1,2}", "[a-z]{0,2}", effect()).prop_map(|(key, value, effect)| Taint { key, value, effect })
}

fn toleration() -> impl Strategy<Value = Toleration> {
    let operator = prop_oneof![Just(TolerationOperator::Equal), Just(TolerationOperator::Exists)];
    ("[a-z]{0,2}", operator, "[a-z]{0,2}", option::of(effect())).prop_map(|(key, operator, value, effect)| Toleration {
        key,
        operator,
        value,
        effect,
    })
}

pub(crate) fn capacity_type() -> impl Strategy<Value = CapacityType> {
    prop::sample::select(CapacityType::ALL.to_vec())
}

fn shape() -> impl Strategy<Value = PodShape> {
    let preferred = (1..=100_i32, term()).prop_map(|(weight, term)| PreferredTerm { weight, term });
    let port = (1..=u16::MAX).prop_map(|port| HostPort { ip: "0.0.0.0".into(), port, protocol: "TCP".into() });
    let spread = (1..5_i32, option::of(1..4_i32), any::<[bool; 3]>(), option::of(selector())).prop_map(
        |(max_skew, min_domains, [required, honor_node_affinity, honor_node_taints], selector)| TopologySpread {
            topology_key: "zone".into(),
            max_skew,
            min_domains,
            required,
            selector,
            honor_node_affinity,
            honor_node_taints,
        },
    );
    let affinity =
        (any::<bool>(), option::of(1..100_i32), option::of(selector())).prop_map(|(anti, weight, selector)| {
            PodAffinityTerm { anti, weight, topology_key: "host".into(), selector, namespaces: vec!["default".into()] }
        });
    let volume = (vec(term(), 0..2), option::of("[a-z ]{0,5}")).prop_map(|(alternatives, problem)| VolumeTopology {
        claim: "data".into(),
        driver: "ebs.csi.aws.com".into(),
        alternatives,
        problem,
    });
    let first = (labels(), resources(), labels(), vec(term(), 0..2), vec(preferred, 0..2), vec(toleration(), 0..2));
    let second = (vec(port, 0..2), vec(spread, 0..2), vec(affinity, 0..2), vec(volume, 0..2), any::<i32>());
    (first, second).prop_map(|((labels, requests, node_selector, required, preferred, tolerations), rest)| PodShape {
        id: ShapeId::default(),
        namespace: "default".into(),
        labels,
        requests,
        node_selector,
        required_node_affinity: required,
        preferred_node_affinity: preferred,
        tolerations,
        host_ports: rest.0,
        topology_spread: rest.1,
        pod_affinity: rest.2,
        volumes: rest.3,
        resource_claims: vec!["gpu".into()],
        priority: rest.4,
        on_demand: (rest.4 > 0)
            .then(|| OnDemandRatio { workload: "Job/x".into(), mix: OnDemandMix { base: 2, percentage: 30 } }),
    })
}

fn node() -> impl Strategy<Value = Node> {
    let state = prop_oneof![Just(NodeState::InFlight), Just(NodeState::Registered), Just(NodeState::Initialized)];
    (
        state,
        labels(),
        vec(taint(), 0..2),
        resources(),
        any::<[bool; 4]>(),
        any::<[Option<i32>; 2]>(),
        option::of(any::<u64>()),
    )
        .prop_map(|(state, labels, taints, allocatable, flags, times, grace)| Node {
            name: NodeName::default(),
            node_claim: flags[0].then(|| "claim".into()),
            node_pool: flags[1].then(|| "pool".into()),
            state,
            labels,
            taints,
            limit_usage: Resources::from([("nodes", 1)]),
            allocatable,
            ready: flags[2],
            cordoned: flags[3],
            deleting: flags[0],
            do_not_disrupt: flags[1],
            created: Timestamp(7),
            expires: times[0].map(|time| Timestamp(time.into())),
            idle_since: times[1].map(|time| Timestamp(time.into())),
            drifted: flags[2].then(|| "NodePoolDrifted".into()),
            termination_grace_period: grace.map(Millis),
        })
}

fn pool() -> impl Strategy<Value = NodePool> {
    let policy = prop::sample::select(vec![
        ConsolidationPolicy::WhenEmpty,
        ConsolidationPolicy::WhenEmptyOrUnderutilized,
        ConsolidationPolicy::Balanced,
    ]);
    let allowed = btree_map(prop::sample::select(DisruptionReason::ALL.to_vec()), any::<u32>(), 0..4);
    (policy, allowed, labels(), vec(requirement(), 0..3), resources(), option::of(any::<u64>()), any::<bool>())
        .prop_map(|(policy, allowed, labels, requirements, limits, number, flag)| NodePool {
            name: NodePoolName::default(),
            weight: 3,
            labels,
            taints: vec![Taint { key: "team".into(), value: "a".into(), effect: TaintEffect::NoSchedule }],
            startup_taints: vec![Taint { key: "new".into(), value: String::new(), effect: TaintEffect::NoExecute }],
            requirements,
            limits,
            replicas: number,
            node_class: "default".into(),
            catalog: flag.then(|| CatalogId("c".into())),
            not_ready: (!flag).then(|| PoolProblem { code: "NodeClassNotFound".into(), message: "none".into() }),
            deleting: flag,
            disruption: Disruption {
                policy,
                consolidate_after: number.map(Millis),
                allowed,
                rollout_limit: number.and_then(|number| u32::try_from(number % 3).ok()),
                next_budget_change: flag.then_some(Timestamp(9)),
            },
            on_demand: flag.then_some(OnDemandMix { base: 1, percentage: 50 }),
            costs: NodeCosts {
                per_node: MicroUsdPerHour(i64::from(flag)),
                performance: flag.then(|| ("m7i".into(), 1_150_000)).into_iter().collect(),
            },
            overlays: [
                None,
                Some(PriceChange::To(MicroUsdPerHour(7))),
                Some(PriceChange::By(MicroUsdPerHour(-7))),
                Some(PriceChange::ByShare(9)),
            ]
            .into_iter()
            .take(if flag { 4 } else { 0 })
            .map(|price| NodeOverlay {
                name: "o".into(),
                weight: 2,
                requirements: vec![NodeSelectorRequirement::new("team", Operator::In, ["a"])],
                price,
                capacity: Resources::from([("slots", 3)]),
            })
            .collect(),
        })
}

fn names() -> impl Strategy<Value = BTreeSet<String>> {
    // The number of possible names is small, so that two random snapshots share some.
    btree_set("[a-e]", 0..4)
}

fn pods(shapes: Vec<ShapeId>, nodes: Vec<NodeName>) -> impl Strategy<Value = Vec<Pod>> {
    let pod = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3_u8, any::<bool>(), -10_000..10_000_i64);
    (names(), vec(pod, 4)).prop_map(move |(names, pods)| {
        let make = |(uid, (shape, node, state, flag, cost)): (
            String,
            (prop::sample::Index, prop::sample::Index, u8, bool, i64),
        )| {
            let state = match state {
                _ if nodes.is_empty() => PodState::Pending,
                0 => PodState::Pending,
                1 => PodState::Reserved(node.get(&nodes).clone()),
                _ => PodState::Bound(node.get(&nodes).clone()),
            };
            let own = nodes.first().filter(|_| flag).cloned();
            let buffer = BufferPod { buffer: "spare".into(), node: own };
            Pod {
                buffer: (state == PodState::Pending && cost > 0).then_some(buffer),
                name: format!("pod-{uid}"),
                uid: PodUid(uid),
                namespace: "default".into(),
                shape: shape.get(&shapes).clone(),
                state,
                created: Timestamp(-1),
                stays_with_node: flag,
                terminating: !flag,
                returns: cost % 2 == 0,
                do_not_disrupt_until: flag.then_some(Timestamp(i64::MAX)),
                eviction_cost_milli: cost,
                pod_disruption_budgets: vec!["default/web".into()],
            }
        };
        if shapes.is_empty() { Vec::new() } else { names.into_iter().zip(pods).map(make).collect() }
    })
}

/// A snapshot in canonical order.
pub(crate) fn snapshot() -> impl Strategy<Value = Snapshot> {
    let parts = ((names(), vec(shape(), 4)), (names(), vec(node(), 4)), (names(), vec(pool(), 4)));
    let parts = (
        parts,
        btree_map((option::of("[ab]"), option::of("[ab]"), capacity_type()), any::<u64>(), 0..4),
        any::<[u8; 4]>(),
    );
    parts.prop_flat_map(|((shapes, nodes, pools), unavailable, numbers)| {
        let shapes = zip(shapes, |id, shape| shape.id = ShapeId(id));
        let nodes = zip(nodes, |name, node| node.name = NodeName(name));
        let pools = zip(pools, |name, pool| pool.name = NodePoolName(name));
        let ids: Vec<ShapeId> = shapes.iter().map(|shape| shape.id.clone()).collect();
        let hosts = nodes.iter().map(|node| node.name.clone()).collect();
        pods(ids.clone(), hosts).prop_map(move |pods| {
            let mut snapshot = Snapshot {
                sequence: numbers[0].into(),
                ledger: LedgerPosition { epoch: numbers[1].into(), sequence: numbers[2].into() },
                now: Timestamp(numbers[3].into()),
                shapes: shapes.clone(),
                pods: pods.into(),
                nodes: nodes.clone(),
                node_pools: pools.clone(),
                daemon_sets: ids
                    .iter()
                    .map(|id| DaemonSet {
                        uid: format!("ds-{id}"),
                        namespace: "a".into(),
                        name: "b".into(),
                        shape: id.clone(),
                    })
                    .collect(),
                pod_disruption_budgets: ids
                    .iter()
                    .map(|id| PodDisruptionBudget {
                        name: format!("a/{id}"),
                        disruptions_allowed: numbers[0].into(),
                        fully_blocking: numbers[3] > 127,
                    })
                    .collect(),
                unavailable_offerings: unavailable
                    .iter()
                    .map(|((instance_type, zone, capacity_type), remaining)| UnavailableOffering {
                        instance_type: instance_type.clone(),
                        zone: zone.clone(),
                        capacity_type: *capacity_type,
                        remaining: Millis(*remaining),
                    })
                    .collect(),
                reservations: ids
                    .iter()
                    .map(|id| ReservationCount { id: format!("cr-{id}"), free: numbers[1].into() })
                    .collect(),
                capacity_quotas: ids
                    .iter()
                    .map(|id| CapacityQuota {
                        name: format!("quota-{id}"),
                        selector: vec![NodeSelectorRequirement::new("team", Operator::NotIn, [id.as_str()])],
                        limits: Resources::from([("nodes", numbers[2].into())]),
                    })
                    .collect(),
                ignored: ids
                    .iter()
                    .map(|id| IgnoredPod { uid: PodUid(id.0.clone()), pod: "a/b".into(), reason: "c".into() })
                    .collect(),
            };
            snapshot.sort();
            snapshot
        })
    })
}

fn zip<T>((names, objects): (BTreeSet<String>, Vec<T>), set: impl Fn(String, &mut T)) -> Vec<T> {
    let name = |(name, mut object)| {
        set(name, &mut object);
        object
    };
    names.into_iter().zip(objects).map(name).collect()
}

/// A catalog in canonical order.
pub(crate) fn catalog() -> impl Strategy<Value = Catalog> {
    let offerings = btree_map(("[ab]", capacity_type()), (0..i64::MAX, any::<bool>()), 0..4).prop_map(|offerings| {
        let offering = |((zone, capacity_type), (price, available))| Offering {
            zone_id: format!("id-{zone}"),
            zone,
            capacity_type,
            price: MicroUsdPerHour(price),
            available,
            list_price: None,
            reservation: (capacity_type == CapacityType::Reserved).then(|| CapacityReservation {
                id: format!("cr-{price}"),
                capacity_block: available,
                interruptible: !available,
                count: available.then_some(3),
            }),
        };
        offerings.into_iter().map(offering).collect::<Vec<_>>()
    });
    btree_map("[a-d]", (resources(), resources(), labels(), offerings), 0..4).prop_map(|types| Catalog {
        region: "us-east-1".into(),
        instance_types: types
            .into_iter()
            .map(|(name, (capacity, overhead, labels, offerings))| InstanceType {
                name,
                architecture: "arm64".into(),
                operating_systems: vec!["linux".into()],
                capacity,
                overhead,
                labels,
                offerings,
            })
            .collect(),
    })
}
