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
