//! Topology spread: compares plans with an exhaustive search, and tests what a spread counts.
//!
//! The domains are the zones that have nodes and those in which a NodePool can still launch nodes. The search tries
//! every number of pods per zone.

use super::builder::*;
use super::properties::steady;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{DisruptionReason, LabelSelector, PodShape, TopologySpread, UnavailableOffering};
use plimsoll_model::taints::TaintEffect;
use plimsoll_model::time::Millis;
use proptest::prelude::*;
use std::collections::BTreeSet;

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// 4 cores.
const TYPE: &str = "m5.xlarge";

type PerZone = [i64; 3];

/// A cluster of nodes of one type with pods of one workload, spread over zones.
#[derive(Debug, Clone)]
struct SolveContext {
    pods: i64,
    skew: i64,
    /// Number of pods of the workload per node.
    per_node: i64,
    /// Whether anti-affinity over hosts limits `per_node` (to 1), instead of CPU.
    apart: bool,
    /// The zones of each pool, and the number of nodes that its limit still allows.
    pools: Vec<([bool; 3], Option<i64>)>,
    /// Zones without capacity.
    closed: [bool; 3],
    /// Running nodes: the zone, and the number of pods of the workload.
    nodes: Vec<(usize, i64)>,
    /// Whether each zone has a further node, which the pods do not select. The spread does not count it.
    beside_others: bool,
}

fn any_world() -> impl Strategy<Value = SolveContext> {
    let zones = prop::array::uniform3(prop::bool::weighted(0.6));
    let pools = prop::collection::vec((zones, prop::option::weighted(0.7, 0..5_i64)), 1..=3);
    let nodes = prop::collection::vec((0..3_usize, 0..=2_i64), 0..4);
    let closed = prop::array::uniform3(prop::bool::weighted(0.15));
    (1..=9_i64, 1..=2_i64, 1..=2_i64, any::<bool>(), pools, closed, nodes).prop_map(
        |(pods, skew, per_node, apart, pools, closed, nodes)| {
            let apart = apart && per_node == 1;
            let nodes = nodes.into_iter().map(|(zone, running)| (zone, running.min(per_node))).collect();
            SolveContext { pods, skew, per_node, apart, pools, closed, nodes, beside_others: false }
        },
    )
}

impl SolveContext {
    fn cluster(&self) -> Cluster {
        let pools = self.pools.iter().enumerate().map(|(index, (zones, limit))| {
            let mut one = pool(&format!("p{index}"));
            one.requirements.push(requirement(label::INSTANCE_TYPE, Operator::In, &[TYPE]));
            let zones: Vec<&str> = ZONES.iter().zip(zones).filter(|(_, has)| **has).map(|(zone, _)| *zone).collect();
            one.requirements.push(requirement(label::ZONE, Operator::In, &zones));
            if let Some(nodes) = limit {
                one.limits.set("cpu", nodes * 4000);
            }
            one
        });
        // Pools without a zone would be rejected when they are read.
        let mut cluster = Cluster::with(pools.filter(|one| !one.requirements[3].values.is_empty()));
        let mut web = app("web", if self.apart { 1000 } else { 4000 / self.per_node - 100 });
        web.topology_spread = vec![spread(label::ZONE, i32::try_from(self.skew).unwrap())];
        if self.apart {
            web.pod_affinity = vec![affinity(label::HOSTNAME, true, "web")];
        }
        if self.beside_others {
            web.node_selector.insert(label::ARCH.into(), "amd64".into());
            for zone in ZONES {
                let node = cluster.node_of(&format!("other-{zone}"), "m6g.xlarge", "gone", CapacityType::OnDemand);
                node.labels.insert(label::ZONE.into(), zone.into());
                node.node_pool = None;
            }
        }
        for (index, (zone, running)) in self.nodes.iter().enumerate() {
            let name = format!("n{index}");
            let node = cluster.node_of(&name, TYPE, "gone", CapacityType::OnDemand);
            node.labels.insert(label::ZONE.into(), ZONES[*zone].into());
            node.node_pool = None;
            for pod in 0..*running {
                cluster.bound(&format!("{name}-{pod}"), &name, &web);
            }
        }
        for (zone, _) in ZONES.iter().zip(self.closed).filter(|(_, closed)| *closed) {
            cluster.snapshot.unavailable_offerings.push(UnavailableOffering {
                instance_type: None,
                zone: Some((*zone).into()),
                capacity_type: CapacityType::OnDemand,
                remaining: Millis(60_000),
            });
        }
        cluster.pending("web", usize::try_from(self.pods).unwrap(), &web);
        cluster
    }

    fn running(&self) -> PerZone {
        self.per_zone(|(_, running)| *running)
    }

    fn free(&self) -> PerZone {
        self.per_zone(|(_, running)| self.per_node - running)
    }

    fn per_zone(&self, of: impl Fn(&(usize, i64)) -> i64) -> PerZone {
        [0, 1, 2].map(|zone| self.nodes.iter().filter(|node| node.0 == zone).map(&of).sum())
    }

    fn has_nodes(&self, zone: usize) -> bool {
        self.nodes.iter().any(|node| node.0 == zone)
    }

    fn can_open(&self, zone: usize) -> bool {
        !self.closed[zone] && self.pools.iter().any(|(zones, limit)| zones[zone] && limit.is_none_or(|limit| limit > 0))
    }

    fn usable(&self) -> BTreeSet<usize> {
        (0..3).filter(|zone| self.has_nodes(*zone) || self.can_open(*zone)).collect()
    }

    /// Whether pools can launch these numbers of nodes per zone. Tries every pool for one node after another.
    fn can_launch(&self, nodes: PerZone, left: &mut Vec<Option<i64>>) -> bool {
        let Some(zone) = nodes.iter().position(|count| *count > 0) else { return true };
        let mut rest = nodes;
        rest[zone] -= 1;
        (0..self.pools.len()).any(|pool| {
            if self.closed[zone] || !self.pools[pool].0[zone] || left[pool] == Some(0) {
                return false;
            }
            let before = left[pool];
            left[pool] = before.map(|nodes| nodes - 1);
            let can = self.can_launch(rest, left);
            left[pool] = before;
            can
        })
    }

    /// Maximum number of placed pods if they may use only these zones. The spread counts these zones and all zones with
    /// nodes.
    fn best(&self, zones: &BTreeSet<usize>) -> i64 {
        let (running, free) = (self.running(), self.free());
        let counted: Vec<usize> = (0..3).filter(|zone| zones.contains(zone) || self.has_nodes(*zone)).collect();
        let within = |zone: usize| 0..=if zones.contains(&zone) { self.pods } else { 0 };
        let mut best = 0;
        for (a, b, c) in within(0).flat_map(|a| within(1).flat_map(move |b| within(2).map(move |c| (a, b, c)))) {
            let coming = [a, b, c];
            let total: i64 = coming.iter().sum();
            let least = counted.iter().map(|zone| running[*zone] + coming[*zone]).min().unwrap_or(0);
            let even = (0..3).all(|zone| coming[zone] == 0 || running[zone] + coming[zone] - least <= self.skew);
            let nodes = [0, 1, 2].map(|zone| ((coming[zone] - free[zone]).max(0) + self.per_node - 1) / self.per_node);
            let mut left = self.pools.iter().map(|(_, limit)| *limit).collect();
            if total > best && total <= self.pods && even && self.can_launch(nodes, &mut left) {
                best = total;
            }
        }
        best
    }

    /// Number of the workload's pods by zone after the plan is executed, and the zones that then have nodes.
    fn after(&self, plan: &Plan) -> (PerZone, BTreeSet<usize>) {
        let mut pods = self.running();
        let mut open: BTreeSet<usize> = (0..3).filter(|zone| self.has_nodes(*zone)).collect();
        for launch in &plan.launches {
            let zones: BTreeSet<&str> = launch.offerings.iter().map(|one| one.zone.as_str()).collect();
            assert_eq!(zones.len(), 1, "not in one zone: {launch:?}");
            let zone = ZONES.iter().position(|zone| zones.contains(zone)).unwrap();
            pods[zone] += i64::try_from(launch.pods.len()).unwrap();
            open.insert(zone);
        }
        for to in &plan.placements {
            let node: usize = to.node.as_str()[1..].parse().unwrap();
            pods[self.nodes[node].0] += i64::try_from(to.pods.len()).unwrap();
        }
        (pods, open)
    }

    fn check(&self, plan: &Plan) -> Result<(), TestCaseError> {
        let placed = self.pods - i64::try_from(plan.unschedulable.len()).unwrap();
        let (pods, open) = self.after(plan);
        let running = self.running();
        let even = |zones: &BTreeSet<usize>| {
            let least = zones.iter().map(|zone| pods[*zone]).min().unwrap_or(0);
            zones.iter().all(|zone| pods[*zone] == running[*zone] || pods[*zone] - least <= self.skew)
        };
        let usable = self.usable();
        let most = self.best(&usable);
        prop_assert!(placed >= most, "{placed} pods placed, {pods:?}, {most} are possible in all usable zones");
        prop_assert!(even(&open), "not within maxSkew over the zones with nodes: {pods:?}");
        if even(&usable) {
            return Ok(());
        }
        for given_up in usable.difference(&open) {
            let mut with = open.clone();
            with.insert(*given_up);
            let most = self.best(&with);
            prop_assert!(placed > most, "{given_up} given up: {pods:?}, but {most} are possible with it");
        }
        prop_assert!(placed > most, "{pods:?} places no more pods than all usable zones do");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..steady() })]

    #[test]
    fn a_spread_uses_every_zone_that_it_can(context in any_world()) {
        context.check(&context.cluster().plan_with(false))?;
    }

    /// The same clusters, with nodes that change nothing.
    #[test]
    fn a_spread_uses_every_zone_that_it_can_beside_nodes_that_it_does_not_count(context in any_world()) {
        let context = SolveContext { beside_others: true, ..context };
        context.check(&context.cluster().plan_with(false))?;
    }
}

/// A cluster without nodes and with all zones.
fn world(pods: i64, per_node: i64, pools: Vec<([bool; 3], Option<i64>)>) -> SolveContext {
    let (closed, nodes) = ([false; 3], Vec::new());
    SolveContext { pods, skew: 1, per_node, apart: false, pools, closed, nodes, beside_others: false }
}

/// The limit allows only four nodes.
#[test]
fn a_limit_is_shared_by_the_zones() {
    let pools = vec![([true; 3], Some(4))];
    let context = SolveContext { apart: true, ..world(6, 1, pools) };
    let mut pods = context.after(&context.cluster().plan()).0;
    pods.sort_unstable();
    assert_eq!(pods, [1, 1, 2]);
}

/// Zone c can run two pods, which would permit only six pods in total. Without it, all nine pods are placed, evenly
/// over the other two zones.
#[test]
fn one_zone_is_given_up_if_that_places_more() {
    let pools = vec![([true, true, false], None), ([false, false, true], Some(1))];
    for beside_others in [false, true] {
        let context = SolveContext { beside_others, ..world(9, 2, pools.clone()) };
        let mut pods = context.after(&context.cluster().plan()).0;
        pods.sort_unstable();
        assert_eq!(pods, [0, 4, 5]);
    }
}

/// No node can be launched in zone c, and the spread does not count the node there.
#[test]
fn a_zone_is_given_up_if_the_spread_counts_none_of_its_nodes() {
    let mut cluster = Cluster::new();
    for kind in cluster.catalog.instance_types.iter_mut().filter(|kind| kind.name.ends_with("2xlarge")) {
        kind.offerings.retain(|one| one.zone != "zone-c");
    }
    let node = cluster.node("n1", "m6g.large");
    node.labels.insert(label::ZONE.into(), "zone-c".into());
    node.taints = vec![taint("dedicated", TaintEffect::NoSchedule)];
    let mut web = app("web", 7000);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let even = [("zone-a".to_owned(), 3), ("zone-b".to_owned(), 3)];
    let counts = |web: &PodShape| counts(&cluster.clone().pending("web", 6, web).plan_with(false), |one| &one.zone);
    assert_ne!(counts(&web), even, "the spread counts the node");
    let mut other = web.clone();
    other.node_selector.insert(label::ARCH.into(), "amd64".into());
    assert_eq!(counts(&other), even, "nodeAffinityPolicy Honor");
    other.topology_spread[0].honor_node_affinity = false;
    assert_ne!(counts(&other), even, "nodeAffinityPolicy Ignore");
    web.topology_spread[0].honor_node_taints = true;
    assert_eq!(counts(&web), even, "nodeTaintsPolicy Honor");
}

#[test]
fn nodes_that_lack_another_key_of_the_spreads_do_not_count() {
    let mut cluster = Cluster::new();
    let node = cluster.node("n1", "c5.large");
    node.labels.insert(label::ZONE.into(), "zone-c".into());
    node.labels.remove(label::CAPACITY_TYPE);
    node.node_pool = None;
    for index in 0..3 {
        cluster.bound(&format!("b{index}"), "n1", &app("web", 600));
    }
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let mut both = web.clone();
    both.topology_spread.push(spread(label::CAPACITY_TYPE, 9));
    let by_zone = |cluster: &Cluster, count: usize, web: &PodShape| {
        counts(&cluster.clone().pending("web", count, web).plan(), |one| &one.zone)
    };
    let even = |count: usize, zones: &[&str]| -> Vec<(String, usize)> {
        zones.iter().map(|zone| ((*zone).to_owned(), count)).collect()
    };
    assert_eq!(by_zone(&cluster, 4, &web), even(2, &["zone-a", "zone-b"]), "three in zone-c count");
    assert_eq!(by_zone(&cluster, 3, &both), even(1, &["zone-a", "zone-b", "zone-c"]));
    // The node is a domain only if it counts.
    cluster.pool().requirements.push(requirement(label::ZONE, Operator::In, &["zone-a", "zone-b"]));
    cluster.snapshot.pods.clear();
    cluster.bound("b", "n1", &shape(2000, 1));
    assert_eq!(by_zone(&cluster, 6, &web), even(1, &["zone-a", "zone-b"]), "none in zone-c");
    assert_eq!(by_zone(&cluster, 6, &both), even(3, &["zone-a", "zone-b"]));
}

/// Other pods run in zone a, and zone c has a node, which the spread counts.
#[test]
fn an_empty_selector_counts_no_running_pod() {
    let mut cluster = Cluster::new();
    for (name, zone) in [("n1", "zone-a"), ("n2", "zone-c")] {
        cluster.node(name, "c5.large").labels.insert(label::ZONE.into(), zone.into());
    }
    cluster.bound("b0", "n1", &shape(1000, 1));
    cluster.bound("b1", "n1", &shape(1000, 1));
    for key in [label::ZONE, label::HOSTNAME] {
        let mut web = app("web", 500);
        web.node_selector.insert(label::ZONE.into(), "zone-a".into());
        let selector = Some(LabelSelector::default());
        web.topology_spread =
            vec![TopologySpread { selector, min_domains: Some(4), honor_node_affinity: false, ..spread(key, 1) }];
        let plan = cluster.clone().pending("web", 6, &web).plan_with(false);
        assert_eq!(counts(&plan, |one| &one.zone), [("zone-a".to_owned(), 6)], "{key}");
        assert_eq!(plan.launches.len(), 1, "{key}");
    }
}

/// Pods by zone after the removals of the plan.
fn after_removals(plan: &Plan, nodes: &[(usize, usize)]) -> PerZone {
    let zone_of = |name: &str| nodes[name[1..].parse::<usize>().unwrap()].0;
    let mut pods: PerZone =
        [0, 1, 2].map(|zone| nodes.iter().filter(|one| one.0 == zone).map(|one| one.1 as i64).sum());
    for launch in &plan.launches {
        let zones: BTreeSet<&str> = launch.offerings.iter().map(|one| one.zone.as_str()).collect();
        assert!(zones.len() == 1 || launch.pods.is_empty(), "not in one zone: {launch:?}");
        let zone = ZONES.iter().position(|zone| zones.contains(zone)).unwrap();
        pods[zone] += launch.pods.len() as i64;
    }
    for removed in &plan.terminations {
        pods[zone_of(removed.node.as_str())] -= removed.pods.len() as i64;
        for to in &removed.moved_to {
            pods[zone_of(to.node.as_str())] += to.pods.len() as i64;
        }
    }
    pods
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..steady() })]

    /// Nodes of 8 cores with a few pods of 1 core each: most of them can be removed.
    #[test]
    fn consolidation_keeps_a_spread(
        (nodes, zones, skew) in (
            prop::collection::vec((0..3_usize, 0..=4_usize), 1..6),
            prop::array::uniform3(prop::bool::weighted(0.8)),
            1..=2_i32,
        )
    ) {
        let mut one = pool("default");
        let open: Vec<&str> = ZONES.iter().zip(zones).filter(|(_, open)| *open).map(|(zone, _)| *zone).collect();
        prop_assume!(!open.is_empty());
        one.requirements.push(requirement(label::ZONE, Operator::In, &open));
        let mut cluster = Cluster::with([one]);
        cluster.allow(DisruptionReason::Underutilized, 10).allow(DisruptionReason::Empty, 10);
        let mut web = app("web", 1000);
        web.topology_spread = vec![spread(label::ZONE, skew)];
        for (index, (zone, running)) in nodes.iter().enumerate() {
            let name = format!("n{index}");
            cluster.node(&name, "m5.2xlarge").labels.insert(label::ZONE.into(), ZONES[*zone].into());
            for pod in 0..*running {
                cluster.bound(&format!("{name}-{pod}"), &name, &web);
            }
        }
        let before = after_removals(&Plan::default(), &nodes);
        let after = after_removals(&cluster.plan(), &nodes);
        let usable = |zone: &usize| zones[*zone] || nodes.iter().any(|node| node.0 == *zone);
        let skew_of = |pods: &PerZone| {
            let counts = || (0..3).filter(usable).map(|zone| pods[zone]);
            counts().max().unwrap() - counts().min().unwrap()
        };
        prop_assert_eq!(before.iter().sum::<i64>(), after.iter().sum::<i64>());
        prop_assert!(skew_of(&after) <= skew_of(&before).max(i64::from(skew)), "{before:?} becomes {after:?}");
    }
}
