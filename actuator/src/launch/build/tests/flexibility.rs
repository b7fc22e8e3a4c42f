use super::*;
use std::collections::BTreeSet;

/// The world with a type that is cheaper than the others and bare metal, or has a GPU.
fn world_with_exotic_type(change: impl Fn(&mut InstanceType)) -> World {
    let mut world = World::new();
    let mut exotic = kind("x.metal", 9000, 10, 20);
    change(&mut exotic);
    Arc::make_mut(&mut world.catalog).instance_types.push(exotic);
    world
}

fn types(launch: &Launch) -> BTreeSet<&str> {
    launch.offerings.iter().map(|choice| choice.instance_type.as_str()).collect()
}

#[test]
fn bare_metal_and_accelerators_are_launched_only_if_nothing_else_remains() {
    let metal = |kind: &mut InstanceType| {
        kind.labels.insert(label::INSTANCE_SIZE.to_owned(), "metal-24xl".to_owned());
    };
    let gpu = |kind: &mut InstanceType| kind.capacity.set("nvidia.com/gpu", 1);
    for world in [world_with_exotic_type(metal), world_with_exotic_type(gpu)] {
        let (launch, _) = world.narrow(&world.launch()).unwrap();
        assert_eq!(types(&launch), ["c.large"].into());
        let others = |choice: &OfferingChoice| choice.instance_type != "x.metal";
        assert_eq!(types(&world.narrow_without(&world.launch(), others).unwrap().0), ["x.metal"].into());
    }
    let ordinary = world_with_exotic_type(|_| ());
    assert_eq!(
        types(&ordinary.narrow(&ordinary.launch()).unwrap().0),
        ["x.metal"].into(),
        "the name alone says nothing"
    );
}

#[test]
fn min_values_hold_after_narrowing() {
    let category = format!("{}/instance-category", label::AWS_DOMAIN);
    let flexible = |world: &World, wanted: u32| {
        let mut launch = world.launch();
        let requirement = NodeSelectorRequirement::new(category.as_str(), Operator::Exists, [""; 0]);
        Arc::make_mut(&mut launch.requirements)
            .push(NodeSelectorRequirement { min_values: Some(wanted), ..requirement });
        launch
    };
    let world = World::new();
    let two = flexible(&world, 2);
    let (launch, _) = world.narrow(&two).unwrap();
    assert_eq!(types(&launch), ["c.large", "m.large"].into(), "also a Spot price above the cheapest On-Demand price");
    assert!(launch.offerings.iter().all(|choice| choice.capacity_type == CapacityType::Spot));

    let exotic = world_with_exotic_type(|kind| kind.capacity.set("nvidia.com/gpu", 1));
    let (launch, _) = exotic.narrow(&flexible(&exotic, 3)).unwrap();
    assert_eq!(types(&launch), ["c.large", "m.large", "x.metal"].into());

    let refusal = world.narrow_without(&two, |choice| choice.instance_type == "m.large").unwrap_err();
    assert_eq!(refusal.reason, OutcomeReason::NoCapacity);
    let message = format!("NodePool pool: minValues asks for 2 values of {category}, but only 1 are available now");
    assert_eq!(refusal.message, message);
}

/// Each is a resource of accelerators that nobody asked for.
#[test]
fn no_kind_of_accelerator_is_launched_without_need() {
    for resource in ["nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "aws.amazon.com/neuron"] {
        let world = world_with_exotic_type(|kind| kind.capacity.set(resource, 1));
        assert_eq!(types(&world.narrow(&world.launch()).unwrap().0), ["c.large"].into(), "{resource}");
    }
}

/// It is paid for anyway.
#[test]
fn a_reserved_instance_is_launched_although_it_has_accelerators() {
    let mut world = world_with_exotic_type(|kind| {
        let reservation = plimsoll_model::catalog::CapacityReservation {
            id: "cr-1".to_owned(),
            capacity_block: false,
            interruptible: false,
            count: None,
        };
        kind.capacity.set("nvidia.com/gpu", 1);
        kind.offerings.truncate(1);
        kind.offerings[0].capacity_type = CapacityType::Reserved;
        kind.offerings[0].reservation = Some(reservation);
    });
    Arc::make_mut(&mut world.pool).spec.template.spec.requirements[0] =
        Requirement::new(label::CAPACITY_TYPE, Operator::In, ["reserved", "spot", "on-demand"]);
    assert_eq!(shown(&world.narrow(&world.launch()).unwrap().0), ["x.metal a reserved"]);
}

#[test]
fn min_values_count_zones_capacity_types_and_types_that_are_available_now() {
    let mut world = World::new();
    let kinds = Arc::make_mut(&mut world.catalog).instance_types.iter_mut();
    for offering in kinds.flat_map(|kind| &mut kind.offerings) {
        offering.zone_id = format!("id-{}", offering.zone);
    }
    let flexible = |key: &str| {
        let mut launch = world.launch();
        let requirement = NodeSelectorRequirement::new(key, Operator::Exists, [""; 0]);
        let requirement = NodeSelectorRequirement { min_values: Some(2), ..requirement };
        Arc::make_mut(&mut launch.requirements).push(requirement);
        launch
    };
    type Closed = fn(&OfferingChoice) -> bool;
    let rows: [(&str, Closed); 4] = [
        (label::ZONE, |choice| choice.zone == "b"),
        (label::ZONE_ID, |choice| choice.zone == "b"),
        (label::CAPACITY_TYPE, |choice| choice.capacity_type == CapacityType::OnDemand),
        (label::INSTANCE_TYPE, |choice| choice.instance_type == "m.large"),
    ];
    for (key, closed) in rows {
        let launch = flexible(key);
        assert!(world.narrow(&launch).is_ok(), "{key}");
        let refusal = world.narrow_without(&launch, closed).unwrap_err();
        assert!(refusal.message.contains("only 1 are available now"), "{refusal:?}");
    }
}

/// The API server refuses a claim that lists fewer values than its `minValues`.
#[test]
fn a_claim_asks_for_no_more_values_than_it_lists() {
    let mut world = World::new();
    // m.large is On-Demand only.
    Arc::make_mut(&mut world.catalog).instance_types[1].offerings.remove(0);
    let requirements = &mut Arc::make_mut(&mut world.pool).spec.template.spec.requirements;
    requirements[0].min_values = Some(2);
    for (key, wanted) in [(label::ZONE, 2), (label::INSTANCE_TYPE, 2), (label::ARCH, 1)] {
        let exists = Requirement::new(key, Operator::Exists, [""; 0]);
        requirements.push(Requirement { min_values: Some(wanted), ..exists });
    }
    let mut launch = world.launch();
    let planned = world.pool.spec.template.spec.requirements.iter().map(NodeSelectorRequirement::from);
    Arc::make_mut(&mut launch.requirements).extend(planned);
    // The policy BestEffort lowers `minValues` in the plan only.
    Arc::make_mut(&mut world.pool).spec.template.spec.requirements[3].min_values = Some(5);
    let admitted = world.admitted(&launch);
    assert_eq!(shown(&admitted.launch), ["c.large a spot"]);
    let claim = object(&admitted, &GroupKey { id: "g".to_owned(), size: 1 }, 3, "77");
    let wanted = |key: &str| {
        let requirement = claim.spec.requirements.iter().find(|it| it.key == key).unwrap();
        (requirement.operator, requirement.values.join(" "), requirement.min_values)
    };
    let listed = |values: &str| (Operator::In, values.to_owned(), Some(1));
    assert_eq!(wanted(label::CAPACITY_TYPE), listed("spot"));
    assert_eq!(wanted(label::ZONE), listed("a"));
    assert_eq!(wanted(label::INSTANCE_TYPE), listed("c.large"));
    assert_eq!(wanted(label::ARCH), (Operator::Exists, String::new(), Some(1)), "no list, so nothing to refuse");
}
