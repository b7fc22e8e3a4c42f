use super::{Drift, ProviderFacts, drift};
use crate::state::catalogs::{OfferedTypes, fixtures};
use crate::state::instances::InstanceFacts;
use jiff::Timestamp;
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn pool(hash: &str, requirements: &Value) -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "p", "annotations":
            {"karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": "v3"}},
        "spec": {"template": {"spec": {"requirements": requirements,
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}},
    }))
    .unwrap()
}

fn claim(annotations: &Value) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "c", "annotations": annotations, "creationTimestamp": at(0),
            "labels": {"topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "arm64",
                       "node.kubernetes.io/instance-type": "m6g.large"}},
        "spec": {"requirements": [],
                 "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}},
        "status": {"imageID": "ami-arm"},
    }))
    .unwrap()
}

fn class(hash: &str, status: &Value) -> EC2NodeClass {
    serde_json::from_value(json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "c", "annotations":
            {"karpenter.k8s.aws/ec2nodeclass-hash": hash, "karpenter.k8s.aws/ec2nodeclass-hash-version": "v6"}},
        "spec": {"amiFamily": "AL2023", "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
        "status": status}))
    .unwrap()
}

/// A status that the instance of `facts` matches.
fn status() -> Value {
    let arch = |arch: &str| json!([{"key": "kubernetes.io/arch", "operator": "In", "values": [arch]}]);
    json!({
        "amis": [{"id": "ami-amd", "requirements": arch("amd64")}, {"id": "ami-arm", "requirements": arch("arm64")},
                 {"id": "ami-arm-older", "requirements": arch("arm64")}],
        "subnets": [{"id": "subnet-1", "zone": "a"}, {"id": "subnet-2", "zone": "b"}],
        "securityGroups": [{"id": "sg-2"}, {"id": "sg-1"}],
    })
}

fn stamped(pool: &str, pool_version: &str, class: &str) -> NodeClaim {
    claim(&json!({"karpenter.sh/nodepool-hash": pool, "karpenter.sh/nodepool-hash-version": pool_version,
        "karpenter.k8s.aws/ec2nodeclass-hash": class, "karpenter.k8s.aws/ec2nodeclass-hash-version": "v6"}))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_571_200 + seconds).unwrap()
}

fn catalog(types: &[(&str, &str)]) -> Option<Arc<Catalog>> {
    let instance_type = |(name, zone): &(&str, &str)| {
        let offering = json!({"zone": zone, "zone_id": "", "capacity_type": "spot", "price": 1, "available": false});
        let offering: Offering = serde_json::from_value(offering).unwrap();
        let (architecture, offerings) = ("arm64".to_owned(), vec![offering]);
        InstanceType { architecture, offerings, ..fixtures::instance_type(name) }
    };
    let instance_types = types.iter().map(instance_type).collect();
    Some(Arc::new(Catalog { region: "r".to_owned(), instance_types }))
}

fn offered(types: &[(&str, &str)]) -> OfferedTypes {
    let mut zones: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, zone) in types {
        zones.entry((*zone).to_owned()).or_default().insert((*name).to_owned());
    }
    Arc::new(zones)
}

fn facts() -> ProviderFacts {
    let instance = InstanceFacts {
        subnet_id: "subnet-1".to_owned(),
        security_group_ids: vec!["sg-1".to_owned(), "sg-2".to_owned()],
        capacity_type: CapacityType::Spot,
        capacity_reservation_id: None,
    };
    let types = [("m6g.large", "a")];
    ProviderFacts { catalog: catalog(&types), offered: offered(&types), instance: Some(instance) }
}

/// Drift of a claim that matches its pool and the hash of its class.
fn of_provider(status: &Value, facts: &ProviderFacts) -> Drift {
    drift(&stamped("1", "v3", "7"), &pool("1", &json!([])), Some(&class("7", status)), facts, at(7200))
}

#[test]
fn claim_drifts_when_pool_requirements_or_class_change() {
    let zone = |zone: &str| json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]);
    let same = pool("1", &zone("a"));
    let class_now = class("7", &status());
    let of = |claim: &NodeClaim, pool: &NodePool| drift(claim, pool, Some(&class_now), &facts(), at(0));
    assert_eq!(of(&stamped("1", "v3", "7"), &same), Drift::None);
    assert_eq!(of(&stamped("2", "v3", "7"), &same), Drift::Drifted("NodePoolDrifted"));
    assert_eq!(of(&stamped("2", "v2", "7"), &same), Drift::None, "hashes of another version say nothing");
    assert_eq!(of(&claim(&json!({})), &same), Drift::None, "nor does a claim without hash");
    assert_eq!(of(&stamped("1", "v3", "7"), &pool("1", &zone("b"))), Drift::Drifted("RequirementsDrifted"));
    let unknown = json!([{"key": "team", "operator": "Exists"}]);
    assert_eq!(of(&stamped("1", "v3", "7"), &pool("1", &unknown)), Drift::Drifted("RequirementsDrifted"));
    assert_eq!(of(&stamped("1", "v3", "8"), &same), Drift::Drifted("NodeClassDrift"));
}

#[test]
fn claim_drifts_from_what_its_class_selects() {
    let with = |field: &str, value: Value| {
        let mut status = status();
        status[field] = value;
        of_provider(&status, &facts())
    };
    let arm = json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]);
    assert_eq!(of_provider(&status(), &facts()), Drift::None);
    let newer = json!([{"id": "ami-new", "requirements": arm}, {"id": "ami-arm", "requirements": arm}]);
    assert_eq!(with("amis", newer), Drift::Drifted("AMIDrift"), "the first image that the type can run counts");
    assert_eq!(with("securityGroups", json!([{"id": "sg-1"}])), Drift::Drifted("SecurityGroupDrift"));
    let more = json!([{"id": "sg-1"}, {"id": "sg-2"}, {"id": "sg-3"}]);
    assert_eq!(with("securityGroups", more), Drift::Drifted("SecurityGroupDrift"));
    assert_eq!(with("subnets", json!([{"id": "subnet-2", "zone": "b"}])), Drift::Drifted("SubnetDrift"));
}

#[test]
fn a_type_without_an_image_drifts_unless_an_alias_selects_the_images() {
    let amd = json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]);
    let mut status = status();
    status["amis"] = json!([{"id": "ami-amd", "requirements": amd}]);
    let of = |terms: Value| {
        let mut class = class("7", &status);
        class.spec.ami_selector_terms = serde_json::from_value(terms).unwrap();
        drift(&stamped("1", "v3", "7"), &pool("1", &json!([])), Some(&class), &facts(), at(7200))
    };
    assert_eq!(of(json!([{"alias": "al2023@latest"}])), Drift::Unknown, "AWS may publish it later");
    assert_eq!(of(json!([{"id": "ami-amd"}])), Drift::Drifted("AMIDrift"), "nodes of another type replace it");
}

#[test]
fn reserved_instance_drifts_from_reservations_that_are_not_selected() {
    let reserved = |reservations: &[&str], id: Option<&str>, resolved: bool| {
        let mut facts = facts();
        let instance = facts.instance.as_mut().unwrap();
        instance.capacity_type = CapacityType::Reserved;
        instance.capacity_reservation_id = id.map(str::to_owned);
        let of = |id: &&str| {
            json!({"id": id, "availabilityZone": "a", "instanceMatchCriteria": "targeted",
                   "instanceType": "m6g.large", "ownerID": "123456789012"})
        };
        let mut status = status();
        status["capacityReservations"] = reservations.iter().map(of).collect();
        if resolved {
            status["conditions"] = json!([{"type": "CapacityReservationsReady", "status": "True", "reason": "CapacityReservationsReady",
                "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        }
        of_provider(&status, &facts)
    };
    let with = |reservations: &[&str], id| reserved(reservations, id, false);
    assert_eq!(with(&["cr-1", "cr-2"], Some("cr-2")), Drift::None);
    assert_eq!(with(&["cr-1"], Some("cr-2")), Drift::Drifted("CapacityReservationDrift"));
    assert_eq!(with(&[], Some("cr-2")), Drift::Unknown, "reservations were not resolved");
    assert_eq!(reserved(&[], Some("cr-2"), true), Drift::Drifted("CapacityReservationDrift"));
    assert_eq!(with(&["cr-1"], None), Drift::Unknown);
}

#[test]
fn missing_facts_are_no_drift() {
    let without = |field: &str| {
        let mut status = status();
        status.as_object_mut().unwrap().remove(field);
        of_provider(&status, &facts())
    };
    for field in ["amis", "subnets", "securityGroups"] {
        assert_eq!(without(field), Drift::Unknown, "{field}");
    }
    assert_eq!(of_provider(&status(), &ProviderFacts { catalog: None, ..facts() }), Drift::Unknown);
    assert_eq!(of_provider(&status(), &ProviderFacts { catalog: catalog(&[]), ..facts() }), Drift::Unknown);
    assert_eq!(of_provider(&status(), &ProviderFacts { offered: Arc::default(), ..facts() }), Drift::Unknown);
    assert_eq!(of_provider(&status(), &ProviderFacts { instance: None, ..facts() }), Drift::Unknown);
    let mut facts = facts();
    facts.instance = facts.instance.map(|instance| InstanceFacts { subnet_id: String::new(), ..instance });
    assert_eq!(of_provider(&status(), &facts), Drift::Unknown);
    let mut status = status();
    status["securityGroups"] = json!([{"id": "sg-9"}]);
    assert_eq!(of_provider(&status, &facts), Drift::Drifted("SecurityGroupDrift"), "what is known counts");
    let (claim, pool) = (stamped("1", "v3", "7"), pool("1", &json!([])));
    assert_eq!(drift(&claim, &pool, None, &facts, at(7200)), Drift::None, "its class is gone");
    let mut deleted = class("8", &status);
    deleted.metadata.deletion_timestamp = claim.metadata.creation_timestamp.clone();
    assert_eq!(drift(&claim, &pool, Some(&deleted), &facts, at(7200)), Drift::None, "its class is being deleted");
    let mut foreign = claim.clone();
    foreign.spec.node_class_ref.group = "karpenter.azure.com".to_owned();
    foreign.spec.node_class_ref.kind = "AKSNodeClass".to_owned();
    assert_eq!(drift(&foreign, &pool, Some(&class("8", &status)), &facts, at(7200)), Drift::None);
}

#[test]
fn claim_drifts_when_its_type_is_no_longer_on_offer() {
    let of = |types: &[(&str, &str)], seconds: i64| {
        let facts = ProviderFacts { offered: offered(types), ..facts() };
        drift(&stamped("1", "v3", "7"), &pool("1", &json!([])), Some(&class("7", &status())), &facts, at(seconds))
    };
    assert_eq!(of(&[("m6g.large", "a")], 3601), Drift::None);
    assert_eq!(of(&[("m6g.large", "b")], 3601), Drift::Drifted("InstanceTypeNotFound"));
    assert_eq!(of(&[("m6g.xlarge", "a")], 3601), Drift::Drifted("InstanceTypeNotFound"));
    assert_eq!(of(&[("m6g.large", "b")], 3600), Drift::None, "it was on offer within the hour");
}

#[test]
fn a_type_whose_price_is_not_known_is_no_drift() {
    // The catalog lacks the type, so it is not known which image the type uses.
    let facts = ProviderFacts { catalog: catalog(&[("m6g.xlarge", "a")]), ..facts() };
    assert_eq!(of_provider(&status(), &facts), Drift::Unknown);
}

#[test]
fn claim_drifts_from_the_placement_group_of_its_class() {
    let of = |selector: Value, group: Value, label: Option<&str>| {
        let mut status = status();
        status["placementGroup"] = group;
        let mut class = class("7", &status);
        class.spec.placement_group_selector = serde_json::from_value(selector).unwrap();
        let mut claim = stamped("1", "v3", "7");
        let labels = claim.metadata.labels.as_mut().unwrap();
        labels.extend(label.map(|id| ("karpenter.k8s.aws/placement-group-id".to_owned(), id.to_owned())));
        drift(&claim, &pool("1", &json!([])), Some(&class), &facts(), at(7200))
    };
    let by_name = || json!({"name": "own"});
    let group = |id: &str| json!({"id": id, "name": "own", "strategy": "spread"});
    let drifted = Drift::Drifted("PlacementGroupDrift");
    assert_eq!(of(by_name(), group("pg-1"), Some("pg-1")), Drift::None);
    assert_eq!(of(by_name(), group("pg-2"), Some("pg-1")), drifted, "another group has the name now");
    assert_eq!(of(by_name(), group("pg-1"), None), drifted);
    assert_eq!(of(Value::Null, Value::Null, Some("pg-1")), drifted);
    assert_eq!(of(Value::Null, group("pg-1"), None), Drift::None, "the class selects none any more");
    assert_eq!(of(by_name(), Value::Null, Some("pg-1")), Drift::Unknown, "the group was not found");
    assert_eq!(of(json!({"name": "new"}), group("pg-1"), Some("pg-1")), Drift::Unknown, "of the selector before");
}

#[test]
fn a_partition_that_ec2_has_not_named_yet_is_no_drift() {
    let key = "karpenter.k8s.aws/placement-group-partition";
    let of = |value: &str| {
        let mut claim = stamped("1", "v3", "7");
        claim.metadata.labels.as_mut().unwrap().insert(key.to_owned(), value.to_owned());
        let required = pool("1", &json!([{"key": key, "operator": "In", "values": ["1", "2"]}]));
        drift(&claim, &required, Some(&class("7", &status())), &facts(), at(0))
    };
    assert_eq!((of(""), of("2")), (Drift::None, Drift::None));
    assert_eq!(of("3"), Drift::Drifted("RequirementsDrifted"));
}
