//! Consolidation of several nodes together.

use super::builder::*;
use super::properties::steady;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::requirements::Operator;
use plimsoll_model::resources::CPU;
use plimsoll_model::snapshot::{ConsolidationPolicy, DisruptionReason, PodShape, PodState};
use plimsoll_model::time::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn saving(plan: &Plan) -> i64 {
    plan.terminations.iter().map(|one| one.saving.0).sum()
}

fn postponed(plan: &Plan) -> Vec<&str> {
    plan.postponed_removals.iter().map(|node| node.as_str()).collect()
}

#[test]
fn several_nodes_are_replaced_by_several() {
    let mut cluster = Cluster::new();
    for number in 0..8 {
        let name = format!("n{number}");
        cluster.node(&name, "r5.large");
        cluster.bound(&format!("p{number}"), &name, &shape(1500, 1));
    }
    let plan = cluster.plan();
    assert_eq!(removed(&plan).len(), 8);
    // Five pods on 8 cores for 320,000, two on 4 cores for 160,000 and one on 2 cores for 80,000. The pods use 12
    // cores, and no other combination of these sizes costs less.
    assert_eq!(plan.hourly.0, 560_000);
    let placed: BTreeSet<&str> = plan.launched_pods().map(|pod| pod.uid.as_str()).collect();
    assert_eq!(placed.len(), 8, "each pod is placed once");
}

/// Eight pods on a node that could be replaced by a node that costs 32,000 less.
fn dear_node() -> Cluster {
    let mut cluster = Cluster::new();
    for (node, kind) in [("n1", "m5.xlarge"), ("n2", "c5.2xlarge")] {
        cluster.node(node, kind);
        for number in 0..8 {
            cluster.bound(&format!("{node}-{number}"), node, &shape(if node == "n1" { 450 } else { 1000 }, 0));
        }
    }
    cluster
}

#[test]
fn pods_that_moved_a_short_time_ago_stay_unless_it_saves_much() {
    let mut cluster = dear_node();
    assert_eq!(removed(&cluster.plan()), [("n1", DisruptionReason::Underutilized)]);
    let mut removals = |hours: i64, eviction_cost_milli: i64| {
        for pod in &mut cluster.snapshot.pods {
            (pod.created, pod.eviction_cost_milli) = (Timestamp(NOW.0 - hours * 3_600_000), eviction_cost_milli);
        }
        removed(&cluster.plan()).len()
    };
    assert_eq!(removals(5, 1000), 0, "eight times 500 times 9 (48 / 5) is more than 32,000");
    assert_eq!(removals(7, 1000), 1, "eight times 500 times 6 (48 / 7) is less than 32,000");
    assert_eq!(removals(0, 400), 1, "eight times 200 times 16 at most is less than 32,000");
    assert_eq!(removals(0, 600), 0, "eight times 300 times 16 is more than 32,000");
}

#[test]
fn evictions_have_to_be_worth_their_cost() {
    let mut cluster = dear_node();
    cluster.snapshot.pods.iter_mut().for_each(|pod| pod.eviction_cost_milli = 10_000);
    assert_eq!(removed(&cluster.plan()), [], "eight times 5,000 is more than 32,000");
    cluster.snapshot.pods.iter_mut().for_each(|pod| pod.eviction_cost_milli = 7_000);
    assert_eq!(removed(&cluster.plan()).len(), 1);
}

#[test]
fn a_node_is_launched_only_if_it_saves_enough_beyond_deletions() {
    let mut cluster = Cluster::new();
    for name in ["n1", "n2"] {
        cluster.node(name, "m5.large");
        cluster.bound(&format!("p-{name}"), name, &shape(900, 1));
    }
    // Removing one node saves 96,000. Replacing both by a c5.large saves 16,000 more.
    let plan = cluster.plan();
    assert_eq!((plan.launches.len(), plan.terminations.len()), (0, 1));
}

#[test]
fn nodes_whose_pods_fit_on_one_that_stays_go_together() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    for (name, kind) in [("n1", "c5.large"), ("n2", "c5.large"), ("n3", "c5.xlarge")] {
        cluster.node_of(name, kind, "default", CapacityType::Spot).do_not_disrupt = name == "n3";
        cluster.bound(&format!("p-{name}"), name, &shape(500, 1));
    }
    // If the nodes were removed one by one, n1 would move its pod to n2, which would then have to stay.
    let plan = cluster.plan();
    assert_eq!((removed(&plan).len(), plan.launches.len()), (2, 0));
    let taking: BTreeSet<&str> =
        plan.terminations.iter().flat_map(|one| &one.moved_to).map(|to| to.node.as_str()).collect();
    assert_eq!(taking, BTreeSet::from(["n3"]));
}

#[test]
fn a_replacement_keeps_min_values_among_what_costs_less() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement(label::INSTANCE_TYPE, Operator::Exists, &[]));
    for name in ["n1", "n2"] {
        cluster.node(name, "r5.large");
        cluster.bound(&format!("p-{name}"), name, &shape(1200, 2));
    }
    // Both pods fit on a c5.xlarge or an m5.xlarge. An r5.xlarge costs as much as both nodes.
    cluster.pool().requirements[2].min_values = Some(2);
    let plan = cluster.plan();
    assert_eq!((removed(&plan).len(), launched(&plan)), (2, vec![("c5.xlarge".to_owned(), 2)]));
    assert!(plan.launches[0].offerings.iter().all(|one| one.price.0 < 252_000));
    cluster.pool().requirements[2].min_values = Some(3);
    assert_eq!(removed(&cluster.plan()), []);
}

/// Four nodes with one pod each, all of which one smaller node could run.
fn four_nodes() -> Cluster {
    let mut cluster = Cluster::new();
    for number in 0..4 {
        let name = format!("n{number}");
        cluster.node(&name, "r5.large");
        cluster.bound(&format!("p{number}"), &name, &shape(800, 1));
    }
    cluster
}

#[test]
fn nodes_that_are_to_go_later_take_no_pods() {
    let mut cluster = four_nodes();
    assert_eq!(removed(&cluster.plan()).len(), 4, "one c5.xlarge is cheaper than any two of them");
    cluster.allow(DisruptionReason::Underutilized, 1);
    let plan = cluster.plan();
    assert_eq!((plan.terminations.len(), plan.launches.len()), (1, 1));
    assert_eq!(plan.terminations[0].moved_to, [], "the other nodes have capacity, and are removed later");
    let gone = plan.terminations[0].node.as_str();
    let others: Vec<&str> = ["n0", "n1", "n2", "n3"].into_iter().filter(|node| *node != gone).collect();
    assert_eq!(postponed(&plan), others);
}

#[test]
fn nodes_of_a_pool_that_loses_none_are_not_postponed() {
    let mut cluster = Cluster::with([pool("default"), pool("other")]);
    for name in ["a1", "a2", "a3", "b1", "b2"] {
        let (pool, mut pod) = if name.starts_with('a') { ("default", shape(100, 5)) } else { ("other", shape(900, 3)) };
        pod.node_selector.insert(label::NODE_POOL.into(), pool.into());
        cluster.node_of(name, "m5.large", pool, CapacityType::OnDemand);
        cluster.bound(&format!("p-{name}"), name, &pod);
    }
    assert_eq!(removed(&cluster.plan()).len(), 4, "one r5.large replaces the nodes of the first pool");
    // The replacement of a single node of the first pool does not pay.
    cluster.allow(DisruptionReason::Underutilized, 1);
    let plan = cluster.plan();
    assert_eq!((removed(&plan).len(), postponed(&plan)), (1, Vec::new()), "{plan:#?}");
    assert!(plan.terminations[0].node.as_str().starts_with('b'));
}

#[test]
fn a_node_that_its_budget_does_not_allow_to_remove_at_all_is_not_postponed() {
    let mut cluster = four_nodes();
    cluster.allow(DisruptionReason::Underutilized, 0);
    let plan = cluster.plan();
    assert_eq!((removed(&plan), postponed(&plan)), (Vec::new(), Vec::new()));
    // The pod of n2 must stay for as long as its budget allows no eviction. The three others are removed one by one.
    cluster.allow(DisruptionReason::Underutilized, 1);
    cluster.budget("fixed", 0);
    for pod in cluster.snapshot.pods.iter_mut().filter(|pod| pod.uid.as_str() == "p2") {
        pod.pod_disruption_budgets = vec!["fixed".into()];
    }
    let plan = cluster.plan();
    assert_eq!(removed(&plan).len(), 1);
    assert!(!removed(&plan).iter().any(|(node, _)| *node == "n2") && !postponed(&plan).contains(&"n2"));
    assert!(!postponed(&plan).is_empty());
}

#[test]
fn nodes_that_stay_get_the_pods_whose_requests_cost_most_elsewhere() {
    let mut cluster = Cluster::new();
    cluster.node("n0", "m5.xlarge").do_not_disrupt = true;
    cluster.bound("held", "n0", &shape(3500, 1));
    // 500m and 15 GiB are left on n0, enough for one of the two pods. By CPU alone, `small` would be chosen.
    cluster.node("n1", "r5.xlarge");
    cluster.bound("large", "n1", &shape(400, 12));
    cluster.node("n2", "r5.xlarge");
    cluster.bound("small", "n2", &shape(500, 1));
    let plan = cluster.plan();
    let moved: Vec<&str> = plan.terminations.iter().flat_map(|one| &one.moved_to).map(|to| to.node.as_str()).collect();
    assert_eq!((removed(&plan).len(), moved), (2, vec!["n0"]));
    assert_eq!(plan.terminations[0].moved_to[0].pods[0].name, "ns/large");
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 1)]);
}

/// Pools `a` and `b`, with three nodes in `a` that one c5.2xlarge can replace for 40,000 less, but only all together.
fn two_pools() -> Cluster {
    let mut cluster = Cluster::with([pool("a"), pool("b")]);
    let kinds = requirement(label::INSTANCE_TYPE, Operator::In, &["c5.large", "c5.2xlarge", "r5.large"]);
    cluster.snapshot.node_pools.iter_mut().for_each(|pool| pool.requirements.push(kinds.clone()));
    let large = cluster.catalog.instance_types.iter_mut().find(|one| one.name == "c5.2xlarge").unwrap();
    large.offerings.iter_mut().for_each(|one| one.price = MicroUsdPerHour(200_000));
    for name in ["a0", "a1", "a2"] {
        cluster.node_of(name, "c5.large", "a", CapacityType::OnDemand);
        cluster.bound(&format!("p-{name}"), name, &of_pool("a", 1900));
    }
    cluster
}

fn of_pool(pool: &str, milli: i64) -> PodShape {
    let mut one = shape(milli, 0);
    one.node_selector.insert(label::NODE_POOL.into(), pool.into());
    one
}

fn names(plan: &Plan) -> Vec<&str> {
    removed(plan).into_iter().map(|(node, _)| node).collect()
}

#[test]
fn the_saving_of_one_pool_does_not_pay_for_a_useless_replacement_in_another() {
    let mut cluster = two_pools();
    for name in ["b0", "b1", "b2"] {
        cluster.node_of(name, "r5.large", "b", CapacityType::OnDemand);
        cluster.bound(&format!("p-{name}"), name, &of_pool("b", 1900));
    }
    assert_eq!(names(&cluster.plan()), ["a0", "a1", "a2", "b0", "b1", "b2"]);
    // One node of `a` alone would be replaced by the same type.
    cluster.allow(DisruptionReason::Underutilized, 1);
    let plan = cluster.plan();
    assert_eq!((names(&plan), plan.launches.len()), (vec!["b0", "b1", "b2"], 1));
}

#[test]
fn a_removal_that_is_not_worth_its_disturbance_does_not_hold_back_another_pool() {
    let mut cluster = two_pools();
    cluster.snapshot.node_pools[1].disruption.policy = ConsolidationPolicy::Balanced;
    cluster.node_of("b0", "c5.large", "b", CapacityType::OnDemand);
    for index in 0..10 {
        cluster.bound(&format!("tiny-{index}"), "b0", &of_pool("b", 50));
    }
    cluster.node_of("b1", "c5.2xlarge", "b", CapacityType::OnDemand);
    cluster.bound("large", "b1", &of_pool("b", 5000));
    assert_eq!(names(&cluster.plan()), ["a0", "a1", "a2"]);
    cluster.snapshot.node_pools[1].disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    assert_eq!(names(&cluster.plan()), ["a0", "a1", "a2", "b0"]);
}

/// Cores of a node, price, and requests of its pods.
type Machine = (i64, i64, Vec<i64>);

/// Maximum saving from removing any of these nodes, for pods that request only CPU: each pod of a removed node moves to
/// another node or to one of two new nodes. All choices are tried.
fn most_saving(nodes: &[Machine]) -> i64 {
    let mut most = 0;
    for removed in 0..1_u32 << nodes.len() {
        let is_removed = |index: &usize| removed & (1 << index) != 0;
        let (gone, kept): (Vec<usize>, Vec<usize>) = (0..nodes.len()).partition(is_removed);
        let pods: Vec<i64> = gone.iter().flat_map(|index| nodes[*index].2.clone()).collect();
        let price: i64 = gone.iter().map(|index| nodes[*index].1).sum();
        let mut free: Vec<i64> =
            kept.iter().map(|index| nodes[*index].0 * 1000 - nodes[*index].2.iter().sum::<i64>()).collect();
        let evictions = 500 * i64::try_from(pods.len()).unwrap();
        let launched = cheapest(&pods, &mut free, [0, 0]);
        most = most.max(price - evictions - launched.unwrap_or(i64::MAX / 2));
    }
    most
}

/// Minimum cost of new nodes with these loads once `pods` are placed.
fn cheapest(pods: &[i64], free: &mut Vec<i64>, new: [i64; 2]) -> Option<i64> {
    let Some((pod, rest)) = pods.split_first() else {
        let price = |load: i64| match load {
            0 => Some(0),
            1..=2000 => Some(80_000),
            2001..=4000 => Some(160_000),
            4001..=8000 => Some(320_000),
            _ => None,
        };
        return Some(price(new[0])? + price(new[1])?);
    };
    let mut best: Option<i64> = None;
    for index in 0..free.len() {
        if free[index] >= *pod {
            free[index] -= pod;
            best = best.into_iter().chain(cheapest(rest, free, new)).min();
            free[index] += pod;
        }
    }
    for index in 0..2 {
        let mut with = new;
        with[index] += pod;
        best = best.into_iter().chain(cheapest(rest, free, with)).min();
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..steady() })]

    /// Compares with an exhaustive search. A plan may forgo a saving of 20,000 to avoid a launch.
    #[test]
    fn consolidation_saves_about_the_most_possible(
        drawn in prop::collection::vec((0..6_usize, prop::collection::vec(2..16_i64, 1..3)), 2..5)
    ) {
        let kinds = [("c5.large", 2), ("c5.xlarge", 4), ("c5.2xlarge", 8), ("m5.large", 2), ("m5.xlarge", 4), ("r5.xlarge", 4)];
        let mut cluster = Cluster::new();
        let mut nodes: Vec<Machine> = Vec::new();
        for (number, (kind, requests)) in drawn.iter().enumerate() {
            let (kind, cores) = kinds[*kind];
            let name = format!("n{number}");
            cluster.node(&name, kind);
            let mut left = cores * 1000;
            let mut pods = Vec::new();
            for request in requests.iter().map(|tenths| tenths * 100) {
                if request <= left {
                    left -= request;
                    cluster.bound(&format!("{name}-{}", pods.len()), &name, &shape(request, 0));
                    pods.push(request);
                }
            }
            let of_kind = cluster.catalog.get(kind).unwrap();
            let price = of_kind.offerings.iter().map(|one| one.price.0).max().unwrap();
            nodes.push((cores, price, pods));
        }
        let plan = cluster.plan();
        let requested = |uid: &str| {
            let pod = cluster.snapshot.pods.iter().find(|pod| pod.uid.as_str() == uid).unwrap();
            assert!(matches!(pod.state, PodState::Bound(_)));
            cluster.snapshot.shapes.iter().find(|one| one.id == pod.shape).unwrap().requests.get(CPU)
        };
        let moved: usize = plan.terminations.iter().map(|one| one.pods.len()).sum();
        prop_assert!(plan.terminations.iter().flat_map(|one| &one.pods).all(|pod| requested(pod.uid.as_str()) > 0));
        let saved = saving(&plan) - 500 * i64::try_from(moved).unwrap();
        let most = most_saving(&nodes);
        prop_assert!(saved <= most + 8, "saves {saved}, and no more than {most} is possible: {nodes:?}");
        prop_assert!(saved >= most - 20_000, "saves {saved} of {most}: {nodes:?}");
    }
}

/// Total saving of the removals in each part of the plan that shares no launch with the others.
fn savings_of_parts(plan: &Plan) -> Vec<i64> {
    let mut parts: Vec<(BTreeSet<usize>, i64)> = Vec::new();
    for one in &plan.terminations {
        let mut merged = (one.replaced_by.iter().copied().collect::<BTreeSet<usize>>(), one.saving.0);
        let (shared, apart): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(launches, _)| !launches.is_disjoint(&merged.0));
        for (launches, saving) in shared {
            merged.0.extend(launches);
            merged.1 += saving;
        }
        parts = apart;
        parts.push(merged);
    }
    parts.into_iter().map(|(_, saving)| saving).collect()
}

proptest! {
    #![proptest_config(steady())]

    #[test]
    fn each_part_of_a_removal_saves(
        drawn in prop::collection::vec((0..4_usize, any::<bool>(), prop::collection::vec(3..19_i64, 1..3)), 2..9),
        allowed in prop::collection::vec(0..4_u32, 2),
    ) {
        let mut cluster = Cluster::with([pool("a"), pool("b")]);
        for (pool, count) in cluster.snapshot.node_pools.iter_mut().zip(allowed) {
            pool.disruption.allowed.insert(DisruptionReason::Underutilized, count);
        }
        let kinds = ["c5.large", "c5.xlarge", "m5.large", "r5.large"];
        for (number, (kind, first, requests)) in drawn.into_iter().enumerate() {
            let (name, pool) = (format!("n{number}"), if first { "a" } else { "b" });
            let mut left = cluster.node_of(&name, kinds[kind], pool, CapacityType::OnDemand).allocatable.get(CPU);
            for (index, request) in requests.into_iter().map(|tenths| tenths * 100).enumerate() {
                if request <= left {
                    left -= request;
                    cluster.bound(&format!("{name}-{index}"), &name, &of_pool(pool, request));
                }
            }
        }
        let plan = cluster.plan();
        let consolidated = plan.terminations.iter().all(|one| one.reason == DisruptionReason::Underutilized);
        prop_assert!(consolidated);
        prop_assert!(savings_of_parts(&plan).into_iter().all(|saving| saving > 0), "{:#?}", plan.terminations);
    }
}
