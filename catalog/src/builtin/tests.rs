use super::*;
use plimsoll_model::catalog::CapacityType;

#[test]
fn the_catalog_has_every_priced_type_of_each_region() {
    let count = |region| catalog(region, &NodeClassSettings::default()).unwrap().instance_types.len();
    assert_eq!(regions(), ["ap-northeast-2", "eu-west-1", "us-east-1", "us-west-2"]);
    assert_eq!(regions().into_iter().map(count).collect::<Vec<_>>(), [742, 1165, 1334, 1303]);
}

#[test]
fn an_unknown_region_is_an_error() {
    let error = catalog("eu-central-1", &NodeClassSettings::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no built-in catalog of region \"eu-central-1\"; \
         there is one of ap-northeast-2, eu-west-1, us-east-1, us-west-2"
    );
}

#[test]
fn the_catalog_has_zones_ids_and_prices() {
    let catalog = catalog("us-east-1", &NodeClassSettings::default()).unwrap();
    let offerings = &catalog.get("m5.large").unwrap().offerings;
    let zones: Vec<_> = offerings
        .iter()
        .filter(|it| it.capacity_type == CapacityType::OnDemand)
        .map(|it| (it.zone.as_str(), it.zone_id.as_str(), it.price.0, it.available))
        .collect();
    let expected = [("a", 2), ("b", 4), ("c", 6), ("d", 1), ("f", 5)]
        .map(|(letter, id)| (format!("us-east-1{letter}"), format!("use1-az{id}")));
    let expected: Vec<_> = expected.iter().map(|(zone, id)| (zone.as_str(), id.as_str(), 96_000, true)).collect();
    assert_eq!(zones, expected);
}

#[test]
fn spot_prices_are_25_to_60_percent_of_on_demand_prices() {
    for region in regions() {
        for instance_type in catalog(region, &NodeClassSettings::default()).unwrap().instance_types {
            let on_demand = price_of(&instance_type.offerings, CapacityType::OnDemand);
            for offering in instance_type.offerings.iter().filter(|it| it.capacity_type == CapacityType::Spot) {
                let percent = offering.price.0 * 100;
                assert!(percent >= on_demand * 25 - 50 && percent <= on_demand * 60 + 50, "{}", instance_type.name);
            }
        }
    }
}

fn price_of(offerings: &[plimsoll_model::catalog::Offering], capacity_type: CapacityType) -> i64 {
    offerings.iter().find(|it| it.capacity_type == capacity_type).map_or(0, |it| it.price.0)
}

#[test]
fn price_sources_cover_all_prices() {
    let facts = |region| {
        let sources = price_sources(region).unwrap();
        let facts = sources.values().filter(|source| source.as_of().is_some()).count();
        (sources.len(), facts)
    };
    assert_eq!(facts("us-east-1"), (1334, 1334));
    assert_eq!(facts("ap-northeast-2"), (742, 325));
    assert_eq!(price_sources("eu-west-1").unwrap()["a1.large"], PriceSource::Recorded);
    assert_eq!(price_sources("eu-west-1").unwrap()["a1.2xlarge"], PriceSource::FamilyRatio);
}

#[test]
fn the_first_graviton_generation_is_unavailable_for_al2023() {
    let available = |settings: &NodeClassSettings| {
        let catalog = catalog("us-east-1", settings).unwrap();
        catalog.get("a1.large").unwrap().offerings.iter().any(|offering| offering.available)
    };
    assert!(!available(&NodeClassSettings::default()));
    let bottlerocket =
        NodeClassSettings { ami_family: plimsoll_api::AmiFamily::Bottlerocket, ..NodeClassSettings::default() };
    assert!(available(&bottlerocket));
}
