//! Claims of admitted launches, as objects and in flight.

use super::requirements::requiring;
use super::*;
use plimsoll_model::execution::{ClaimState, InFlightClaim};
use plimsoll_model::names::TERMINATION_FINALIZER;

fn group() -> GroupKey {
    GroupKey { id: "g".to_owned(), size: 1 }
}

fn annotations_of(admitted: &Admitted) -> BTreeMap<String, String> {
    object(admitted, &group(), 3, "77").metadata.annotations.unwrap()
}

#[test]
fn a_claim_has_no_label_that_its_node_need_not_or_must_not_have() {
    for (key, operator, value) in
        [("tenant", Operator::NotIn, "legacy"), ("sub.karpenter.sh/own", Operator::In, "restricted")]
    {
        let world = requiring(key, operator, &[value]);
        let admitted = world.admitted(&world.launch());
        assert!(!admitted.labels().contains_key(key), "{key}");
        assert_eq!(admitted.labels()["example.com/tier"], "two");
    }
    let world = requiring(label::HOSTNAME, Operator::NotIn, &["old"]);
    let (_, requirements) = world.narrow(&world.launch()).unwrap();
    assert!(requirements.find(label::HOSTNAME).is_none(), "the name of a node is not known before");
}

#[test]
fn what_a_claim_is_told_is_bounded() {
    let world = World::new();
    let mut admitted = world.admitted(&world.launch());
    let pod = |number: usize| PodRef { name: format!("ns/p-{number}"), uid: format!("p-{number}").as_str().into() };
    for (pods, expected) in [(512, 512), (513, 512)] {
        admitted.launch.pods = (0..pods).map(pod).collect();
        let listed: Vec<String> = serde_json::from_str(&annotations_of(&admitted)[annotation::PODS]).unwrap();
        assert_eq!(listed.len(), expected, "{pods}");
    }
    for (why, bytes) in [("a".repeat(512), 512), ("a".repeat(513), 512), (format!("{}ä", "a".repeat(511)), 511)] {
        admitted.launch.why.clone_from(&why);
        let told = annotations_of(&admitted)[annotation::WHY].clone();
        assert!(told.len() == bytes && why.starts_with(&told), "{} bytes of {}", told.len(), why.len());
    }
}

/// A claim that is created with a removal would be taken for one that is being removed.
#[test]
fn a_claim_takes_no_annotation_of_ours_from_its_template() {
    let mut world = World::new();
    let template = &mut Arc::make_mut(&mut world.pool).spec.template;
    let annotations = &mut template.metadata.get_or_insert_default().annotations;
    annotations.insert(annotation::REMOVAL.to_owned(), "{}".to_owned());
    let annotations = annotations_of(&world.admitted(&world.launch()));
    assert_eq!((annotations.get(annotation::REMOVAL), annotations["note"].as_str()), (None, "kept"));
}

#[test]
fn a_claim_says_who_owns_it_and_what_it_was_made_of() {
    let mut world = World::new();
    let status = serde_json::json!({"instanceProfile": ""});
    Arc::make_mut(&mut world.class).status = serde_json::from_value(status).unwrap();
    let mut admitted = world.admitted(&world.launch());
    admitted.launch.requests.set("nvidia.com/gpu", 0);
    let claim = object(&admitted, &group(), 3, "77");
    let annotations = claim.metadata.annotations.unwrap();
    assert_eq!(annotations[annotation::NODE_POOL_HASH], plimsoll_api::hash::node_pool(&world.pool.spec.template));
    assert_eq!(annotations[annotation::OWNER], annotation::OWNER_VALUE);
    assert_eq!(annotations[annotation::WHY], "because");
    assert!(!annotations.contains_key(annotation::INSTANCE_PROFILE_NAME), "the class has none");
    assert!(!claim.spec.resources.unwrap().requests.contains_key("nvidia.com/gpu"));
    assert_eq!(claim.metadata.finalizers.unwrap(), [TERMINATION_FINALIZER]);
    let owner = claim.metadata.owner_references.unwrap().remove(0);
    let shown = (owner.kind.as_str(), owner.name.as_str(), owner.block_owner_deletion);
    assert_eq!(shown, ("NodePool", "pool", Some(true)), "a foreground deletion of the pool waits for it");
}

/// Plans count on it until the object is there.
#[test]
fn a_claim_in_flight_has_the_labels_that_are_decided() {
    let world = requiring("tenant", Operator::NotIn, &["legacy"]);
    let in_flight = |closed: Option<CapacityType>| {
        let closed = |choice: &OfferingChoice| Some(choice.capacity_type) == closed;
        let (launch, requirements) = world.narrow_without(&world.launch(), closed).unwrap();
        Admitted { launch, requirements, ..world.admitted(&world.launch()) }.in_flight()
    };
    let labels = [
        ("example.com/tier", "two"),
        (label::CAPACITY_TYPE, "spot"),
        (label::EC2_NODE_CLASS, "class"),
        (label::INSTANCE_TYPE, "c.large"),
        (label::NODE_POOL, "pool"),
        (label::ZONE, "a"),
        ("team", "a"),
    ];
    let expected = InFlightClaim {
        name: "pool-1".to_owned(),
        node_pool: "pool".into(),
        action_id: Some("action".into()),
        pods: world.launch().pods,
        limit_usage: Resources::from([("cpu", 2000), ("nodes", 1)]),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        taints: world.launch().taints,
        allocatable: Resources::from([("cpu", 2000), ("pods", 10)]),
        state: ClaimState::Launching,
        ..InFlightClaim::default()
    };
    assert_eq!(in_flight(None), expected);
    let on_demand = in_flight(Some(CapacityType::Spot)).labels;
    assert_eq!(on_demand[label::CAPACITY_TYPE], "on-demand");
    assert!(!on_demand.contains_key(label::ZONE), "there are two");
}
