//! Prices and eviction costs of any height.

use super::builder::*;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::ConsolidationPolicy;
use plimsoll_model::snapshot::DisruptionReason::Underutilized;

/// Sets the highest price that a number can be.
fn raise_prices(cluster: &mut Cluster) {
    let offerings = cluster.catalog.instance_types.iter_mut().flat_map(|kind| &mut kind.offerings);
    offerings.for_each(|offering| offering.price = MicroUsdPerHour(i64::MAX));
}

#[test]
fn ten_thousand_nodes_of_any_price_are_planned() {
    let of_team = |team: &str| {
        let mut one = pool(team);
        one.requirements.push(requirement("team", Operator::In, &[team]));
        one
    };
    let mut cluster = Cluster::with(["a", "b"].map(of_team));
    cluster.catalog.instance_types.retain(|kind| kind.name == "c5.large");
    raise_prices(&mut cluster);
    for team in ["a", "b"] {
        let mut half = shape(1500, 1);
        half.node_selector.insert("team".into(), team.into());
        cluster.pending(team, 5_000, &half);
    }
    let plan = cluster.plan_with(false);
    assert_eq!((plan.launches.len(), plan.hourly.0), (10_000, i64::MAX));
}

#[test]
fn a_balanced_pool_weighs_prices_and_disturbances_of_any_height() {
    let mut cluster = Cluster::new();
    cluster.pool().disruption.policy = ConsolidationPolicy::Balanced;
    raise_prices(&mut cluster);
    for (node, milli) in [("n1", 500), ("n2", 3400)] {
        cluster.node(node, "c5.xlarge");
        cluster.bound(&format!("on-{node}"), node, &shape(milli, 1)).eviction_cost_milli = i64::MAX;
    }
    assert_eq!(removed(&cluster.plan()), [], "the eviction costs more than the node");
    let free = PlanOptions { min_saving_per_eviction: MicroUsdPerHour(0), ..PlanOptions::default() };
    assert_eq!(removed(&cluster.plan_by(&free)), [("n1", Underutilized)], "half of the cost and of the disturbance");
}
