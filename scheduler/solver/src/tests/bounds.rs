//! Compares costs with the exact optimum of tiny instances.

use super::builder::*;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{ConsolidationPolicy, HostPort, PodShape};
use proptest::prelude::*;

/// Minimum cost of nodes for all pods: each set of pods on the cheapest type that fits, over all partitions. The first
/// `apart` pods must be on different nodes.
fn optimum(cluster: &Cluster, pods: &[(i64, i64)], apart: usize) -> i64 {
    let types: Vec<(i64, i64, i64)> = cluster
        .catalog
        .instance_types
        .iter()
        .filter(|kind| kind.architecture == "amd64")
        .map(|kind| {
            let on_demand = kind.offerings.iter().map(|one| one.price.0).max().unwrap();
            (kind.capacity.get("cpu"), kind.capacity.get("memory"), on_demand)
        })
        .collect();
    let all = 1_usize << pods.len();
    let mut single = vec![i64::MAX; all];
    for (set, price) in single.iter_mut().enumerate() {
        let (mut cpu, mut memory) = (0, 0);
        for (index, (milli, gib)) in pods.iter().enumerate() {
            if set & (1 << index) != 0 {
                cpu += milli;
                memory += gib * GIB;
            }
        }
        let together = (set & ((1 << apart) - 1)).count_ones();
        let fitting = types.iter().filter(|one| one.0 >= cpu && one.1 >= memory && together <= 1);
        *price = fitting.map(|one| one.2).min().unwrap_or(i64::MAX);
    }
    let mut best = vec![0; all];
    for set in 1..all {
        let first = set & set.wrapping_neg();
        let mut least = i64::MAX;
        let mut part = set;
        while part > 0 {
            if part & first != 0 && single[part] < i64::MAX {
                least = least.min(single[part] + best[set & !part]);
            }
            part = (part - 1) & set;
        }
        best[set] = least;
    }
    best[all - 1]
}

/// Cost of a node in addition to its price, as in the solver.
const PER_NODE: i64 = 500;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_few_plain_pods_are_planned_at_the_optimum_and_the_bound_says_so(
        pods in prop::collection::vec((1..32_i64, 0..40_i64), 1..9)
    ) {
        let mut cluster = Cluster::new();
        cluster.pool().disruption.policy = ConsolidationPolicy::WhenEmpty;
        let pods: Vec<(i64, i64)> = pods.into_iter().map(|(cores, gib)| (cores * 250, gib)).collect();
        for (index, (milli, gib)) in pods.iter().enumerate() {
            cluster.pending(&format!("p{index}"), 1, &shape(*milli, *gib));
        }
        let plan = cluster.plan();
        let optimum = optimum(&cluster, &pods, 0);
        prop_assert!(plan.unschedulable.is_empty());
        prop_assert_eq!(plan.lower_bound.0, optimum);
        let most = optimum + PER_NODE * i64::try_from(pods.len()).unwrap();
        prop_assert!((optimum..=most).contains(&plan.hourly.0), "{} for {optimum}", plan.hourly);
    }

    #[test]
    fn pods_that_are_kept_apart_are_planned_at_the_optimum_with_company(
        pods in prop::collection::vec((1..16_i64, 0..20_i64), 2..9),
        apart in 2..6_usize,
    ) {
        let mut cluster = Cluster::new();
        let pods: Vec<(i64, i64)> = pods.into_iter().map(|(cores, gib)| (cores * 250, gib)).collect();
        let apart = apart.min(pods.len());
        for (index, (milli, gib)) in pods.iter().enumerate() {
            let mut pod = shape(*milli, *gib);
            if index < apart {
                pod.labels.insert("app".into(), "lonely".into());
                pod.pod_affinity.push(affinity(label::HOSTNAME, true, "lonely"));
            }
            cluster.pending(&format!("p{index}"), 1, &pod);
        }
        let plan = cluster.plan();
        let optimum = optimum(&cluster, &pods, apart);
        prop_assert!(plan.unschedulable.is_empty());
        prop_assert_eq!(plan.lower_bound.0, optimum);
        let most = optimum + PER_NODE * i64::try_from(pods.len()).unwrap();
        prop_assert!((optimum..=most).contains(&plan.hourly.0), "{} for {optimum}", plan.hourly);
    }
}

/// A node for 16 cores and one GPU costs 1, and two nodes cost 0.8 for 16 cores.
#[test]
fn pods_without_gpus_fill_nodes_whose_gpus_are_used_up() {
    let mut cluster = Cluster::new();
    let mut with_gpu = instance("g5.4xlarge", 16, 64, 1_000_000);
    with_gpu.capacity.set("nvidia.com/gpu", 1);
    let without = [instance("c5.2xlarge", 8, 32, 400_000), instance("c5.4xlarge", 16, 64, 800_000)];
    cluster.catalog.instance_types = without.into_iter().chain([with_gpu]).collect();
    let mut gpu = shape(1000, 1);
    gpu.requests.set("nvidia.com/gpu", 1);
    cluster.pending("gpu", 4, &gpu);
    for (name, milli) in [("a", 3000), ("b", 5000), ("c", 7000)] {
        cluster.pending(name, 4, &shape(milli, 1));
    }
    let plan = cluster.plan();
    // One pod of each kind fills a node.
    assert_eq!((plan.hourly.0, plan.lower_bound.0), (4_000_000, 4_000_000));
}

/// Pods with these host ports share nodes, although no node runs two pods with the same one.
#[test]
fn pods_with_different_host_ports_share_nodes() {
    let mut cluster = Cluster::new();
    for port in [9000, 9001] {
        let mut pod = shape(900, 1);
        pod.host_ports = vec![HostPort { ip: "0.0.0.0".into(), port, protocol: "TCP".into() }];
        cluster.pending(&format!("port-{port}"), 5, &pod);
    }
    let plan = cluster.plan();
    // Five nodes with two pods each.
    assert_eq!((plan.hourly.0, cluster.uncut_bound(&plan)), (400_000, 400_000));
}

/// More host rules than the bound models exactly: the bound merges the other workloads.
#[test]
fn many_workloads_that_each_avoid_themselves_share_nodes() {
    let mut cluster = Cluster::new();
    for number in 0..18 {
        let name = format!("app-{number}");
        let mut pod = app(&name, 100);
        pod.pod_affinity = vec![affinity(label::HOSTNAME, true, &name)];
        cluster.pending(&name, 2, &pod);
    }
    let plan = cluster.plan();
    assert!(cluster.uncut_bound(&plan) <= plan.hourly.0, "{} {}", cluster.uncut_bound(&plan), plan.hourly);
}

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Prices of a node by zone.
type PerZone = [i64; 3];

/// A cluster with nodes for two and for four pods of [`web`], at these prices.
fn zonal(two: PerZone, four: PerZone) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement(label::INSTANCE_TYPE, Operator::In, &["m5.large", "m5.xlarge"]));
    for (name, prices) in [("m5.large", two), ("m5.xlarge", four)] {
        let kind = cluster.catalog.instance_types.iter_mut().find(|kind| kind.name == name).unwrap();
        for offering in &mut kind.offerings {
            let zone = ZONES.iter().position(|zone| offering.zone == *zone).unwrap();
            offering.price = MicroUsdPerHour(prices[zone]);
        }
    }
    cluster
}

fn web(skew: i32) -> PodShape {
    let mut web = app("web", 900);
    web.topology_spread = vec![spread(label::ZONE, skew)];
    web
}

/// All ways to distribute pods over the zones.
fn distributions(pods: i64) -> impl Iterator<Item = PerZone> {
    (0..=pods).flat_map(move |a| (0..=pods - a).map(move |b| [a, b, pods - a - b]))
}

/// Minimum cost of nodes for pods of a workload with a spread and for pods without one, over all distributions over the
/// zones. `cost` is the cost of a number of pods in a zone.
fn cheapest(spread: i64, skew: i64, free: i64, cost: impl Fn(usize, i64) -> f64) -> f64 {
    let is_even = |pods: &PerZone| pods.iter().max().unwrap() - pods.iter().min().unwrap() <= skew;
    let each =
        distributions(spread).filter(is_even).flat_map(|spread| distributions(free).map(move |free| (spread, free)));
    let total = |(spread, free): (PerZone, PerZone)| -> f64 {
        spread.iter().zip(free).enumerate().map(|(zone, (spread, free))| cost(zone, spread + free)).sum()
    };
    each.map(total).min_by(f64::total_cmp).unwrap()
}

#[test]
fn pods_that_are_spread_over_zones_pay_the_prices_of_all_zones() {
    let found = |pods: usize, skew: i32| {
        let mut cluster = zonal([100_000, 200_000, 300_000], [1_000_000; 3]);
        let plan = cluster.pending("web", pods, &web(skew)).plan();
        (plan.hourly.0, plan.lower_bound.0)
    };
    assert_eq!(found(6, 1), (600_000, 600_000));
    // The bound buys half a node for the seventh pod.
    assert_eq!(found(7, 1), (700_000, 650_000));
    // Three pods could run in zone-a, two in zone-b, and one in zone-c.
    assert_eq!(found(6, 2).1, 500_000);
}

/// Nine pods do not fit into three zones, since zone-c can have one node. Without zone-c, they do: five pods in zone-a
/// and four in zone-b.
#[test]
fn a_zone_that_the_plan_gives_up_does_not_count() {
    let prices = [100_000, 200_000, 900_000];
    let mut cluster = zonal(prices, [1_000_000; 3]);
    let mut last = cluster.pool().clone();
    last.name = "last".into();
    last.requirements.push(requirement(label::ZONE, Operator::In, &["zone-c"]));
    last.limits.set("cpu", 2000);
    cluster.pool().requirements.push(requirement(label::ZONE, Operator::In, &["zone-a", "zone-b"]));
    cluster.snapshot.node_pools.push(last);
    let plan = cluster.pending("web", 9, &web(1)).plan();
    assert!(plan.unschedulable.is_empty(), "{plan:#?}");
    // Five nodes in zone-a, as without a spread.
    assert_eq!((plan.hourly.0, plan.lower_bound.0), (700_000, 500_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// All distributions over the zones are tried, with whole nodes and with fractions of nodes.
    #[test]
    fn the_bound_of_spread_pods_is_between_the_optima_with_whole_nodes_and_with_fractions(
        two in prop::array::uniform3(50_000..400_000_i64),
        four in prop::array::uniform3(100_000..600_000_i64),
        spread in 1..9_i64,
        skew in 1..3_i32,
        free in 0..5_i64,
    ) {
        let mut cluster = zonal(two, four);
        cluster.pending("web", usize::try_from(spread).unwrap(), &web(skew));
        cluster.pending("free", usize::try_from(free).unwrap(), &shape(900, 1));
        let plan = cluster.plan();
        let whole = |zone: usize, pods: i64| {
            let with_large = |large: i64| large * four[zone] + (pods - 4 * large + 1).max(0) / 2 * two[zone];
            (0..=pods).map(with_large).min().unwrap() as f64
        };
        let fractions = |zone: usize, pods: i64| pods as f64 * (two[zone] as f64 / 2.0).min(four[zone] as f64 / 4.0);
        let most = cheapest(spread, i64::from(skew), free, whole);
        let least = cheapest(spread, i64::from(skew), free, fractions);
        let bound = plan.lower_bound.0 as f64;
        prop_assert!(plan.unschedulable.is_empty());
        prop_assert!(bound <= most && bound >= least * (1.0 - 1e-6), "{bound}, {least} to {most}");
    }
}
