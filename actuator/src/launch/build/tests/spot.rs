//! Spot offerings that are dearer than On-Demand.

use super::*;
use plimsoll_model::catalog::CapacityReservation;

/// The only Spot offering that is cheaper than On-Demand: 50, less than 90.
fn cheap_spot(choice: &OfferingChoice) -> bool {
    choice.capacity_type == CapacityType::Spot && choice.instance_type == "c.large"
}

#[test]
fn on_demand_is_launched_if_all_available_spot_is_dearer() {
    let world = World::new();
    let (launch, requirements) = world.narrow_without(&world.launch(), cheap_spot).unwrap();
    let on_demand = ["c.large a on-demand", "c.large b on-demand", "m.large a on-demand", "m.large b on-demand"];
    assert_eq!(shown(&launch), on_demand, "m.large's Spot costs 95, c.large On-Demand 90");
    let capacity_type = requirements.find(label::CAPACITY_TYPE).unwrap();
    assert!(capacity_type.has("on-demand") && !capacity_type.has("spot"));
}

#[test]
fn spot_at_the_price_of_on_demand_is_launched() {
    let mut world = World::new();
    Arc::make_mut(&mut world.catalog).instance_types[1] = kind("m.large", 4000, 90, 100);
    let (launch, _) = world.narrow_without(&world.launch(), cheap_spot).unwrap();
    assert_eq!(shown(&launch), ["m.large a spot"]);
}

#[test]
fn spot_has_no_price_limit_without_on_demand() {
    let world = World::new();
    let mut only_spot = world.launch();
    Arc::make_mut(&mut only_spot.offerings).retain(|choice| choice.capacity_type == CapacityType::Spot);
    let (launch, _) = world.narrow_without(&only_spot, cheap_spot).unwrap();
    assert_eq!(shown(&launch), ["m.large a spot"], "the launch must be Spot");

    let no_on_demand = |choice: &OfferingChoice| cheap_spot(choice) || choice.capacity_type == CapacityType::OnDemand;
    let (launch, _) = world.narrow_without(&world.launch(), no_on_demand).unwrap();
    assert_eq!(shown(&launch), ["m.large a spot"], "On-Demand has no capacity");
}

#[test]
fn spot_has_no_price_limit_with_min_values() {
    let world = World::new();
    let mut launch = world.launch();
    let requirement = NodeSelectorRequirement::new(label::INSTANCE_TYPE, Operator::Exists, [""; 0]);
    Arc::make_mut(&mut launch.requirements).push(NodeSelectorRequirement { min_values: Some(1), ..requirement });
    let (launch, _) = world.narrow_without(&launch, cheap_spot).unwrap();
    assert_eq!(shown(&launch), ["m.large a spot"]);
}

#[test]
fn a_reservation_comes_before_on_demand_that_is_cheaper_than_spot() {
    let mut world = World::new();
    let offerings = &mut Arc::make_mut(&mut world.catalog).instance_types[1].offerings;
    let reservation =
        CapacityReservation { id: "cr-1".to_owned(), capacity_block: false, interruptible: false, count: None };
    let price = MicroUsdPerHour(1);
    let reserved = CapacityType::Reserved;
    let spot = offerings[0].clone();
    offerings.push(Offering { capacity_type: reserved, price, reservation: Some(reservation), ..spot });
    Arc::make_mut(&mut world.pool).spec.template.spec.requirements[0] =
        Requirement::new(label::CAPACITY_TYPE, Operator::In, ["reserved", "spot", "on-demand"]);
    let (launch, _) = world.narrow_without(&world.launch(), cheap_spot).unwrap();
    assert_eq!(shown(&launch), ["m.large a reserved"]);
}
