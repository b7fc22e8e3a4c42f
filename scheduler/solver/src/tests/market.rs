//! NodePools of equal weight compete by price. Their names do not matter.

use super::builder::*;
use super::properties::steady;
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{NodePool, PodShape};
use proptest::prelude::*;

const KINDS: [&str; 6] = ["c5.large", "c5.2xlarge", "m5.large", "m5.xlarge", "r5.large", "r5.xlarge"];

fn of_types(name: &str, types: &[&str]) -> NodePool {
    let mut one = pool(name);
    one.requirements.push(requirement(label::INSTANCE_TYPE, Operator::In, types));
    one
}

/// Names in both orders, so that neither order decides.
#[test]
fn of_pools_of_one_weight_the_cheaper_one_launches() {
    for (cheap, dear) in [("a", "z"), ("z", "a")] {
        let plan = Cluster::with([of_types(cheap, &["c5.large"]), of_types(dear, &["c5.2xlarge"])])
            .pending("p", 1, &shape(1000, 1))
            .plan();
        let pools: Vec<&str> = plan.launches.iter().map(|one| one.node_pool.as_str()).collect();
        assert_eq!(pools, [cheap]);
    }
}

#[test]
fn a_higher_weight_comes_before_a_lower_price() {
    let mut dear = of_types("dear", &["c5.2xlarge"]);
    dear.weight = 1;
    let plan = Cluster::with([of_types("cheap", &["c5.large"]), dear]).pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(plan.launches[0].node_pool.as_str(), "dear");
}

/// One pool has the cores, the other the memory, and only the latter can run all pods. Both together are cheaper.
#[test]
fn pods_go_to_the_pools_that_suit_them() {
    let pods = [(7, 1, 24), (1, 24, 4)];
    for (first, second) in [("a", "z"), ("z", "a")] {
        let (cores, memory) =
            (of_types(first, &["c5.large", "c5.2xlarge"]), of_types(second, &["r5.large", "r5.xlarge"]));
        let together = planned(vec![cores, memory.clone()], &pods);
        let alone = planned(vec![memory], &pods);
        assert_eq!((together.unschedulable.len(), alone.unschedulable.len()), (0, 0));
        assert!(together.hourly < alone.hourly, "{} beside {}", together.hourly, alone.hourly);
        for name in [first, second] {
            assert!(together.launches.iter().any(|one| one.node_pool.as_str() == name), "no launch of {name}");
        }
    }
}

/// Pods that exceed the limit of one pool run in the next pool.
#[test]
fn limits_of_each_pool_hold() {
    let mut cheap = of_types("cheap", &["c5.large"]);
    cheap.limits.set("cpu", 2000);
    let plan = Cluster::with([cheap, of_types("dear", &["m5.large"])]).pending("p", 3, &shape(1500, 1)).plan();
    let mut pools: Vec<&str> = plan.launches.iter().map(|one| one.node_pool.as_str()).collect();
    pools.sort_unstable();
    assert_eq!((pools, plan.unschedulable.len()), (vec!["cheap", "dear", "dear"], 0));
}

/// A pool is full with two nodes. They are for pods that require this pool, whatever its weight: the others, which are
/// larger, run in the other pool.
#[test]
fn the_limit_of_a_pool_is_left_to_pods_that_no_other_pool_takes() {
    for weight in [0, 10] {
        let mut limited = NodePool { weight, ..of_types("a", &["c5.large"]) };
        limited.limits.set("cpu", 4000);
        let mut own = shape(1500, 1);
        own.node_selector.insert(label::NODE_POOL.into(), "a".into());
        let mut cluster = Cluster::with([limited, of_types("b", &["m5.large"])]);
        let plan = cluster.pending("any", 2, &shape(1600, 1)).pending("own", 2, &own).plan();
        let mut pools: Vec<&str> = plan.launches.iter().map(|one| one.node_pool.as_str()).collect();
        pools.sort_unstable();
        assert_eq!((pools, plan.unschedulable.len()), (vec!["a", "a", "b", "b"], 0), "weight {weight}");
        // Without pods that require it, the pool of the highest weight is full first.
        cluster.snapshot.pods.retain(|pod| pod.name.starts_with("any"));
        let pools: Vec<_> = cluster.plan().launches.iter().map(|one| one.node_pool.as_str().to_owned()).collect();
        assert_eq!(pools, ["a", "a"], "weight {weight}");
    }
}

/// Pods of a high priority accept either pool, but not all of them fit in one. Other pods do not come before them.
#[test]
fn the_limit_of_a_pool_is_not_left_to_pods_of_lower_priority() {
    let limited = |name, weight, milli| {
        let mut one = NodePool { weight, ..of_types(name, &["c5.xlarge"]) };
        one.limits.set("cpu", milli);
        one
    };
    let own = |milli| {
        let mut one = shape(milli, 1);
        one.node_selector.insert(label::NODE_POOL.into(), "a".into());
        one
    };
    let mut cluster = Cluster::with([limited("a", 10, 8000), limited("b", 0, 4000)]);
    cluster.pending("high", 3, &PodShape { priority: 1000, ..shape(3000, 1) });
    // Only the small pods fit beside them.
    for number in 0..20 {
        cluster.pending(&format!("large-{number}"), 8, &own(1200 + number));
    }
    let plan = cluster.pending("small", 1, &own(700)).pending("smaller", 1, &own(699)).plan();
    let mut placed: Vec<&str> = plan.launched_pods().map(|pod| pod.name.as_str()).collect();
    placed.sort_unstable();
    assert_eq!(placed, ["ns/high-0", "ns/high-1", "ns/high-2", "ns/small-0", "ns/smaller-0"]);
}

/// The limit of one pool permits two small nodes, or a large one. Two small nodes in the cheap zone are best, together
/// with nodes of the other pool, which has no limit.
#[test]
fn a_pool_with_a_limit_gets_what_is_cheapest_there() {
    for (limited, free) in [("a", "z"), ("z", "a")] {
        let mut first = pool(limited);
        first.limits.set("cpu", 8000);
        let mut second = pool(free);
        second.requirements.push(requirement(label::ZONE, Operator::In, &["zone-a", "zone-c"]));
        let mut cluster = Cluster::with([first, second]);
        cluster.catalog.instance_types = vec![instance("c5.2xlarge", 8, 16, 0), instance("c5.xlarge", 4, 8, 0)];
        for (kind, prices) in [("c5.2xlarge", [150_000, 0, 100_000]), ("c5.xlarge", [0, 26_000, 59_000])] {
            let kind = cluster.catalog.instance_types.iter_mut().find(|one| one.name == kind).unwrap();
            for (zone, price) in ["zone-a", "zone-b", "zone-c"].into_iter().zip(prices) {
                let here = kind.offerings.iter_mut().filter(|one| one.zone == zone);
                here.for_each(|one| (one.price.0, one.available) = (price, price > 0));
            }
        }
        // Seven pods on a large node, and three on a small one.
        let plan = cluster.pending("p", 15, &shape(1100, 1)).plan();
        assert_eq!((plan.hourly.0, plan.unschedulable.len()), (2 * 26_000 + 100_000 + 59_000, 0), "{limited}");
    }
}

/// A node is replaced by a node of another pool of the same weight if that is cheaper.
#[test]
fn a_replacement_comes_from_the_cheapest_pool() {
    for (cheap, dear) in [("a", "z"), ("z", "a")] {
        let mut cluster = Cluster::with([of_types(cheap, &["c5.large"]), of_types(dear, &["c5.2xlarge", "m5.xlarge"])]);
        cluster.node_of("n", "c5.2xlarge", dear, plimsoll_model::catalog::CapacityType::OnDemand);
        cluster.bound("b", "n", &shape(1000, 1));
        let plan = cluster.plan();
        let pools: Vec<&str> = plan.launches.iter().map(|one| one.node_pool.as_str()).collect();
        assert_eq!((pools, plan.terminations.len()), (vec![cheap], 1));
    }
}

/// Name, types, and limit in cores.
type DrawnPool = (String, Vec<&'static str>, Option<i64>);

/// Pools with random names, of random types, some with limits.
fn any_pools() -> impl Strategy<Value = Vec<DrawnPool>> {
    let one = ("[a-z]{1,8}", prop::sample::subsequence(&KINDS[..], 1..=3), prop::option::weighted(0.3, 4..24_i64));
    prop::collection::vec(one, 2..=5)
}

fn pools(drawn: &[DrawnPool]) -> Vec<NodePool> {
    let named = drawn.iter().enumerate().map(|(index, (name, types, limit))| {
        // Makes names distinct, in any order.
        let mut one = of_types(&format!("{name}-{index}"), types);
        if let Some(cores) = limit {
            one.limits.set("cpu", cores * 1000);
        }
        one
    });
    named.collect()
}

/// Quarters of a core, GiB, and number of pods.
fn any_pods() -> impl Strategy<Value = Vec<(i64, i64, usize)>> {
    prop::collection::vec((1..12_i64, 0..10_i64, 1..12_usize), 1..5)
}

fn planned(pools: Vec<NodePool>, pods: &[(i64, i64, usize)]) -> Plan {
    let mut cluster = Cluster::with(pools);
    for (index, (cores, gib, count)) in pods.iter().enumerate() {
        cluster.pending(&format!("p{index}"), *count, &shape(cores * 250, *gib));
    }
    // Also checks validity, including the limits of each pool.
    cluster.plan()
}

/// Like `planned`, with the pods of each shape spread over zones.
fn planned_spread(pools: Vec<NodePool>, pods: &[(i64, i64, usize)]) -> Plan {
    let mut cluster = Cluster::with(pools);
    for (index, (cores, gib, count)) in pods.iter().enumerate() {
        let name = format!("p{index}");
        let mut spread_shape = app(&name, cores * 250);
        spread_shape.requests.set("memory", gib << 30);
        spread_shape.topology_spread = vec![spread(label::ZONE, 1)];
        cluster.pending(&name, *count, &spread_shape);
    }
    cluster.plan()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..steady() })]

    #[test]
    fn pools_together_are_never_dearer_than_the_best_of_them((drawn, pods) in (any_pools(), any_pods())) {
        compare(&pools(&drawn), |pools| planned(pools, &pods))?;
    }
}

proptest! {
    // Each case computes up to six plans, and each plan tries every pool with every zone.
    #![proptest_config(ProptestConfig { cases: 200, ..steady() })]

    /// Also holds for pods that are spread over zones.
    #[test]
    fn the_same_holds_for_pods_that_are_spread((drawn, pods) in (any_pools(), any_pods())) {
        compare(&pools(&drawn), |pools| planned_spread(pools, &pods))?;
    }
}

/// Compares the plan for all pools with the plan for each single pool.
fn compare(pools: &[NodePool], plan: impl Fn(Vec<NodePool>) -> Plan) -> Result<(), TestCaseError> {
    let together = plan(pools.to_vec());
    for pool in pools {
        let alone = plan(vec![pool.clone()]);
        let (left, least) = (together.unschedulable.len(), alone.unschedulable.len());
        prop_assert!(left <= least, "{}: {left} pods left, {least} with it alone", pool.name);
        if left == least {
            prop_assert!(together.hourly <= alone.hourly, "{}: {} beside {}", pool.name, together.hourly, alone.hourly);
        }
        prop_assert!(together.lower_bound <= together.hourly);
    }
    Ok(())
}
