use super::*;
use plimsoll_model::resources::Resources;
use serde_json::json;

fn claim(reserved: Option<&str>) -> NodeClaim {
    let annotations =
        reserved.map(|price| json!({ annotation::RESERVED: format!(r#"{{"{USD_PER_HOUR_RESOURCE}":"{price}"}}"#) }));
    let claim = json!({"metadata": {"name": "c", "annotations": annotations}, "spec": {"requirements": [],
        "nodeClassRef": {"group": "g", "kind": "EC2NodeClass", "name": "default"}}});
    serde_json::from_value(claim).unwrap()
}

fn offering(zone: &str, price: i64, list_price: Option<i64>) -> Offering {
    Offering {
        zone: zone.to_owned(),
        zone_id: String::new(),
        capacity_type: CapacityType::Spot,
        price: MicroUsdPerHour(price),
        available: true,
        list_price: list_price.map(MicroUsdPerHour),
        reservation: None,
    }
}

#[test]
fn the_price_that_counts_is_that_of_the_offering_bought_and_at_most_the_reserved_one() {
    let kind = InstanceType {
        name: "m5.large".to_owned(),
        architecture: "amd64".to_owned(),
        operating_systems: Vec::new(),
        capacity: Resources::new(),
        overhead: Resources::new(),
        labels: BTreeMap::new(),
        offerings: vec![offering("a", 30_000, None), offering("b", 20_000, Some(50_000))],
    };
    let bought = |zone: &str| FleetInstance {
        instance_id: "i-1".to_owned(),
        instance_type: kind.name.clone(),
        zone: zone.to_owned(),
        capacity_type: CapacityType::Spot,
        subnet_id: String::new(),
        image_id: String::new(),
    };
    let price = |reserved, zone: &str, kind| price(&claim(reserved), &bought(zone), kind, None).map(|price| price.0);
    for (reserved, zone, expected, why) in [
        (Some("0.04"), "a", Some(30_000), "the offering's"),
        (Some("0.025"), "a", Some(25_000), "it has risen since the launch was admitted"),
        (Some("0.06"), "b", Some(50_000), "what is billed"),
        (Some("0.04"), "c", Some(40_000), "an offering that the catalog lacks"),
        (None, "a", Some(30_000), "a claim of an older version"),
        (None, "c", None, "nobody knows"),
        (Some("free"), "c", None, "unreadable"),
    ] {
        assert_eq!(price(reserved, zone, Some(&kind)), expected, "{why}");
    }
    assert_eq!(price(Some("0.04"), "a", None), Some(40_000), "a type that the catalog lacks");
}
