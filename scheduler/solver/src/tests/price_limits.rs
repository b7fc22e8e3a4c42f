//! Limits of the price of a pool's nodes: `plimsoll.dev/usd-per-hour`.

use super::builder::*;
use super::properties::any_cluster;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{USD_PER_HOUR_RESOURCE, label};
use plimsoll_model::overlay::{NodeOverlay, PriceChange};
use plimsoll_model::plan::{Launch, ReasonCode};
use plimsoll_model::requirements::Operator;
use plimsoll_model::resources::Resources;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The dearest offering of a launch, as billed.
fn dearest(cluster: &Cluster, launch: &Launch) -> i64 {
    let price = |choice: &plimsoll_model::plan::OfferingChoice| cluster.catalog.find(choice).unwrap().1.price.0;
    launch.offerings.iter().map(price).max().unwrap()
}

/// One launch for a pod of one core, with a limit of the price.
fn limited(change: impl FnOnce(&mut Cluster)) -> Cluster {
    let mut cluster = Cluster::new();
    change(&mut cluster);
    cluster.pending("p", 1, &shape(1000, 1));
    cluster
}

#[test]
fn a_launch_lists_what_the_limit_allows_and_nothing_dearer() {
    let free = limited(|_| ()).plan();
    let unlimited = dearest(&limited(|_| ()), &free.launches[0]);
    let cheapest = free.hourly.0;
    assert!(cheapest < unlimited);
    for limit in [cheapest, unlimited - 1] {
        let cluster = limited(|cluster| cluster.pool().limits.set(USD_PER_HOUR_RESOURCE, limit));
        let plan = cluster.plan();
        assert_eq!((plan.launches.len(), plan.hourly.0), (1, cheapest));
        assert!(dearest(&cluster, &plan.launches[0]) <= limit, "{limit}: {:?}", plan.launches[0].offerings);
    }
    let none = limited(|cluster| cluster.pool().limits.set(USD_PER_HOUR_RESOURCE, cheapest - 1)).plan();
    assert_eq!(none.launches, []);
    let reason = &none.unschedulable[0].reasons;
    assert!(reason.iter().any(|one| one.code == ReasonCode::LimitReached), "{reason:?}");
}

#[test]
fn nodes_count_at_the_recorded_price_or_else_at_the_catalogs() {
    let cheapest = limited(|_| ()).plan().hourly.0;
    let with_node = |limit: i64, recorded: Option<i64>| {
        let cluster = limited(|cluster| {
            cluster.pool().limits.set(USD_PER_HOUR_RESOURCE, limit);
            let node = cluster.node("full", "c5.large");
            node.cordoned = true;
            recorded.iter().for_each(|price| node.limit_usage.set(USD_PER_HOUR_RESOURCE, *price));
        });
        let node = &cluster.snapshot.nodes[0];
        let price = cluster.catalog.offering_of(&node.labels).unwrap().price.0;
        (cluster.plan_with(false).launches.len(), price)
    };
    let (_, price) = with_node(0, None);
    assert!(price > 0);
    assert_eq!([with_node(price + cheapest, None).0, with_node(price + cheapest - 1, None).0], [1, 0]);
    assert_eq!([with_node(7 + cheapest, Some(7)).0, with_node(7 + cheapest - 1, Some(7)).0], [1, 0]);
}

#[test]
fn overlays_change_what_plans_prefer_and_not_what_counts() {
    let overlaid = |limit: Option<i64>| {
        let mut cluster = limited(|cluster| {
            limit.iter().for_each(|limit| cluster.pool().limits.set(USD_PER_HOUR_RESOURCE, *limit));
        });
        cluster.pool().overlays = vec![NodeOverlay {
            name: "cheap".to_owned(),
            weight: 0,
            requirements: vec![requirement(label::INSTANCE_TYPE, Operator::In, &["r5.xlarge"])],
            price: Some(PriceChange::To(MicroUsdPerHour(1))),
            capacity: Resources::new(),
        }];
        cluster
    };
    let free = overlaid(None);
    let plan = free.plan();
    assert_eq!((plan.launches[0].offerings[0].instance_type.as_str(), plan.hourly.0), ("r5.xlarge", 1));
    let billed = free.catalog.get("r5.xlarge").unwrap().offerings.iter().map(|one| one.price.0).min().unwrap();
    let tight = overlaid(Some(billed - 1)).plan();
    assert_ne!(tight.launches[0].offerings[0].instance_type, "r5.xlarge", "it is billed at {billed}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    /// The launches and nodes of each pool cost at most its limit, or the pool launches nothing.
    #[test]
    fn plans_keep_limits_of_the_price(mut cluster in any_cluster(), limits in prop::collection::vec(0..1_500_000_i64, 2)) {
        for (pool, limit) in cluster.snapshot.node_pools.iter_mut().zip(&limits) {
            pool.limits.set(USD_PER_HOUR_RESOURCE, *limit);
        }
        let plan = cluster.plan();
        for (pool, limit) in cluster.snapshot.node_pools.iter().zip(&limits) {
            let own: Vec<&Launch> = plan.launches.iter().filter(|one| one.node_pool == pool.name).collect();
            let nodes = cluster.snapshot.nodes.iter().filter(|one| one.node_pool.as_ref() == Some(&pool.name));
            let price = |labels| cluster.catalog.offering_of(labels).map_or(0, |one| one.price.0);
            let used: i64 = nodes.map(|node| price(&node.labels)).sum();
            let added: i64 = own.iter().map(|launch| dearest(&cluster, launch)).sum();
            prop_assert!(own.is_empty() || used + added <= *limit, "{used} + {added} of {limit}");
        }
    }
}
