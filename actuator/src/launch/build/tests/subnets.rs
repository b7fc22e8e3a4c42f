//! Subnets of admitted launches.

use super::*;
use crate::launch::admit::hold;
use crate::resolve::{Resolved, ResolvedSubnet};
use crate::state::subnet_addresses::{HeldAddresses, SubnetAddresses};

/// Two subnets in zone a, one in zone b.
fn resolved() -> Resolved {
    let subnets = [("a1", "a"), ("a2", "a"), ("b1", "b")].map(|(id, zone)| ResolvedSubnet {
        id: id.to_owned(),
        zone: zone.to_owned(),
        zone_id: String::new(),
    });
    Resolved {
        node_class: "class".to_owned(),
        subnets: subnets.to_vec(),
        security_group_ids: vec!["sg-1".to_owned()],
        images: Vec::new(),
        instance_profile: "profile".to_owned(),
        placement_group: None,
    }
}

/// A launch in both zones. `m.large`, which has fewer pods, is only in zone b.
fn on_demand(world: &mut World) -> Admitted {
    let types = &mut Arc::make_mut(&mut world.catalog).instance_types;
    types[0].capacity.set("pods", 29);
    types[1].capacity.set("pods", 8);
    let mut launch = world.launch();
    Arc::make_mut(&mut launch.offerings).retain(|choice| {
        choice.capacity_type == CapacityType::OnDemand && (choice.instance_type == "c.large" || choice.zone == "b")
    });
    world.admitted(&launch)
}

#[test]
fn a_launch_needs_an_address_for_each_pod_of_the_smallest_type_of_a_zone() {
    assert_eq!(on_demand(&mut World::new()).addresses(), [("a", 29), ("b", 8)].into());
}

#[test]
fn launches_of_a_plan_are_spread_over_the_subnets_of_a_zone() {
    let admitted = on_demand(&mut World::new());
    let (addresses, resolved) = (SubnetAddresses::default(), resolved());
    addresses.described([("a1", 250), ("a2", 249), ("b1", 100)]);
    let held: Vec<HeldAddresses> =
        (0..20).map(|_| hold(&addresses, &admitted, &resolved, |subnet| subnet == "none")).collect();
    let count = |subnet: &str| held.iter().filter(|held| held.is_in(subnet)).count();
    assert_eq!((count("a1"), count("a2"), count("b1")), (10, 10, 20));

    let full = hold(&addresses, &admitted, &resolved, |subnet| subnet == "a1" || subnet == "b1");
    assert!(full.is_in("a2") && !full.is_in("b1"), "a full subnet is not requested");
}
