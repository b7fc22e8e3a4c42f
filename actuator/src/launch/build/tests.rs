use super::*;
use crate::launch::Admitted;
use crate::state::launch_group::GroupKey;
use plimsoll_api::node_pool::{NodeClaimTemplate, NodeClaimTemplateSpec, TemplateMetadata};
use plimsoll_api::{EC2NodeClassSpec, NodeClassRef, NodePoolSpec, Operator, Requirement, Taint};
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{annotation, label};
use plimsoll_model::plan::PodRef;
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::resources::Resources;
use std::collections::BTreeMap;

mod bounds;
mod flexibility;
mod objects;
mod requests;
mod requirements;
mod spot;
mod subnets;

struct World {
    pool: Arc<NodePool>,
    class: Arc<EC2NodeClass>,
    catalog: Arc<Catalog>,
}

fn kind(name: &str, cpu: i64, spot: i64, on_demand: i64) -> InstanceType {
    let offering = |zone: &str, capacity_type, price| Offering {
        zone: zone.to_owned(),
        capacity_type,
        price: MicroUsdPerHour(price),
        available: true,
        ..Offering::default()
    };
    InstanceType {
        name: name.to_owned(),
        architecture: "amd64".to_owned(),
        operating_systems: vec!["linux".to_owned()],
        capacity: Resources::from([("cpu", cpu), ("pods", 10)]),
        overhead: Resources::new(),
        labels: BTreeMap::from([(format!("{}/instance-category", label::AWS_DOMAIN), name[..1].to_owned())]),
        offerings: vec![
            offering("a", CapacityType::Spot, spot),
            offering("a", CapacityType::OnDemand, on_demand),
            offering("b", CapacityType::OnDemand, on_demand),
        ],
    }
}

impl World {
    fn new() -> Self {
        let requirements = vec![
            Requirement::new(label::CAPACITY_TYPE, Operator::In, ["spot", "on-demand"]),
            Requirement::new("example.com/tier", Operator::In, ["one", "two"]),
        ];
        let template = NodeClaimTemplate {
            metadata: Some(TemplateMetadata {
                labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
                annotations: BTreeMap::from([("note".to_owned(), "kept".to_owned())]),
            }),
            spec: NodeClaimTemplateSpec {
                requirements,
                taints: vec![Taint { key: "dedicated".to_owned(), ..Taint::default() }],
                node_class_ref: NodeClassRef { name: "class".to_owned(), ..NodeClassRef::default() },
                ..NodeClaimTemplateSpec::default()
            },
        };
        let mut pool = NodePool::new("pool", NodePoolSpec { template, ..NodePoolSpec::default() });
        pool.metadata.uid = Some("pool-uid".to_owned());
        let class = EC2NodeClass::new("class", EC2NodeClassSpec::default());
        let instance_types = vec![kind("c.large", 2000, 50, 90), kind("m.large", 4000, 95, 100)];
        let catalog = Catalog { region: "r".to_owned(), instance_types };
        Self { pool: pool.into(), class: class.into(), catalog: catalog.into() }
    }

    fn narrow(&self, launch: &Launch) -> Result<(Launch, Requirements), Refusal> {
        self.narrow_without(launch, |_| false)
    }

    fn narrow_without(
        &self,
        launch: &Launch,
        closed: impl Fn(&OfferingChoice) -> bool,
    ) -> Result<(Launch, Requirements), Refusal> {
        narrow(launch, &self.pool, &self.class, &self.catalog, closed, |_| 1)
    }

    fn admitted(&self, launch: &Launch) -> Admitted {
        let (launch, requirements) = self.narrow(launch).unwrap();
        let (pool, class, catalog) = (self.pool.clone(), self.class.clone(), self.catalog.clone());
        let reserved = Resources::from([("cpu", 2000), ("nodes", 1)]);
        Admitted { launch, requirements, pool, class, catalog, claim: "pool-1".to_owned(), reserved }
    }

    fn launch(&self) -> Launch {
        let offerings_by_type =
            self.catalog.instance_types.iter().flat_map(|kind| kind.offerings.iter().map(move |it| (kind, it)));
        Launch {
            action_id: "action".into(),
            node_pool: "pool".into(),
            node_class: "class".to_owned(),
            offerings: offerings_by_type
                .map(|(kind, it)| OfferingChoice {
                    instance_type: kind.name.clone(),
                    zone: it.zone.clone(),
                    capacity_type: it.capacity_type,
                    price: it.price,
                    reservation: it.reservation_id().map(str::to_owned),
                })
                .collect::<Vec<_>>()
                .into(),
            requirements: Arc::new(vec![NodeSelectorRequirement::new("example.com/tier", Operator::In, ["two"])]),
            requests: Resources::from([("cpu", 1500), ("pods", 2)]),
            taints: self.pool.spec.template.spec.taints.iter().map(Into::into).collect(),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            pods: vec![PodRef { name: "ns/p".to_owned(), uid: "p".into() }],
            prioritized: false,
            why: "because".to_owned(),
        }
    }
}

fn shown(launch: &Launch) -> Vec<String> {
    launch.offerings.iter().map(|it| format!("{} {} {}", it.instance_type, it.zone, it.capacity_type)).collect()
}

#[test]
fn spot_is_preferred_unless_more_expensive_than_on_demand() {
    let world = World::new();
    let mut admitted = world.admitted(&world.launch());
    assert!(admitted.launch.offerings.iter().all(|it| it.capacity_type == CapacityType::Spot));
    assert_eq!(shown(&admitted.launch), ["c.large a spot"], "m.large's Spot costs more than c.large On-Demand");
    assert_eq!(admitted.min_allocatable().get("cpu"), 2000);
    admitted.launch.requests.set("example.com/device", 1);
    assert_eq!(admitted.min_allocatable().get("example.com/device"), 1, "a NodeOverlay adds it");

    let closed = |choice: &OfferingChoice| choice.capacity_type == CapacityType::Spot;
    let (on_demand, _) = world.narrow_without(&world.launch(), closed).unwrap();
    assert_eq!(shown(&on_demand)[..2], ["c.large a on-demand", "c.large b on-demand"]);
    assert_eq!(on_demand.offerings.len(), 4);
}

#[test]
fn disallowed_launches_are_rejected_with_the_cause() {
    let world = World::new();
    let changed = |change: &dyn Fn(&mut Launch)| {
        let mut launch = world.launch();
        change(&mut launch);
        world.narrow(&launch).unwrap_err().message
    };
    let says = |change: &dyn Fn(&mut Launch), text: &str| {
        let message = changed(change);
        assert!(message.contains(text), "{message:?} lacks {text:?}");
    };
    says(&|launch| launch.node_class = "other".to_owned(), "EC2NodeClass");
    says(&|launch| drop(launch.labels.insert("team".to_owned(), "b".to_owned())), "team=b");
    says(&|launch| launch.taints.clear(), "taints");
    says(
        &|launch| launch.requirements = Arc::new(vec![NodeSelectorRequirement::new("new", Operator::In, ["x"])]),
        "no label new",
    );
    says(
        &|launch| {
            launch.requirements =
                Arc::new(vec![NodeSelectorRequirement::new("example.com/tier", Operator::In, ["three"])]);
        },
        "example.com/tier",
    );
    says(
        &|launch| launch.requirements = Arc::new(vec![NodeSelectorRequirement::new(label::ZONE, Operator::In, ["b"])]),
        "does not allow c.large in a",
    );
    says(&|launch| Arc::make_mut(&mut launch.offerings)[0].instance_type = "x.large".to_owned(), "x.large");
    says(&|launch| launch.requests.set("cpu", 3000), "insufficient cpu");
}

#[test]
fn no_remaining_offering_is_reported_as_no_capacity() {
    let world = World::new();
    let refusal = world.narrow_without(&world.launch(), |_| true).unwrap_err();
    assert_eq!(refusal.reason, OutcomeReason::NoCapacity);
}

#[test]
fn tenancy_is_default_unless_pool_or_plan_exclude_it() {
    let tenancy = |of_pool: &[&str], of_plan: &[&str]| {
        let mut world = World::new();
        if !of_pool.is_empty() {
            let requirement = Requirement::new(label::INSTANCE_TENANCY, Operator::In, of_pool.iter().copied());
            Arc::make_mut(&mut world.pool).spec.template.spec.requirements.push(requirement);
        }
        let mut launch = world.launch();
        if !of_plan.is_empty() {
            let requirement =
                NodeSelectorRequirement::new(label::INSTANCE_TENANCY, Operator::In, of_plan.iter().copied());
            launch.requirements = Arc::new(vec![requirement]);
        }
        let narrowed = world.narrow(&launch);
        narrowed.map(|(_, requirements)| tenancy(requirements.find(label::INSTANCE_TENANCY)).unwrap_or("default"))
    };
    assert_eq!(tenancy(&[], &[]), Ok("default"));
    assert_eq!(tenancy(&["dedicated", "default"], &[]), Ok("default"));
    assert_eq!(tenancy(&["dedicated"], &[]), Ok("dedicated"));
    assert_eq!(tenancy(&[], &["dedicated"]), Ok("dedicated"));
    assert!(tenancy(&["default"], &["dedicated"]).is_err());
    assert!(tenancy(&["host"], &[]).is_err(), "EC2NodeClasses know no hosts");
}

#[test]
fn claim_combines_the_pools_template_and_the_plan() {
    let mut world = World::new();
    let status = serde_json::json!({"instanceProfile": "profile"});
    Arc::make_mut(&mut world.class).status = serde_json::from_value(status).unwrap();
    let group = GroupKey { id: "g".to_owned(), size: 1 };
    let claim = object(&world.admitted(&world.launch()), &group, 3, "77");

    let labels = claim.metadata.labels.unwrap();
    let expected = [
        ("example.com/tier", "two"),
        (label::EC2_NODE_CLASS, "class"),
        (label::INSTANCE_TENANCY, "default"),
        (label::NODE_POOL, "pool"),
        ("team", "a"),
    ];
    assert_eq!(labels, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let annotations = claim.metadata.annotations.unwrap();
    for (key, value) in [
        ("note", "kept"),
        (annotation::ACTION_ID, "action"),
        (annotation::EPOCH, "3"),
        (annotation::PODS, r#"["p"]"#),
        (annotation::RESERVED, r#"{"cpu":"2","nodes":"1"}"#),
        (annotation::LAUNCH_GROUP, r#"{"v":1,"id":"g","size":1}"#),
        (annotation::EC2_NODE_CLASS_HASH, "77"),
        (annotation::INSTANCE_PROFILE_NAME, "profile"),
    ] {
        assert_eq!(annotations[key], value, "{key}");
    }
    let values = |key: &str| {
        let found = claim.spec.requirements.iter().find(|it| it.key == key);
        found.map(|it| it.values.clone()).unwrap_or_default()
    };
    assert_eq!(values(label::INSTANCE_TYPE), ["c.large"]);
    assert_eq!(values(label::CAPACITY_TYPE), ["spot"]);
    assert_eq!(values("team"), ["a"]);
    assert_eq!(claim.spec.resources.unwrap().requests["cpu"].0, "1500m");
    assert_eq!(claim.spec.taints, world.pool.spec.template.spec.taints);
    assert_eq!(claim.metadata.owner_references.unwrap()[0].uid, "pool-uid");
}

#[test]
fn a_claim_with_fewer_values_than_its_pool_wants_says_so() {
    let world = World::new();
    let mut admitted = world.admitted(&world.launch());
    let wanted =
        Requirement { min_values: Some(5), ..Requirement::new(label::INSTANCE_TYPE, Operator::Exists, [""; 0]) };
    Arc::make_mut(&mut admitted.pool).spec.template.spec.requirements = vec![wanted];
    for (kept, relaxed) in [(3, "true"), (5, "false")] {
        let kept =
            Requirement { min_values: Some(kept), ..Requirement::new(label::INSTANCE_TYPE, Operator::Exists, [""; 0]) };
        let kept = NodeSelectorRequirement::from(&kept);
        admitted.launch.requirements = Arc::new(vec![kept]);
        let claim = object(&admitted, &GroupKey { id: "g".to_owned(), size: 1 }, 3, "77");
        assert_eq!(claim.metadata.annotations.unwrap()[annotation::MIN_VALUES_RELAXED], relaxed);
    }
}

#[test]
fn launches_without_adapters_promise_none_while_in_flight() {
    const EFA: &str = "vpc.amazonaws.com/efa";
    let mut world = World::new();
    Arc::make_mut(&mut world.catalog).instance_types[0].capacity.set(EFA, 2);
    let mut launch = world.launch();
    assert_eq!(world.admitted(&launch).in_flight().allocatable.get(EFA), 0);
    launch.requests.set(EFA, 1);
    Arc::make_mut(&mut launch.offerings).retain(|it| it.instance_type == "c.large");
    assert_eq!(world.admitted(&launch).in_flight().allocatable.get(EFA), 2);
}

#[test]
fn reserved_offerings_are_preferred_while_their_reservation_has_a_free_instance() {
    let mut world = World::new();
    let mut catalog = (*world.catalog).clone();
    let kind = &mut catalog.instance_types[0];
    let reservation = |id: &str| plimsoll_model::catalog::CapacityReservation {
        id: id.to_owned(),
        capacity_block: false,
        interruptible: false,
        count: None,
    };
    for id in ["cr-1", "cr-2"] {
        kind.offerings.insert(
            0,
            Offering {
                capacity_type: CapacityType::Reserved,
                price: MicroUsdPerHour(1),
                reservation: Some(reservation(id)),
                ..kind.offerings[0].clone()
            },
        );
    }
    world.catalog = catalog.into();
    let mut pool = (*world.pool).clone();
    pool.spec.template.spec.requirements[0] =
        Requirement::new(label::CAPACITY_TYPE, Operator::In, ["reserved", "spot", "on-demand"]);
    world.pool = pool.into();
    let launch = world.launch();
    let narrowed = |free: fn(&str) -> i64| {
        let open = |_: &OfferingChoice| false;
        narrow(&launch, &world.pool, &world.class, &world.catalog, open, free).unwrap()
    };
    let (reserved, requirements) = narrowed(|_| 1);
    assert_eq!(
        reserved.offerings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["c.large in a (reserved cr-1)"]
    );
    let ids = requirements.find(label::CAPACITY_RESERVATION_ID).unwrap();
    assert!(ids.has("cr-1") && !ids.has("cr-2"));
    let (second, _) = narrowed(|id| i64::from(id == "cr-2"));
    assert_eq!(second.offerings[0].reservation.as_deref(), Some("cr-2"));
    let (spot, requirements) = narrowed(|_| 0);
    assert_eq!(shown(&spot), ["c.large a spot"]);
    assert!(requirements.find(label::CAPACITY_RESERVATION_ID).is_none());
}

/// A world whose node class has this placement group.
fn in_group(strategy: &str, partitions: Option<i32>) -> World {
    let world = World::new();
    let mut class = (*world.class).clone();
    class.spec.placement_group_selector = serde_json::from_value(serde_json::json!({"name": "own"})).unwrap();
    let group = serde_json::json!({"id": "pg-1", "name": "own", "strategy": strategy, "partitionCount": partitions});
    class.status = serde_json::from_value(serde_json::json!({"placementGroup": group})).unwrap();
    World { class: class.into(), ..world }
}

fn labels_of(world: &World, partitions: &[&str]) -> Result<(Option<String>, Option<String>), String> {
    let mut launch = world.launch();
    if !partitions.is_empty() {
        let key = label::PLACEMENT_GROUP_PARTITION;
        let one = NodeSelectorRequirement::new(key, Operator::In, partitions.iter().copied());
        Arc::make_mut(&mut launch.requirements).push(one);
    }
    let (launch, requirements) = world.narrow(&launch).map_err(|refusal| refusal.message)?;
    let admitted = Admitted { launch, requirements, ..world.admitted(&world.launch()) };
    let claim = object(&admitted, &GroupKey { id: "g".to_owned(), size: 1 }, 3, "77");
    let label = |key: &str| claim.metadata.labels.as_ref().unwrap().get(key).cloned();
    Ok((label(label::PLACEMENT_GROUP_ID), label(label::PLACEMENT_GROUP_PARTITION)))
}

#[test]
fn claims_name_the_placement_group_and_the_partition_that_is_requested() {
    let shown = |id: Option<&str>, partition: Option<&str>| Ok((id.map(str::to_owned), partition.map(str::to_owned)));
    assert_eq!(labels_of(&World::new(), &[]), shown(None, None));
    assert_eq!(labels_of(&in_group("spread", None), &[]), shown(Some("pg-1"), None));
    let three = in_group("partition", Some(3));
    assert_eq!(labels_of(&three, &["3", "2"]), shown(Some("pg-1"), Some("2")));
    assert_eq!(labels_of(&three, &[]), shown(Some("pg-1"), Some("")), "EC2 chooses one");
    for (world, expected) in [(&three, "3 partitions"), (&World::new(), "no partition placement group")] {
        let error = labels_of(world, &["4"]).unwrap_err();
        assert!(error.starts_with("EC2NodeClass class: spec.placementGroupSelector: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_launch_in_a_cluster_is_in_one_zone() {
    let zones = |world: &World| {
        let spot = |choice: &OfferingChoice| choice.capacity_type == CapacityType::Spot;
        let (launch, requirements) = world.narrow_without(&world.launch(), spot).unwrap();
        let zones: Vec<String> = launch.offerings.iter().map(|choice| choice.zone.clone()).collect();
        assert_eq!(requirements.find(label::ZONE).unwrap().values, zones.iter().cloned().collect());
        zones
    };
    assert_eq!(zones(&in_group("cluster", None)), ["a", "a"]);
    assert_eq!(zones(&in_group("spread", None)), ["a", "b", "a", "b"]);
}
