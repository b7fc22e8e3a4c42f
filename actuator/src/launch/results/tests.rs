use super::*;
use crate::ports::{LaunchTemplateConfig, Override, ReservationSpec};
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
        capacity_type: CapacityType::Spot,
        price: MicroUsdPerHour(price),
        available: true,
        list_price: list_price.map(MicroUsdPerHour),
        ..Offering::default()
    }
}

/// An instance type with these offerings.
fn kind(offerings: Vec<Offering>) -> InstanceType {
    InstanceType { name: "m5.large".to_owned(), architecture: "amd64".to_owned(), offerings, ..InstanceType::default() }
}

/// An instance of this type.
fn bought(zone: &str, capacity_type: CapacityType) -> FleetInstance {
    FleetInstance {
        instance_id: "i-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: zone.to_owned(),
        capacity_type,
        subnet_id: String::new(),
        image_id: String::new(),
    }
}

#[test]
fn the_price_that_counts_is_that_of_the_offering_bought_and_at_most_the_reserved_one() {
    let kind = kind(vec![offering("a", 30_000, None), offering("b", 20_000, Some(50_000))]);
    let bought = |zone: &str| bought(zone, CapacityType::Spot);
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

#[test]
fn a_reserved_instance_is_in_the_reservation_that_its_claim_or_else_its_request_names() {
    let reserved = |id: &str, zone: &str| {
        let reservation =
            CapacityReservation { id: id.to_owned(), capacity_block: false, interruptible: false, count: None };
        let capacity_type = CapacityType::Reserved;
        Offering { capacity_type, reservation: Some(reservation), ..offering(zone, 1, None) }
    };
    let kind = kind(vec![offering("a", 1, None), reserved("cr-1", "a"), reserved("cr-2", "a"), reserved("cr-3", "b")]);
    let listing = |ids: &[&str]| {
        let mut listing = claim(None);
        let requirement = json!({"key": label::CAPACITY_RESERVATION_ID, "operator": "In", "values": ids});
        listing.spec.requirements = vec![serde_json::from_value(requirement).unwrap()];
        listing
    };
    // The launch request of a NodeClaim without a NodePool.
    let requesting = |mut claim: NodeClaim| {
        let way = Override {
            instance_type: "m5.large".to_owned(),
            zone: "a".to_owned(),
            subnet_id: None,
            image_id: "ami-1".to_owned(),
            priority: 1,
        };
        let config = LaunchTemplateConfig {
            launch_template_name: "karpenter.k8s.aws/1".to_owned(),
            version: 1,
            overrides: vec![way],
            reservation: Some(ReservationSpec::Target { id: "cr-2".to_owned(), market_type: None }),
        };
        let request = FleetRequest {
            client_token: "g-1".to_owned(),
            capacity_type: CapacityType::Reserved,
            total_target_capacity: 1,
            launch_template_configs: vec![config],
            ..FleetRequest::default()
        };
        let text = durable::write(&request).unwrap();
        claim.metadata.annotations.get_or_insert_default().insert(annotation::LAUNCH_REQUEST.to_owned(), text);
        claim
    };
    let reservation_of = |claim: &NodeClaim, zone: &str, capacity_type| {
        reservation(claim, &bought(zone, capacity_type), &kind).map(|reservation| reservation.id)
    };
    let in_reservation = |claim: &NodeClaim, zone: &str| reservation_of(claim, zone, CapacityType::Reserved);
    assert_eq!(in_reservation(&listing(&["cr-2", "cr-3"]), "a").as_deref(), Some("cr-2"));
    assert_eq!(in_reservation(&listing(&["cr-2", "cr-3"]), "b").as_deref(), Some("cr-3"));
    assert_eq!(reservation_of(&listing(&["cr-2"]), "a", CapacityType::OnDemand), None);
    assert_eq!(in_reservation(&claim(None), "a"), None);
    assert_eq!(in_reservation(&requesting(claim(None)), "a").as_deref(), Some("cr-2"));
    assert_eq!(in_reservation(&requesting(claim(None)), "b"), None, "not requested");
    assert_eq!(in_reservation(&requesting(listing(&["cr-1"])), "a").as_deref(), Some("cr-1"));
    assert_eq!(in_reservation(&requesting(listing(&["cr-1", "cr-2"])), "a").as_deref(), Some("cr-2"), "of several");
    let mut excluding = requesting(listing(&["cr-1"]));
    excluding.spec.requirements[0].operator = Operator::NotIn;
    assert_eq!(in_reservation(&excluding, "a").as_deref(), Some("cr-2"));
}

#[test]
fn the_message_of_a_failure_says_what_ec2_said_and_is_short() {
    let no_capacity =
        |refusals: &str| message(&Failure::InsufficientCapacity { refusals: refusals.to_owned(), named: true });
    assert_eq!(no_capacity(""), "no offering has capacity");
    assert_eq!(no_capacity("Code for 2: no"), "no offering has capacity: Code for 2: no");
    for refusals in ["x".repeat(600), "ä".repeat(300)] {
        let told = no_capacity(&refusals);
        assert!((MAX_MESSAGE - 1..=MAX_MESSAGE).contains(&told.len()), "{} bytes", told.len());
    }
}

/// Each cause has a pause of its own.
#[test]
fn the_cause_of_a_failure_is_the_one_that_its_pool_pauses_for() {
    let no_capacity = |named| Failure::InsufficientCapacity { refusals: String::new(), named };
    let refused = Failure::Refused { code: "Denied".to_owned(), message: String::new() };
    for (failure, expected) in [
        (no_capacity(true), "InsufficientCapacity"),
        (no_capacity(false), "UnnamedInsufficientCapacity"),
        (refused, "Denied"),
        (Failure::Throttled, "Throttled"),
        (Failure::NothingFound, "NothingFound"),
        (Failure::NotAccepted, "NotAccepted"),
        (Failure::Deleted, "Deleted"),
    ] {
        assert_eq!(cause(&failure), expected);
    }
}
