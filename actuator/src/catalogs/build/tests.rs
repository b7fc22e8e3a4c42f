use super::*;
use crate::ports::SpotPrice;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use serde_json::{Value, json};

const MIB: i64 = 1 << 20;

/// The node class `default` with this status.
fn class(status: &Value) -> EC2NodeClass {
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": [{"id": "s"}],
            "securityGroupSelectorTerms": [{"id": "g"}]},
        "status": status,
    });
    serde_json::from_value(class).unwrap()
}

fn build(memory: &[(&str, &str, i64)]) -> Arc<Catalog> {
    let settings = Settings { region: "us-west-2".to_owned(), ..Settings::default() };
    let image = |id: &str, arch: &str| {
        let requirement = json!({"key": label::ARCH, "operator": "In", "values": [arch]});
        json!({"id": id, "requirements": [requirement]})
    };
    let images = [image("ami-new", "amd64"), image("ami-old", "amd64"), image("ami-arm", "arm64")];
    let class = class(&json!({ "amis": images }));
    let key = |instance_type: &str, image: &str| MemoryKey {
        instance_type: instance_type.to_owned(),
        image: image.to_owned(),
    };
    let memory = memory.iter().map(|(instance_type, image, mib)| (key(instance_type, image), mib * MIB)).collect();
    let entry = entry(&settings, &class, &Facts::builtin("us-west-2"), &Closed::default(), &memory);
    Arc::clone(entry.any_catalog().unwrap())
}

fn memory(catalog: &Catalog, instance_type: &str) -> i64 {
    catalog.get(instance_type).unwrap().capacity.get("memory") / MIB
}

#[test]
fn discovered_memory_of_the_current_image_replaces_the_estimate() {
    let estimated = build(&[]);
    let learnt = build(&[
        ("m6i.large", "ami-new", 7400),
        ("m6i.large", "ami-old", 7300),
        ("m6i.xlarge", "ami-old", 14_000),
        ("m6g.large", "ami-arm", 7350),
        ("m6g.xlarge", "ami-new", 14_000),
        ("c6i.large", "ami-new", 10),
        ("no.such", "ami-new", 7000),
    ]);
    assert_ne!(learnt.id(), estimated.id(), "the scheduler gets another catalog");
    assert_eq!((memory(&learnt, "m6i.large"), memory(&learnt, "m6g.large")), (7400, 7350));
    for other in ["m6i.xlarge", "m6g.xlarge", "c6i.large"] {
        assert_eq!(memory(&learnt, other), memory(&estimated, other), "{other}");
    }
    let rest = |catalog: &Catalog| {
        let mut catalog = catalog.clone();
        catalog.instance_types.retain(|one| !["m6i.large", "m6g.large"].contains(&one.name.as_str()));
        catalog
    };
    assert_eq!(rest(&learnt), rest(&estimated));
    let offerings = |catalog: &Catalog| catalog.get("m6i.large").unwrap().offerings.clone();
    assert_eq!(offerings(&learnt), offerings(&estimated));
}

#[test]
fn a_type_without_a_price_is_not_in_the_catalog_but_offered() {
    let class = class(&Value::Null);
    let settings = Settings { region: "us-west-2".to_owned(), ..Settings::default() };
    let mut facts = Facts::builtin("us-west-2");
    facts.prices.on_demand.remove("m6i.large").unwrap();
    let entry = entry(&settings, &class, &facts, &Closed::default(), &BTreeMap::new());
    assert_eq!(entry.any_catalog().unwrap().get("m6i.large"), None);
    assert!(entry.offered["us-west-2a"].contains("m6i.large"));
}

/// Its first dry run asks for a type that it can use.
#[test]
fn the_catalog_of_a_new_class_says_which_types_it_can_use() {
    let mut class = class(&Value::Null);
    class.spec.connection_tracking = serde_json::from_value(json!({"udpTimeout": 30})).unwrap();
    let settings = Settings { region: "us-west-2".to_owned(), ..Settings::default() };
    let entry = entry(&settings, &class, &Facts::builtin("us-west-2"), &Closed::default(), &BTreeMap::new());
    assert_eq!(entry.catalog, None, "it is not sent");
    let catalog = entry.unsent.unwrap();
    let is_open = |name: &str| catalog.get(name).unwrap().offerings.iter().any(|offering| offering.available);
    assert!(is_open("m5.large") && !is_open("m4.large"), "only Nitro has these timeouts");
}

#[test]
fn types_that_cannot_join_an_ipv6_cluster_are_closed() {
    let class = class(&Value::Null);
    let is_open = |service_cidr: &str| {
        let discovered =
            crate::settings::Facts { service_cidr: Some(service_cidr.to_owned()), ..crate::settings::Facts::default() };
        let settings = Settings { region: "us-west-2".to_owned(), discovered, ..Settings::default() };
        let entry = entry(&settings, &class, &Facts::builtin("us-west-2"), &Closed::default(), &BTreeMap::new());
        let catalog = Arc::clone(entry.any_catalog().unwrap());
        ["m5.large", "m4.large"].map(|name| catalog.get(name).unwrap().offerings.iter().any(|it| it.available))
    };
    assert_eq!(is_open("fd30::/108"), [true, false]);
    assert_eq!(is_open("10.100.0.0/16"), [true, true]);
}

#[test]
fn a_withdrawn_spot_offering_is_closed_and_keeps_its_price() {
    let subnet = |id: &str, zone: &str| json!({"id": id, "zone": zone});
    let class = class(&json!({"subnets": [subnet("s-1", "us-west-2a"), subnet("s-2", "us-west-2b")]}));
    let settings = Settings { region: "us-west-2".to_owned(), ..Settings::default() };
    let read = |zones: &[&str]| -> Vec<SpotPrice> {
        let price = |zone: &&str| {
            let (instance_type, zone) = ("m6i.large".to_owned(), (*zone).to_owned());
            SpotPrice { instance_type, zone, price: MicroUsdPerHour(40_000) }
        };
        zones.iter().map(price).collect()
    };
    let mut facts = Facts::builtin("us-west-2");
    facts.add_spot_prices(read(&["us-west-2a", "us-west-2b"]));
    for (zone_a, answers) in [(true, 1), (false, 2)] {
        facts.add_spot_prices(read(&["us-west-2b"]));
        let entry = entry(&settings, &class, &facts, &Closed::default(), &BTreeMap::new());
        let offerings = entry.any_catalog().unwrap().get("m6i.large").unwrap().offerings.iter();
        let spot = offerings.filter(|it| it.capacity_type == CapacityType::Spot);
        let spot: Vec<_> = spot.map(|it| (it.zone.as_str(), it.price.0, it.available)).collect();
        assert_eq!(spot, [("us-west-2a", 40_000, zone_a), ("us-west-2b", 40_000, true)], "{answers} answers");
    }
}

#[test]
fn a_zone_is_closed_for_a_class_only_if_all_its_subnets_there_are_full() {
    let subnet = |id: &str, zone: &str| json!({"id": id, "zone": zone});
    let class = class(&json!({"subnets": [subnet("s-1", "a"), subnet("s-2", "a"), subnet("s-3", "b")]}));
    let zones = |full: &[&str]| full_zones(&class, |id| full.contains(&id)).into_iter().collect::<Vec<_>>();
    assert_eq!(zones(&["s-1", "other"]), [""; 0]);
    assert_eq!(zones(&["s-1", "s-3"]), ["b"]);
    assert_eq!(zones(&["s-1", "s-2"]), ["a"]);
}
