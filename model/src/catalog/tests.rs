use super::*;

fn instance_type(name: &str) -> InstanceType {
    InstanceType {
        name: name.to_owned(),
        architecture: "arm64".to_owned(),
        operating_systems: vec!["linux".to_owned()],
        capacity: Resources::from([("cpu", 2_000), ("memory", 4_096), ("pods", 29)]),
        overhead: Resources::from([("cpu", 70), ("memory", 500)]),
        labels: BTreeMap::from([("karpenter.k8s.aws/instance-family".to_owned(), "c6g".to_owned())]),
        offerings: vec![Offering {
            zone: "us-east-1a".to_owned(),
            zone_id: "use1-az2".to_owned(),
            capacity_type: CapacityType::OnDemand,
            price: MicroUsdPerHour(68_000),
            available: true,
            ..Offering::default()
        }],
    }
}

fn catalog() -> Catalog {
    Catalog {
        region: "us-east-1".to_owned(),
        instance_types: vec![instance_type("c6g.large"), instance_type("c6g.xlarge")],
    }
}

#[test]
fn allocatable_is_capacity_minus_overhead_and_huge_pages() {
    let mut candidate = instance_type("c6g.large");
    assert_eq!(candidate.allocatable(), Resources::from([("cpu", 1_930), ("memory", 3_596), ("pods", 29)]));
    candidate.capacity.set("hugepages-2Mi", 1_000);
    assert_eq!(candidate.allocatable().get("memory"), 2_596);
    assert_eq!(candidate.allocatable().get("hugepages-2Mi"), 1_000);
    candidate.overhead.set("cpu", 5_000);
    candidate.capacity.set("hugepages-2Mi", 5_000);
    assert_eq!((candidate.allocatable().get("cpu"), candidate.allocatable().get("memory")), (0, 0));
    candidate.capacity.set("hugepages-1Gi", i64::MAX);
    assert_eq!(candidate.allocatable().get("memory"), 0, "they do not fit into a number together");
}

#[test]
fn types_are_found_by_name() {
    let catalog = catalog();
    assert_eq!(catalog.get("c6g.xlarge").map(|found| found.name.as_str()), Some("c6g.xlarge"));
    assert_eq!(catalog.get("c6g.2xlarge"), None);
}

#[test]
fn the_id_depends_on_the_content() {
    let original = catalog().id();
    assert_eq!(original, catalog().id());
    assert_eq!(original.0.len(), 32);
    let changes: [fn(&mut Catalog); 10] = [
        |catalog| catalog.region = "us-east-2".to_owned(),
        |catalog| catalog.instance_types[0].name = "c6g.larger".to_owned(),
        |catalog| catalog.instance_types[0].architecture = "amd64".to_owned(),
        |catalog| catalog.instance_types[0].capacity.set("cpu", 2_001),
        |catalog| catalog.instance_types[0].overhead.set("nvidia.com/gpu", 0),
        |catalog| catalog.instance_types[0].labels.clear(),
        |catalog| catalog.instance_types[0].offerings[0].price = MicroUsdPerHour(68_001),
        |catalog| catalog.instance_types[0].offerings[0].available = false,
        |catalog| catalog.instance_types[0].offerings[0].capacity_type = CapacityType::Spot,
        |catalog| catalog.instance_types[0].offerings.clear(),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut changed = catalog();
        change(&mut changed);
        assert_ne!(changed.id(), original, "change {index}");
    }
}

#[test]
fn capacity_types_parse_their_own_names() {
    for capacity_type in CapacityType::ALL {
        assert_eq!(CapacityType::parse(&capacity_type.to_string()), Some(capacity_type));
    }
    assert_eq!(CapacityType::parse("Spot"), None);
}
