//! Requirements of pools and plans, and what they rule out.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A world whose pool has this requirement as well.
fn requiring(key: &str, operator: Operator, values: &[&str]) -> World {
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
    let rows: [(&str, &[&str]); 3] =
        [(label::REGION, &["r"]), (label::OS, &["linux"]), (label::ZONE_ID, &["id-a", "id-b"])];
    for (key, own) in rows {
        assert_eq!(narrowed(key, own, zone_id), Ok(()), "{key}");
        let message = narrowed(key, &["other"], zone_id).unwrap_err();
        assert!(message.contains("does not allow c.large in a") && message.contains(key), "{message}");
    }
    let unknown = |_: &str| String::new();
    assert_eq!(narrowed(label::ZONE_ID, &["other"], unknown), Ok(()), "not every catalog has zone ids");
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
