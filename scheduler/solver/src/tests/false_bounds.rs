//! The lower bound of a plan holds for other plans of the same pods, too: those that may launch only some of the
//! instance types. The bound that a plan reports is cut to its cost, which hides a false one.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{HostPort, PodShape, TopologySpread};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const GPU: &str = "nvidia.com/gpu";
/// All of them are sold in all zones, so that spreads count the same zones without some of them.
const TYPES: [&str; 8] =
    ["c5.large", "c5.2xlarge", "g5.4xlarge", "g5.xlarge", "m5.large", "m5.xlarge", "r5.large", "r5.2xlarge"];

/// What a workload has beside its requests.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Nothing,
    Gpus(i64),
    Port(u16),
    Apart,
    ApartFromFirst,
    FewPerHost(i32),
    WithFirst,
    Zones(i32),
}

fn any_rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::Nothing),
        (1..3_i64).prop_map(Rule::Gpus),
        (9000..9002_u16).prop_map(Rule::Port),
        Just(Rule::Apart),
        Just(Rule::ApartFromFirst),
        (1..3_i32).prop_map(Rule::FewPerHost),
        Just(Rule::WithFirst),
        (1..3_i32).prop_map(Rule::Zones),
    ]
}

/// A pod of the workload `name`.
fn pod(name: &str, cores: i64, gib: i64, rule: Rule) -> PodShape {
    let mut pod = PodShape { requests: shape(cores * 250, gib).requests, ..app(name, 0) };
    let own = |key: &str, skew: i32| vec![TopologySpread { selector: selector(name), ..spread(key, skew) }];
    match rule {
        Rule::Nothing => {}
        Rule::Gpus(count) => pod.requests.set(GPU, count),
        Rule::Port(port) => pod.host_ports = vec![HostPort { ip: "0.0.0.0".into(), port, protocol: "TCP".into() }],
        Rule::Apart => pod.pod_affinity = vec![affinity(label::HOSTNAME, true, name)],
        Rule::ApartFromFirst => pod.pod_affinity = vec![affinity(label::HOSTNAME, true, "w0")],
        Rule::FewPerHost(skew) => pod.topology_spread = own(label::HOSTNAME, skew),
        Rule::WithFirst => pod.pod_affinity = vec![affinity(label::HOSTNAME, false, "w0")],
        Rule::Zones(skew) => pod.topology_spread = own(label::ZONE, skew),
    }
    pod
}

/// A cluster whose zones have different prices, with GPUs.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for (name, cpu, gpus, price) in [("g5.4xlarge", 16, 1, 1_000_000), ("g5.xlarge", 4, 2, 700_000)] {
        let mut with_gpus = instance(name, cpu, cpu * 4, price);
        with_gpus.capacity.set(GPU, gpus);
        cluster.catalog.instance_types.push(with_gpus);
    }
    cluster.catalog.instance_types.sort_by(|a, b| a.name.cmp(&b.name));
    for kind in &mut cluster.catalog.instance_types {
        kind.offerings.iter_mut().filter(|one| one.zone == "zone-b").for_each(|one| one.price.0 += one.price.0 / 10);
        kind.offerings.iter_mut().filter(|one| one.zone == "zone-c").for_each(|one| one.price.0 += one.price.0 / 4);
    }
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn no_plan_with_some_of_the_instance_types_costs_less_than_the_bound(
        workloads in prop::collection::vec((1..12_i64, 0..6_i64, any_rule(), 1..7_usize), 1..5),
        some_types in prop::collection::vec(prop::sample::subsequence(TYPES.to_vec(), 1..4), 3),
    ) {
        let mut cluster = cluster();
        for (number, (cores, gib, rule, count)) in workloads.into_iter().enumerate() {
            let name = format!("w{number}");
            cluster.pending(&name, count, &pod(&name, cores, gib, rule));
        }
        let plan = cluster.plan_with(false);
        let bound = cluster.uncut_bound(&plan);
        prop_assert!(bound <= plan.hourly.0, "{bound} is above {}: {plan:#?}", plan.hourly);
        for types in some_types.into_iter().filter(|_| plan.unschedulable.is_empty()) {
            let mut fewer = cluster.clone();
            fewer.pool().requirements.push(requirement(label::INSTANCE_TYPE, Operator::In, &types));
            let other = fewer.plan_with(false);
            let comparable = other.unschedulable.is_empty();
            prop_assert!(!comparable || bound <= other.hourly.0, "{bound} is above {}: {other:#?}", other.hourly);
        }
    }
}
