//! How many types, offerings and claims a request has.

use super::*;
use crate::launch::group::by_purchase;
use crate::launch::purchase::Purchase;
use crate::resolve::{Resolved, ResolvedImage, ResolvedSubnet};
use crate::settings::Settings;

/// Types, each as expensive as its number, in each of so many zones, the cheapest first.
fn choices(types: usize, zones: usize) -> Vec<OfferingChoice> {
    let choice = |kind: usize, zone: usize| OfferingChoice {
        instance_type: format!("t{kind:03}"),
        zone: format!("z{zone}"),
        capacity_type: CapacityType::Spot,
        price: MicroUsdPerHour(i64::try_from(kind).unwrap()),
        reservation: None,
    };
    (0..types).flat_map(|kind| (0..zones).map(move |zone| choice(kind, zone))).collect()
}

fn cheapest(mut open: Vec<OfferingChoice>, flexible: bool) -> Vec<OfferingChoice> {
    open.reverse();
    narrow::cheapest_offerings(open, CapacityType::Spot, flexible)
}

#[test]
fn a_launch_has_at_most_60_types_and_300_offerings_the_cheapest() {
    assert_eq!(cheapest(choices(61, 1), false), choices(60, 1));
    assert_eq!(cheapest(choices(61, 6), false), choices(50, 6), "300 offerings");
    assert_eq!(cheapest([choices(3, 2), choices(3, 2)].concat(), false), choices(3, 2), "each once");
}

#[test]
fn a_launch_with_min_values_keeps_an_offering_of_each_type() {
    assert_eq!(cheapest(choices(61, 1), true), choices(61, 1));
    let mut expected = choices(200, 2);
    expected.retain(|choice| choice.zone == "z0" || choice.price < MicroUsdPerHour(100));
    assert_eq!(expected.len(), 300);
    assert_eq!(cheapest(choices(200, 2), true), expected);
}

/// What a launch with this `minValues` in its pool and in its plan requests.
fn purchase(of_pool: Option<u32>, of_plan: Option<u32>) -> Purchase {
    let mut world = World::new();
    let pool = &mut Arc::make_mut(&mut world.pool).spec.template.spec;
    let exists = Requirement::new(label::INSTANCE_TYPE, Operator::Exists, [""; 0]);
    pool.requirements.push(Requirement { min_values: of_pool.map(i64::from), ..exists });
    Arc::make_mut(&mut world.class).spec.context = Some("context".to_owned());
    let mut launch = world.launch();
    let exists = NodeSelectorRequirement::new(label::INSTANCE_TYPE, Operator::Exists, [""; 0]);
    Arc::make_mut(&mut launch.requirements).push(NodeSelectorRequirement { min_values: of_plan, ..exists });
    let image = ResolvedImage { id: "ami-1".to_owned(), name: String::new(), requirements: Requirements::default() };
    let subnet = ResolvedSubnet { id: "subnet-1".to_owned(), zone: "a".to_owned(), zone_id: String::new() };
    let resolved = Resolved {
        node_class: "class".to_owned(),
        subnets: vec![subnet],
        security_group_ids: vec!["sg-1".to_owned()],
        images: vec![image],
        instance_profile: "profile".to_owned(),
        placement_group: None,
    };
    let settings = Settings { service_cidr: Some("10.100.0.0/16".to_owned()), ..Settings::default() };
    Purchase::plan(&world.admitted(&launch), &resolved, &settings, |resolved, _| resolved.subnets.first()).unwrap()
}

#[test]
fn at_most_200_equal_launches_share_a_group() {
    let equal = purchase(None, None);
    let groups = by_purchase((0..201).map(|index| (equal.clone(), index)));
    let launches: Vec<Vec<usize>> = groups.into_iter().map(|(_, launches)| launches).collect();
    assert_eq!(launches, [(0..200).collect::<Vec<_>>(), vec![200]]);
}

/// As in Karpenter.
#[test]
fn a_request_has_the_context_of_its_class_unless_min_values_are_relaxed() {
    let context = |of_plan| {
        let group = GroupKey { id: "g".to_owned(), size: 1 };
        purchase(Some(2), Some(of_plan)).preview(&group, None).1.context
    };
    assert_eq!(context(2).as_deref(), Some("context"));
    assert_eq!(context(1), None);
}

/// EC2 chooses one of them, and a plan must not count on more than it has.
#[test]
fn a_node_in_flight_has_the_room_of_its_smallest_type() {
    let world = World::new();
    let mut admitted = world.admitted(&world.launch());
    admitted.launch = world.launch();
    assert_eq!(admitted.in_flight().allocatable.get("cpu"), 2000, "c.large is before m.large");
    Arc::make_mut(&mut admitted.launch.offerings).reverse();
    assert_eq!(admitted.in_flight().allocatable.get("cpu"), 2000);
}
