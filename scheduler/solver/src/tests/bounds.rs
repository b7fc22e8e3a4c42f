//! Cost against the exact optimum of tiny instances.

use super::builder::*;
use plimsoll_model::snapshot::ConsolidationPolicy;
use proptest::prelude::*;

/// The least that nodes for all pods cost: each set of pods on the cheapest type that holds it, over all ways to split them.
fn optimum(cluster: &Cluster, pods: &[(i64, i64)]) -> i64 {
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
        let fitting = types.iter().filter(|one| one.0 >= cpu && one.1 >= memory);
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_bound_is_below_the_optimum_and_the_plan_not_far_above(
        pods in prop::collection::vec((1..32_i64, 0..40_i64), 1..9)
    ) {
        let mut cluster = Cluster::new();
        cluster.pool().disruption.policy = ConsolidationPolicy::WhenEmpty;
        let pods: Vec<(i64, i64)> = pods.into_iter().map(|(cores, gib)| (cores * 250, gib)).collect();
        for (index, (milli, gib)) in pods.iter().enumerate() {
            cluster.pending(&format!("p{index}"), 1, &shape(*milli, *gib));
        }
        let plan = cluster.plan();
        let optimum = optimum(&cluster, &pods);
        prop_assert!(plan.unschedulable.is_empty());
        prop_assert!(plan.lower_bound.0 <= optimum, "bound {} above {optimum}", plan.lower_bound);
        prop_assert!(plan.hourly.0 >= optimum);
        prop_assert!(plan.hourly.0 * 10 <= optimum * 13, "{} for {optimum}", plan.hourly);
    }
}
