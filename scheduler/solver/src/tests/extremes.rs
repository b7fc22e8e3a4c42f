//! Prices of any height.

use super::builder::*;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::requirements::Operator;

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
