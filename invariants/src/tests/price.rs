//! Tests of limits of the price.

use super::*;

#[test]
fn a_limit_of_the_price_counts_the_dearest_offering_of_each_launch() {
    let usd = "plimsoll.dev/usd-per-hour";
    let limit = |case: &mut Case, limit: i64| {
        case.snapshot.node_pools[0].limits = Resources::from([(usd, limit)]);
        ["n1", "n2"].into_iter().for_each(|node| case.node(node).limit_usage.set(usd, 50));
        // Nobody recorded the price of n3: that of the catalog counts.
        let known = [(label::INSTANCE_TYPE, "b"), (label::CAPACITY_TYPE, "on-demand")];
        case.node("n3").labels.extend(known.map(|(key, value)| (key.to_owned(), value.to_owned())));
    };
    accepted(|case| limit(case, 50 + 50 + 120 + 120));
    rejected("pool default exceeds its limit of plimsoll.dev/usd-per-hour", |case| limit(case, 339));
    // What plans pay is not what is billed.
    rejected("pool default exceeds its limit of plimsoll.dev/usd-per-hour", |case| {
        limit(case, 340);
        case.catalog.instance_types[0].offerings[0].list_price = Some(MicroUsdPerHour(121));
    });
}
