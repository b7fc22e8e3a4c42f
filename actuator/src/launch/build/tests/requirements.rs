//! Requirements of pools and plans, and what they rule out.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A world whose pool has this requirement as well.
pub(super) fn requiring(key: &str, operator: Operator, values: &[&str]) -> World {
    let mut world = World::new();
    let requirement = Requirement::new(key, operator, values.iter().copied());
    Arc::make_mut(&mut world.pool).spec.template.spec.requirements.push(requirement);
    world
}

#[test]
fn a_pool_that_is_being_deleted_gets_no_launch() {
    let mut world = World::new();
    Arc::make_mut(&mut world.pool).metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let refusal = world.narrow(&world.launch()).unwrap_err();
    assert_eq!(
        (refusal.reason, refusal.message.as_str()),
        (OutcomeReason::PoolChanged, "NodePool pool is being deleted")
    );
}

#[test]
fn a_pool_may_require_a_region_an_operating_system_and_zones_by_id() {
    let narrowed = |key: &str, values: &[&str], zone_id: fn(&str) -> String| {
        let mut world = requiring(key, Operator::In, values);
        for kind in &mut Arc::make_mut(&mut world.catalog).instance_types {
            kind.offerings.iter_mut().for_each(|offering| offering.zone_id = zone_id(&offering.zone));
        }
        world.narrow(&world.launch()).map(|_| ()).map_err(|refusal| refusal.message)
    };
    let zone_id = |zone: &str| format!("id-{zone}");
    let rows: [(&str, &[&str]); 7] = [
        (label::REGION, &["r"]),
        (label::OS, &["linux"]),
        (label::ZONE_ID, &["id-a", "id-b"]),
        (label::ZONE, &["a", "b"]),
        (label::ARCH, &["amd64"]),
        (label::INSTANCE_TYPE, &["c.large", "m.large"]),
        ("karpenter.k8s.aws/instance-category", &["c", "m"]),
    ];
    for (key, own) in rows {
        assert_eq!(narrowed(key, own, zone_id), Ok(()), "{key}");
        let message = narrowed(key, &["other"], zone_id).unwrap_err();
        assert!(message.contains("does not allow c.large in a") && message.contains(key), "{message}");
    }
    let unknown = |_: &str| String::new();
    assert_eq!(narrowed(label::ZONE_ID, &["other"], unknown), Ok(()), "not every catalog has zone ids");
}

/// Types without GPUs have no such label, types of a class for Linux have no Windows build, and only offerings of a
/// reservation have its id.
#[test]
fn a_pool_may_require_or_exclude_labels_that_not_every_offering_has() {
    for key in ["karpenter.k8s.aws/instance-gpu-name", label::WINDOWS_BUILD, label::CAPACITY_RESERVATION_ID] {
        let narrowed = |operator, values: &[&str]| {
            let world = requiring(key, operator, values);
            world.narrow(&world.launch()).map(|(launch, _)| shown(&launch)).map_err(|refusal| refusal.message)
        };
        let denied = narrowed(Operator::In, &["x"]).unwrap_err();
        assert!(denied.contains("does not allow c.large in a") && denied.contains(key), "{denied}");
        assert_eq!(narrowed(Operator::NotIn, &["x"]).unwrap(), ["c.large a spot"]);
        assert_eq!(narrowed(Operator::DoesNotExist, &[]).unwrap(), ["c.large a spot"]);
    }
}

#[test]
fn a_type_that_names_no_operating_system_may_have_any() {
    let mut world = requiring(label::OS, Operator::In, &["windows"]);
    assert!(world.narrow(&world.launch()).is_err());
    let kinds = &mut Arc::make_mut(&mut world.catalog).instance_types;
    kinds.iter_mut().for_each(|kind| kind.operating_systems.clear());
    assert!(world.narrow(&world.launch()).is_ok());
}

#[test]
fn a_plan_rests_on_the_labels_and_the_class_of_its_pool() {
    let mut world = World::new();
    let mut launch = world.launch();
    for (key, value) in [(label::NODE_POOL, "pool"), (label::EC2_NODE_CLASS, "class")] {
        launch.labels.insert(key.to_owned(), value.to_owned());
    }
    assert!(world.narrow(&launch).is_ok(), "each node of the pool has them");
    Arc::make_mut(&mut world.class).metadata.name = Some("other".to_owned());
    launch = world.launch();
    assert!(world.narrow(&launch).unwrap_err().message.contains("EC2NodeClass class"));
}

/// NodeClaims without a plan have no list of offerings.
#[test]
fn all_offerings_that_are_available_fit_and_are_allowed_are_listed_by_price() {
    let mut world = World::new();
    let kinds = &mut Arc::make_mut(&mut world.catalog).instance_types;
    kinds[0].offerings[1].available = false;
    kinds.reverse();
    let listed = |requirement: Option<NodeSelectorRequirement>, cpu: i64| -> Vec<String> {
        let requirements = Requirements::from_api(requirement.iter()).unwrap();
        let found = offerings(&world.catalog, &requirements, &Resources::from([("cpu", cpu)]));
        found.iter().map(|it| format!("{} {} {}", it.instance_type, it.zone, it.price.0)).collect()
    };
    let large = ["m.large a 95", "m.large a 100", "m.large b 100"];
    assert_eq!(listed(None, 1000), [&["c.large a 50", "c.large b 90"][..], &large].concat());
    assert_eq!(listed(None, 2001), large, "they have room");
    let in_b = NodeSelectorRequirement::new(label::ZONE, Operator::In, ["b"]);
    assert_eq!(listed(Some(in_b), 1000), ["c.large b 90", "m.large b 100"]);
}

#[test]
fn a_label_may_be_required_to_be_absent() {
    let world = requiring("example.com/special", Operator::DoesNotExist, &[]);
    assert!(world.narrow(&world.launch()).is_ok());
    let mut launch = world.launch();
    let three = NodeSelectorRequirement::new("example.com/tier", Operator::In, ["three"]);
    launch.requirements = Arc::new(vec![three]);
    let message = world.narrow(&launch).unwrap_err().message;
    assert_eq!(message, "NodePool pool and the plan have no common value for example.com/tier");

    // Nodes of the pool do not have the label, so they satisfy the plan, and need not get it.
    let mut launch = world.launch();
    launch.requirements = Arc::new(vec![NodeSelectorRequirement::new("new", Operator::NotIn, ["x"])]);
    let (_, requirements) = world.narrow(&launch).unwrap();
    assert!(requirements.find("new").is_none());
}

#[test]
fn a_plan_may_leave_out_a_label_that_the_pool_does_not_demand() {
    let exclusion = || requiring("tenant", Operator::NotIn, &["legacy"]);
    let mut launch = exclusion().launch();
    let absent = NodeSelectorRequirement::new("tenant", Operator::DoesNotExist, [""; 0]);
    Arc::make_mut(&mut launch.requirements).push(absent);
    assert!(!exclusion().admitted(&launch).labels().contains_key("tenant"));

    let mut demanding = exclusion();
    let exists = Requirement::new("tenant", Operator::Exists, [""; 0]);
    Arc::make_mut(&mut demanding.pool).spec.template.spec.requirements.push(exists);
    let mut labelled = exclusion();
    let metadata = Arc::make_mut(&mut labelled.pool).spec.template.metadata.as_mut();
    metadata.unwrap().labels.insert("tenant".to_owned(), "a".to_owned());
    for world in [demanding, labelled] {
        let message = world.narrow(&launch).unwrap_err().message;
        assert_eq!(message, "NodePool pool and the plan have no common value for tenant");
    }
}

#[test]
fn offerings_that_are_not_available_now_are_not_launched() {
    let mut world = World::new();
    let launch = world.launch();
    for kind in &mut Arc::make_mut(&mut world.catalog).instance_types {
        let spot = kind.offerings.iter_mut().filter(|offering| offering.capacity_type == CapacityType::Spot);
        spot.for_each(|offering| offering.available = false);
    }
    let (launch, _) = world.narrow(&launch).unwrap();
    let on_demand = ["c.large a on-demand", "c.large b on-demand", "m.large a on-demand", "m.large b on-demand"];
    assert_eq!(shown(&launch), on_demand);
}
