//! What a launch requests of EC2.

use super::*;
use crate::launch::preview::{PreviewError, preview};
use crate::launch::purchase::{Purchase, RequestError};
use crate::ports::{FleetRequest, LaunchTemplateSpec, MarketType, ReservationSpec};
use crate::resolve::{Resolved, ResolvedImage, ResolvedSubnet};
use crate::settings::Settings;
use crate::state::launch_group::claim_name;
use plimsoll_api::{AmiFamily, NodeOverlay};
use plimsoll_model::catalog::CapacityReservation;
use plimsoll_model::names::tag;

/// A class with a subnet in each of these zones.
fn resolved(zones: &[&str]) -> Resolved {
    let subnet =
        |zone: &&str| ResolvedSubnet { id: format!("subnet-{zone}"), zone: (*zone).to_owned(), zone_id: String::new() };
    let image = ResolvedImage { id: "ami-1".to_owned(), name: String::new(), requirements: Requirements::default() };
    Resolved {
        node_class: "class".to_owned(),
        subnets: zones.iter().map(subnet).collect(),
        security_group_ids: vec!["sg-1".to_owned()],
        images: vec![image],
        instance_profile: "profile".to_owned(),
        placement_group: None,
    }
}

fn settings() -> Settings {
    Settings { service_cidr: Some("10.100.0.0/16".to_owned()), ..Settings::default() }
}

/// Of the subnets in zone a and zone b, those in these zones have free addresses.
fn purchase(world: &World, admitted: &Admitted, free: &[&str]) -> Result<Purchase, RequestError> {
    let placement_group = world.class.placement_group().cloned();
    let resolved = Resolved { placement_group, ..resolved(&["a", "b"]) };
    Purchase::plan(admitted, &resolved, &settings(), |resolved, zone| {
        resolved.subnet_in(zone).filter(|subnet| free.contains(&subnet.zone.as_str()))
    })
}

fn request(world: &World, launch: &Launch) -> (Vec<LaunchTemplateSpec>, FleetRequest) {
    let group = GroupKey { id: "g".to_owned(), size: 2 };
    purchase(world, &world.admitted(launch), &["a", "b"]).unwrap().preview(&group, None)
}

#[test]
fn offerings_are_requested_in_zones_with_free_addresses_by_price() {
    let world = World::new();
    let closed = |choice: &OfferingChoice| choice.capacity_type == CapacityType::Spot;
    let (launch, requirements) = world.narrow_without(&world.launch(), closed).unwrap();
    let admitted = Admitted { launch, requirements, ..world.admitted(&world.launch()) };
    let requested = |free: &[&str]| {
        let group = GroupKey { id: "g".to_owned(), size: 1 };
        let request = purchase(&world, &admitted, free)?.preview(&group, Some("pool-1")).1;
        assert_eq!((request.capacity_type, request.total_target_capacity), (CapacityType::OnDemand, 1));
        assert_eq!((request.tags[tag::NODE_CLAIM].as_str(), request.tags[tag::LAUNCH_GROUP].as_str()), ("pool-1", "g"));
        let shown = |subnet: &str, image: &str, priority: u64| format!("{subnet} {image} {priority}");
        let ways = request.overrides();
        let ways = ways.map(|it| shown(it.subnet_id.as_deref().unwrap_or_default(), &it.image_id, it.priority));
        Ok::<_, RequestError>(ways.collect::<Vec<_>>())
    };
    assert_eq!(requested(&["b"]).unwrap(), ["subnet-b ami-1 90", "subnet-b ami-1 100"]);
    assert_eq!(requested(&["a", "b"]).unwrap().len(), 4);
    assert!(matches!(requested(&[]), Err(RequestError::NoSubnet(class)) if class == "class"));
}

#[test]
fn instances_of_a_reservation_are_requested_in_its_own_market() {
    for (capacity_block, interruptible, market_type) in [
        (false, false, None),
        (true, false, Some(MarketType::CapacityBlock)),
        (false, true, Some(MarketType::InterruptibleCapacityReservation)),
    ] {
        let mut world = World::new();
        let of_id = |id: &str| CapacityReservation { id: id.to_owned(), capacity_block, interruptible, count: None };
        for (kind, id) in Arc::make_mut(&mut world.catalog).instance_types.iter_mut().zip(["cr-1", "cr-2"]) {
            let (capacity_type, price) = (CapacityType::Reserved, MicroUsdPerHour(1));
            let reservation = Some(of_id(id));
            kind.offerings.push(Offering { capacity_type, price, reservation, ..kind.offerings[0].clone() });
        }
        Arc::make_mut(&mut world.pool).spec.template.spec.requirements[0] =
            Requirement::new(label::CAPACITY_TYPE, Operator::In, ["reserved", "on-demand", "spot"]);
        let (templates, fleet) = request(&world, &world.launch());
        let target = |id: &str| Some(ReservationSpec::Target { id: id.to_owned(), market_type });
        // EC2 launches Capacity Blocks one at a time.
        let expected: Vec<_> = ["cr-1", "cr-2"].into_iter().take(if capacity_block { 1 } else { 2 }).collect();
        let of_templates: Vec<_> = templates.iter().map(|template| template.reservation.clone()).collect();
        assert_eq!(of_templates, expected.iter().map(|id| target(id)).collect::<Vec<_>>());
        for (config, id) in fleet.launch_template_configs.iter().zip(&expected) {
            let kind = if *id == "cr-1" { "c.large" } else { "m.large" };
            let types: Vec<_> = config.overrides.iter().map(|way| way.instance_type.as_str()).collect();
            assert_eq!((&config.reservation, types), (&target(id), vec![kind]));
        }
        assert_eq!(fleet.launch_template_configs.len(), expected.len());
    }
}

#[test]
fn a_template_has_the_tenancy_the_partition_and_all_taints_of_its_launch() {
    let template = |world: &World, key: &str, value: &str| {
        let mut launch = world.launch();
        let requirement = NodeSelectorRequirement::new(key, Operator::In, [value]);
        Arc::make_mut(&mut launch.requirements).push(requirement);
        request(world, &launch).0.remove(0)
    };
    let mut world = in_group("partition", Some(2));
    Arc::make_mut(&mut world.class).spec.ami_family = Some(AmiFamily::AL2023);
    let startup = Taint { key: "example.com/starts".to_owned(), ..Taint::default() };
    Arc::make_mut(&mut world.pool).spec.template.spec.startup_taints = vec![startup];
    let dedicated = template(&world, label::INSTANCE_TENANCY, "dedicated");
    assert_eq!((dedicated.tenancy.as_str(), dedicated.partition), ("dedicated", None));
    let shared = template(&world, label::PLACEMENT_GROUP_PARTITION, "2");
    assert_eq!((shared.tenancy.as_str(), shared.partition), ("default", Some(2)));
    for part in ["dedicated", "example.com/starts", "example.com/tier=two"] {
        assert!(shared.user_data.contains(part), "{part}: {}", shared.user_data);
    }
}

#[test]
fn a_preview_has_the_requests_of_a_new_cluster() {
    let (world, subnets) = (World::new(), resolved(&["a", "b"]));
    let named = |action: &str, change: fn(&mut Launch)| {
        let mut launch = Launch { action_id: action.into(), ..world.launch() };
        change(&mut launch);
        launch
    };
    let previewed = |launches: &[Launch], resolved: &Resolved| {
        let (pool, class, catalog) = (&world.pool, &world.class, &world.catalog);
        let input = |launch| (launch, Arc::clone(pool), Arc::clone(class), Arc::clone(catalog), resolved);
        preview(&settings(), &[], &launches.iter().map(input).collect::<Vec<_>>())
    };
    let on_demand = |launch: &mut Launch| {
        Arc::make_mut(&mut launch.offerings).retain(|choice| choice.capacity_type == CapacityType::OnDemand);
    };
    let launches = [named("one", |_| ()), named("two", on_demand), named("three", |_| ())];
    let previews = previewed(&launches, &subnets).unwrap();
    let shown: Vec<_> = previews
        .iter()
        .map(|it| {
            let names: Vec<_> = it.fleet.launch_template_configs.iter().map(|it| &it.launch_template_name).collect();
            assert_eq!(names, it.templates.iter().map(|template| &template.name).collect::<Vec<_>>());
            (it.launches.clone(), it.fleet.total_target_capacity, it.fleet.tags.get(tag::NODE_CLAIM).cloned())
        })
        .collect();
    let only = claim_name(&"pool".into(), &"two".into());
    assert_eq!(shown, [(vec![0, 2], 2, None), (vec![1], 1, Some(only))], "equal launches share a request");

    let refused = [named("one", |_| ()), named("two", |launch| launch.node_class = "other".to_owned())];
    assert!(matches!(previewed(&refused, &subnets), Err((1, PreviewError::Refused(_)))));
    assert!(matches!(previewed(&launches, &resolved(&["c"])), Err((0, PreviewError::Request(_)))));
}

/// The catalog does not have them.
#[test]
fn a_preview_does_not_compare_resources_of_node_overlays_with_instance_types() {
    let (world, subnets) = (World::new(), resolved(&["a", "b"]));
    let mut launch = world.launch();
    launch.requests.set("example.com/device", 1);
    let (pool, class, catalog) = (Arc::clone(&world.pool), Arc::clone(&world.class), Arc::clone(&world.catalog));
    let input = [(&launch, pool, class, catalog, &subnets)];
    assert!(matches!(preview(&settings(), &[], &input), Err((0, PreviewError::Refused(_)))));
    let overlay = serde_json::json!({"metadata": {"name": "devices"},
        "spec": {"requirements": [], "capacity": {"example.com/device": "4"}}});
    let overlay: NodeOverlay = serde_json::from_value(overlay).unwrap();
    assert_eq!(preview(&settings(), &[Arc::new(overlay)], &input).unwrap().len(), 1);
}
