//! Compares costs with the exact optimum of tiny instances.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::ConsolidationPolicy;
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
