//! Tests the effect of a node class on its instance types.

#![expect(clippy::unwrap_used, reason = "helpers that fail the test")]

use plimsoll_api::EC2NodeClassSpec;
use plimsoll_api::ec2_node_class::{PlacementGroup, PlacementStrategy};
use plimsoll_catalog::{InstanceTypeFacts, NodeClassSettings, Prices, SpotPrices, Zone, build, builtin};
use plimsoll_model::catalog::{CapacityType, InstanceType};
use plimsoll_model::money::MicroUsdPerHour;
use serde_json::{Value, json};

const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;

fn settings(mut spec: Value) -> NodeClassSettings {
    spec["subnetSelectorTerms"] = json!([{"id": "subnet-1"}]);
    spec["securityGroupSelectorTerms"] = json!([{"id": "sg-1"}]);
    let spec: EC2NodeClassSpec = serde_json::from_value(spec).unwrap();
    NodeClassSettings::from(&spec)
}

fn al2023(mut more: Value) -> NodeClassSettings {
    more["amiFamily"] = json!("AL2023");
    settings(more)
}

fn facts(name: &str) -> &'static InstanceTypeFacts {
    builtin::facts().iter().find(|facts| facts.name == name).unwrap()
}

fn zone(name: &str, usable: bool) -> Zone {
    let instance_types = builtin::facts().iter().map(|facts| facts.name.clone()).collect();
    Zone { name: name.to_owned(), id: String::new(), instance_types, usable }
}

fn build_type(name: &str, settings: &NodeClassSettings) -> InstanceType {
    let prices =
        Prices { on_demand: [(name.to_owned(), MicroUsdPerHour(1_000_000))].into(), spot: SpotPrices::Unknown };
    build("test-1", [facts(name)], settings, &[zone("test-1a", true)], &prices).get(name).cloned().unwrap()
}

fn buyable(name: &str, settings: &NodeClassSettings) -> bool {
    build_type(name, settings).offerings.iter().all(|offering| offering.available)
}

#[test]
fn max_pods_does_not_reduce_the_memory_reserved_for_kubernetes() {
    // m5.large: 3 interfaces of 10 addresses make 29 pods; 11Mi each, 255Mi and 100Mi for eviction.
    let by_settings = |kubelet: Value| {
        let instance_type = build_type("m5.large", &al2023(json!({"kubelet": kubelet})));
        (instance_type.capacity.get("pods"), instance_type.overhead.get("memory") / MIB)
    };
    assert_eq!(by_settings(json!({})), (29, 674));
    assert_eq!(by_settings(json!({"maxPods": 8})), (8, 674));
    assert_eq!(by_settings(json!({"maxPods": 110})), (110, 674));
    assert_eq!(by_settings(json!({"podsPerCore": 5})), (10, 674));
    assert_eq!(by_settings(json!({"maxPods": 8, "podsPerCore": 5})), (8, 674));
}

#[test]
fn bottlerocket_reserves_memory_for_the_actual_number_of_pods() {
    let class = json!({"amiFamily": "Bottlerocket", "kubelet": {"maxPods": 8, "podsPerCore": 1}});
    let instance_type = build_type("m5.large", &settings(class));
    assert_eq!(
        (instance_type.capacity.get("pods"), instance_type.overhead.get("memory")),
        (8, (8 * 11 + 255 + 100) * MIB)
    );
}

#[test]
fn reserved_interfaces_reduce_pods_but_not_reserved_memory() {
    let instance_type = build_type("m5.large", &NodeClassSettings { reserved_enis: 1, ..NodeClassSettings::default() });
    assert_eq!((instance_type.capacity.get("pods"), instance_type.overhead.get("memory") / MIB), (20, 674));
    let instance_type = build_type("m5.large", &NodeClassSettings { reserved_enis: 3, ..NodeClassSettings::default() });
    assert_eq!(instance_type.capacity.get("pods"), 0);
}

#[test]
fn reservations_override_per_resource_and_thresholds_per_signal() {
    let kubelet = json!({
        "kubeReserved": {"cpu": "0.5"},
        "systemReserved": {"cpu": "100m", "memory": "1Gi", "pid": "100"},
        "evictionHard": {"memory.available": "5%", "nodefs.available": "100%"},
        "evictionSoft": {"memory.available": "50%"},
    });
    let class = al2023(json!({"kubelet": kubelet}));
    let instance_type = build_type("m5.large", &class);
    // 5% of 7577Mi, rounded up to a byte.
    let evicted = (7577 * MIB + 19) / 20;
    assert_eq!(instance_type.overhead.get("cpu"), 600);
    assert_eq!(instance_type.overhead.get("memory"), (574 + 1024) * MIB + evicted);
    assert_eq!(instance_type.overhead.get("ephemeral-storage"), GIB);
    assert!(buyable("m5.large", &class), "the capacity for process IDs is not known");
}

#[test]
fn a_type_with_less_than_its_kubelet_reserves_is_not_bought() {
    // t3.nano has 512Mi, 473 of them for the node. 100Mi more are reserved for eviction.
    let by_reserved = |memory: &str| {
        let class = al2023(json!({"kubelet": {"kubeReserved": {"memory": memory}}}));
        ["t3.nano", "t3.micro"].map(|name| buyable(name, &class))
    };
    assert_eq!(by_reserved("373Mi"), [true, true]);
    assert_eq!(by_reserved("374Mi"), [false, true]);
    // The image of the family Custom may have other volumes than those of the class.
    let kubelet = json!({"kubeReserved": {"ephemeral-storage": "30Gi"}});
    assert!(buyable("m5.large", &settings(json!({"amiFamily": "Custom", "kubelet": kubelet}))));
}

#[test]
fn ephemeral_storage_is_the_size_of_the_volume_for_pods() {
    let volume = |device: &str, size: &str| json!({"deviceName": device, "ebs": {"volumeSize": size}});
    let root = json!({"deviceName": "/dev/xvdz", "rootVolume": true, "ebs": {"volumeSize": "40Gi"}});
    let storage = |class: Value| build_type("m5d.large", &settings(class)).capacity.get("ephemeral-storage");
    let both = json!([volume("/dev/xvda", "30Gi"), volume("/dev/xvdb", "50G")]);
    let of = |family: &str, mappings: &Value| storage(json!({"amiFamily": family, "blockDeviceMappings": mappings}));
    assert_eq!(of("AL2023", &both), 30 * GIB);
    assert_eq!(of("Bottlerocket", &both), 50_000_000_000);
    assert_eq!(of("Custom", &both), 50_000_000_000);
    assert_eq!(of("Windows2022", &both), 50 * GIB);
    assert_eq!(of("AL2023", &json!([volume("/dev/xvda", "30Gi"), root])), 40 * GIB);
    assert_eq!(storage(json!({"amiFamily": "AL2023", "instanceStorePolicy": "RAID0"})), 75_000_000_000);
    let without_disks = build_type("m5.large", &al2023(json!({"instanceStorePolicy": "RAID0"})));
    assert_eq!(without_disks.capacity.get("ephemeral-storage"), 20 * GIB);
    let hard_disks = build_type("h1.2xlarge", &al2023(json!({"instanceStorePolicy": "RAID0"})));
    assert_eq!(hard_disks.capacity.get("ephemeral-storage"), 20 * GIB, "its disks are not NVMe disks");
    assert_eq!(storage(json!({"amiFamily": "Windows2022", "instanceStorePolicy": "RAID0"})), 50 * GIB);
}

#[test]
fn windows_runs_on_amd64_alone() {
    let class = settings(json!({"amiFamily": "Windows2022"}));
    let instance_type = build_type("m5.large", &class);
    assert_eq!(instance_type.operating_systems, ["windows"]);
    assert_eq!(instance_type.labels["node.kubernetes.io/windows-build"], "10.0.20348");
    assert_eq!(
        (instance_type.capacity.get("pods"), instance_type.capacity.get("vpc.amazonaws.com/PrivateIPv4Address")),
        (110, 9)
    );
    assert!(build_type("m6g.large", &class).operating_systems.is_empty());
    assert_eq!(["m5.large", "m6g.large"].map(|name| buyable(name, &class)), [true, false]);
}

/// The limits of EKS: a node on Xen never becomes Ready, since the CNI plugin gets no prefix there.
#[test]
fn in_ipv6_clusters_nodes_run_linux_on_nitro() {
    let buyable = |family: &str, ipv6: bool, names: [&str; 4]| {
        let class = NodeClassSettings { ipv6, ..settings(json!({"amiFamily": family})) };
        names.map(|name| buyable(name, &class))
    };
    let linux = ["m5.large", "m6g.large", "m5.metal", "m4.large"];
    let windows = ["m5.large", "c5.large", "m5.metal", "m4.large"];
    for family in ["AL2023", "Bottlerocket", "Custom"] {
        assert_eq!(buyable(family, true, linux), [true, true, true, false], "{family}");
        assert_eq!(buyable(family, false, linux), [true; 4], "{family}");
    }
    assert_eq!(buyable("Windows2022", true, windows), [false; 4]);
    assert_eq!(buyable("Windows2022", false, windows), [true; 4]);
}

#[test]
fn network_interfaces_must_fit_the_instance_type() {
    let interface = |card: i32, device: i32, kind: &str| json!({"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind});
    let class = al2023(json!({"networkInterfaces": [
        interface(0, 0, "interface"), interface(0, 1, "efa-only"), interface(1, 1, "efa-only"),
    ]}));
    let big = build_type("p4d.24xlarge", &class);
    assert_eq!(big.capacity.get("vpc.amazonaws.com/efa"), 2);
    // One of the 15 interfaces of the first card has no addresses for pods.
    assert_eq!(big.capacity.get("pods"), 14 * 49 + 2);
    assert!(buyable("p4d.24xlarge", &class));
    assert!(!buyable("c5n.18xlarge", &class), "it has one card only");
    assert!(!buyable("m5.large", &class), "it has no EFA");
    let with_second = |device: i32| {
        al2023(json!({"networkInterfaces": [interface(0, 0, "interface"), interface(0, device, "interface")]}))
    };
    assert!(buyable("m5.large", &with_second(2)));
    assert!(!buyable("m5.large", &with_second(3)), "it has three interfaces");
    assert!(buyable("m5.xlarge", &with_second(3)));
}

/// EC2 gives the address only to instances with a single interface.
#[test]
fn with_a_public_address_types_have_at_most_one_efa_interface() {
    let efa = |name: &str, public: bool| {
        let class = al2023(json!({"associatePublicIPAddress": public}));
        build_type(name, &class).capacity.get("vpc.amazonaws.com/efa")
    };
    assert_eq!([efa("p4d.24xlarge", false), efa("p4d.24xlarge", true)], [4, 0]);
    assert_eq!([efa("c5n.18xlarge", false), efa("c5n.18xlarge", true)], [1, 1]);
}

#[test]
fn required_features_must_be_supported() {
    let tracking = al2023(json!({"connectionTracking": {"udpTimeout": 40}}));
    assert_eq!(["m5.large", "m5.metal", "i3.large"].map(|name| buyable(name, &tracking)), [true, false, false]);
    let nested = al2023(json!({"cpuOptions": {"nestedVirtualization": "enabled"}}));
    assert!(!buyable("m5.large", &nested));
    let able = builtin::facts().iter().find(|instance_type| {
        instance_type.processor_features.iter().any(|instance_type| instance_type == "nested-virtualization")
    });
    assert!(buyable(&able.unwrap().name, &nested));
}

#[test]
fn discovered_memory_overrides_the_estimate() {
    let seen = [("m5.large".to_owned(), 7_700 * MIB)].into();
    let instance_type =
        build_type("m5.large", &NodeClassSettings { discovered_memory: seen, ..NodeClassSettings::default() });
    assert_eq!(instance_type.capacity.get("memory"), 7_700 * MIB);
}

#[test]
fn implausible_memory_is_ignored() {
    // Of 8192 MiB the estimate leaves 7577, and three quarters less 256 MiB are 5888.
    for (seen, expected) in [(0, 7577), (-1, 7577), (5887, 7577), (5888, 5888), (8192, 8192), (8193, 7577)] {
        let discovered_memory = [("m5.large".to_owned(), seen * MIB), ("m5.xlarge".to_owned(), 1)].into();
        let settings = NodeClassSettings { discovered_memory, ..NodeClassSettings::default() };
        assert_eq!(build_type("m5.large", &settings).capacity.get("memory"), expected * MIB, "{seen} MiB");
    }
    let smallest = [("t3.nano".to_owned(), 400 * MIB)].into();
    let nano =
        build_type("t3.nano", &NodeClassSettings { discovered_memory: smallest, ..NodeClassSettings::default() });
    assert_eq!(nano.capacity.get("memory"), 400 * MIB, "the kernel keeps a fifth of a small type");
}

#[test]
fn offerings_need_a_price_and_are_available_in_zones_of_the_class() {
    let zones = [zone("test-1b", false), zone("test-1a", true)];
    let spot = [("m5.large".to_owned(), [("test-1a".to_owned(), MicroUsdPerHour(40_000))].into())].into();
    let prices =
        Prices { on_demand: [("m5.large".to_owned(), MicroUsdPerHour(96_000))].into(), spot: SpotPrices::Known(spot) };
    let both = [facts("m5.large"), facts("m5.xlarge")];
    let catalog = build("test-1", both, &NodeClassSettings::default(), &zones, &prices);
    assert!(catalog.get("m5.xlarge").is_none(), "it has no price");
    let offerings: Vec<_> = catalog.instance_types[0]
        .offerings
        .iter()
        .map(|instance_type| {
            (instance_type.zone.as_str(), instance_type.capacity_type, instance_type.price.0, instance_type.available)
        })
        .collect();
    let expected = [
        ("test-1a", CapacityType::Spot, 40_000, true),
        ("test-1a", CapacityType::OnDemand, 96_000, true),
        ("test-1b", CapacityType::OnDemand, 96_000, false),
    ];
    assert_eq!(offerings, expected);
}

#[test]
fn machines_that_cannot_be_nodes_are_omitted() {
    let mac = InstanceTypeFacts { architectures: vec!["arm64_mac".to_owned()], ..facts("m6g.large").clone() };
    let paravirtual = InstanceTypeFacts { virtualization_types: vec!["paravirtual".to_owned()], ..mac.clone() };
    let prices = Prices { on_demand: [(mac.name.clone(), MicroUsdPerHour(1))].into(), spot: SpotPrices::Unknown };
    let catalog = build("test-1", [&mac, &paravirtual], &NodeClassSettings::default(), &[zone("a", true)], &prices);
    assert!(catalog.instance_types.is_empty());
}

#[test]
fn a_placement_group_is_a_label_and_closes_types_that_do_not_support_its_strategy() {
    let group = PlacementGroup {
        id: "pg-1".to_owned(),
        name: None,
        strategy: PlacementStrategy::Cluster,
        partition_count: None,
    };
    let in_group = NodeClassSettings { placement_group: Some(group), ..al2023(json!({})) };
    let of = |strategies: &[&str], settings: &NodeClassSettings| {
        let placement_strategies = strategies.iter().map(|strategy| (*strategy).to_owned()).collect();
        let facts = InstanceTypeFacts { placement_strategies, ..facts("m5.large").clone() };
        let prices =
            Prices { on_demand: [("m5.large".to_owned(), MicroUsdPerHour(1))].into(), spot: SpotPrices::Unknown };
        let catalog = build("test-1", [&facts], settings, &[zone("test-1a", true)], &prices);
        let kind = catalog.get("m5.large").cloned().unwrap();
        let label = kind.labels.get("karpenter.k8s.aws/placement-group-id").cloned();
        (kind.offerings.iter().all(|offering| offering.available), label)
    };
    let id = Some("pg-1".to_owned());
    assert_eq!(of(&["partition", "cluster"], &in_group), (true, id.clone()));
    assert_eq!(of(&["partition", "spread"], &in_group), (false, id.clone()));
    assert_eq!(of(&[], &in_group), (true, id), "what is not known is left to EC2");
    assert_eq!(of(&["spread"], &al2023(json!({}))), (true, None));
}
