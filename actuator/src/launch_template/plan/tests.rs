use super::*;
use crate::resolve::ResolvedSubnet;
use plimsoll_api::ec2_node_class::PlacementStrategy;
use plimsoll_model::requirements::{Requirement, Requirements};
use serde_json::{Value, json};

fn settings() -> Settings {
    Settings {
        cluster_name: "demo".to_owned(),
        service_cidr: Some("10.100.0.0/16".to_owned()),
        cluster_dns: Some("10.100.0.10".to_owned()),
        ..Settings::default()
    }
}

fn class(spec: Value) -> EC2NodeClass {
    let mut whole = json!({"subnetSelectorTerms": [], "securityGroupSelectorTerms": [], "amiFamily": "AL2023"});
    whole.as_object_mut().unwrap().extend(serde_json::from_value::<serde_json::Map<String, Value>>(spec).unwrap());
    EC2NodeClass::new("default", serde_json::from_value(whole).unwrap())
}

fn image(id: &str, architecture: &str) -> ResolvedImage {
    let requirements: Requirements = [Requirement::one_of(label::ARCH, [architecture])].into_iter().collect();
    ResolvedImage { id: id.to_owned(), name: String::new(), requirements }
}

fn resolved() -> Resolved {
    let subnet = ResolvedSubnet { id: "subnet-1".to_owned(), zone: "a".to_owned(), zone_id: String::new() };
    Resolved {
        node_class: "default".to_owned(),
        subnets: vec![subnet],
        security_group_ids: vec!["sg-1".to_owned()],
        images: vec![image("ami-amd", "amd64"), image("ami-arm", "arm64")],
        instance_profile: "profile".to_owned(),
        placement_group: None,
    }
}

fn wanted() -> TemplateInput {
    TemplateInput {
        node_pool: "general".to_owned(),
        labels: BTreeMap::from([(label::NODE_POOL.to_owned(), "general".to_owned())]),
        taints: Vec::new(),
        capacity_type: CapacityType::Spot,
        reservation: None,
        dedicated: false,
        partition: None,
        requests: Resources::new(),
    }
}

fn kind(name: &str, architecture: &str, pods: i64, efa: i64) -> InstanceType {
    InstanceType {
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        operating_systems: vec!["linux".to_owned()],
        capacity: Resources::from([(PODS, pods), (EFA, efa)]),
        ..InstanceType::default()
    }
}

fn planned(class: &EC2NodeClass, wanted: &TemplateInput, kinds: &[InstanceType]) -> Vec<PlannedTemplate> {
    let kinds: Vec<&InstanceType> = kinds.iter().collect();
    plan(&settings(), class, &resolved(), wanted, &kinds).unwrap()
}

#[test]
fn types_with_equal_image_and_max_pods_share_a_template() {
    let kinds = [
        kind("m5.large", "amd64", 29, 0),
        kind("m5.xlarge", "amd64", 58, 0),
        kind("c5.large", "amd64", 29, 0),
        kind("m6g.large", "arm64", 29, 0),
        kind("mac1.metal", "x86_64_mac", 29, 0),
    ];
    let planned = planned(&class(json!({})), &wanted(), &kinds);
    let of: Vec<_> = planned.iter().map(|it| (it.spec.image_id.as_str(), it.instance_types.join(" "))).collect();
    assert_eq!(
        of,
        [
            ("ami-amd", "m5.large c5.large".to_owned()),
            ("ami-amd", "m5.xlarge".to_owned()),
            ("ami-arm", "m6g.large".to_owned())
        ]
    );
    let names: BTreeSet<&str> = planned.iter().map(|it| it.spec.name.as_str()).collect();
    assert_eq!(names.len(), 3, "each has a name of its own");
    assert!(planned[1].spec.user_data.contains("maxPods: 58"), "{}", planned[1].spec.user_data);
}

#[test]
fn efa_interfaces_are_added_only_if_requested() {
    let kinds = [kind("a", "amd64", 29, 1), kind("b", "amd64", 29, 4)];
    assert_eq!(planned(&class(json!({})), &wanted(), &kinds).len(), 1);
    let asking = TemplateInput { requests: Resources::from([(EFA, 1)]), ..wanted() };
    let with = planned(&class(json!({})), &asking, &kinds);
    let interfaces: Vec<usize> = with.iter().map(|it| it.spec.network_interfaces.len()).collect();
    assert_eq!(interfaces, [1, 4]);
    let own = json!([{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]);
    let configured = planned(&class(json!({"networkInterfaces": own})), &asking, &kinds);
    assert_eq!(configured.len(), 1, "the class lists its interfaces");
    assert_eq!(with[1].spec.network_interfaces[0].interface_type.as_deref(), Some("efa"));
}

#[test]
fn without_a_dns_address_the_service_cidr_decides_the_ip_family() {
    let addresses = |dns: Option<&str>, cidr: &str| {
        let (cluster_dns, service_cidr) = (dns.map(str::to_owned), Some(cidr.to_owned()));
        let settings = Settings { cluster_dns, service_cidr, ..settings() };
        let kind = kind("m5.large", "amd64", 29, 0);
        let planned = plan(&settings, &class(json!({})), &resolved(), &wanted(), &[&kind]).unwrap();
        planned[0].spec.network_interfaces[0].ipv6_address_count
    };
    assert_eq!(addresses(None, "fd30::/108"), Some(1));
    assert_eq!(addresses(None, "10.100.0.0/16"), None);
    assert_eq!(addresses(Some("fd30::a"), "10.100.0.0/16"), Some(1), "the DNS address comes first");
}

#[test]
fn template_name_depends_only_on_the_content() {
    let kinds = [kind("m5.large", "amd64", 29, 0)];
    let name = |class: &EC2NodeClass, wanted: &TemplateInput| planned(class, wanted, &kinds)[0].spec.name.clone();
    let base = name(&class(json!({})), &wanted());
    assert!(base.strip_prefix("karpenter.k8s.aws/").is_some_and(|number| number.parse::<u64>().is_ok()), "{base}");
    assert_eq!(base, name(&class(json!({})), &wanted()));
    assert_ne!(base, name(&class(json!({"userData": "#!/bin/sh"})), &wanted()));
    assert_ne!(base, name(&class(json!({})), &TemplateInput { capacity_type: CapacityType::OnDemand, ..wanted() }));
    assert_ne!(base, name(&class(json!({})), &TemplateInput { node_pool: "other".to_owned(), ..wanted() }));
    let mut other = class(json!({}));
    other.metadata.name = Some("other".to_owned());
    assert_ne!(base, name(&other, &wanted()), "classes never share a template");
}

#[test]
fn types_with_several_efa_interfaces_get_no_public_address() {
    let public = class(json!({"associatePublicIPAddress": true}));
    let asking = TemplateInput { requests: Resources::from([(EFA, 1)]), ..wanted() };
    let (one, four) = (kind("a", "amd64", 29, 1), kind("b", "amd64", 29, 4));
    let planned = planned(&public, &asking, &[four.clone(), one]);
    assert_eq!(planned.into_iter().map(|it| it.instance_types).collect::<Vec<_>>(), [["a"]]);
    let error = plan(&settings(), &public, &resolved(), &asking, &[&four]).unwrap_err();
    assert_eq!(error, PlanError::PublicAddress("default".to_owned()));
}

#[test]
fn template_contains_the_class_settings() {
    let class = class(json!({
        "detailedMonitoring": true, "cpuOptions": {"nestedVirtualization": "enabled"},
        "metadataOptions": {"httpPutResponseHopLimit": 2}, "tags": {"team": "a", "karpenter.sh/nodepool": "stolen"},
    }));
    let asking = TemplateInput { dedicated: true, requests: Resources::from([(NITRO_SANDBOX, 1)]), ..wanted() };
    let spec = planned(&class, &asking, &[kind("m5.large", "amd64", 29, 0)]).remove(0).spec;
    assert!(spec.detailed_monitoring && spec.enclave && spec.nested_virtualization == Some(true));
    assert_eq!(spec.tenancy, "dedicated");
    assert_eq!(spec.instance_profile, "profile");
    let metadata = MetadataOptions {
        http_endpoint: "enabled".to_owned(),
        http_protocol_ipv6: Some("disabled".to_owned()),
        http_put_response_hop_limit: 2,
        http_tokens: "required".to_owned(),
    };
    assert_eq!(spec.metadata, metadata);
    let tags: Vec<(&str, &str)> = spec.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(
        tags,
        [
            ("eks:eks-cluster-name", "demo"),
            ("karpenter.k8s.aws/ec2nodeclass", "default"),
            ("karpenter.sh/nodepool", "general"),
            ("kubernetes.io/cluster/demo", "owned"),
            ("plimsoll.dev/owner", "plimsoll"),
            ("team", "a"),
        ]
    );
    assert!(spec.user_data.contains("karpenter.sh/capacity-type=spot"), "{}", spec.user_data);
}

#[test]
fn template_has_safe_defaults_where_the_class_says_nothing() {
    let kind = kind("m5.large", "amd64", 29, 0);
    let of = |region: &str, spec: Value| {
        let settings = Settings { region: region.to_owned(), ..settings() };
        plan(&settings, &class(spec), &resolved(), &wanted(), &[&kind]).unwrap().remove(0).spec
    };
    let plain = of("us-east-1", json!({}));
    assert!(!plain.detailed_monitoring && !plain.enclave && plain.nested_virtualization.is_none());
    assert_eq!((plain.tenancy.as_str(), plain.placement_group_id, plain.partition), ("default", None, None));
    let metadata = MetadataOptions {
        http_endpoint: "enabled".to_owned(),
        http_protocol_ipv6: Some("disabled".to_owned()),
        http_put_response_hop_limit: 1,
        http_tokens: "required".to_owned(),
    };
    assert_eq!(plain.metadata, metadata, "as in Karpenter");
    for region in ["us-iso-east-1", "us-isob-east-1", "us-isof-south-1"] {
        let isolated = MetadataOptions { http_protocol_ipv6: None, ..metadata.clone() };
        assert_eq!(of(region, json!({})).metadata, isolated, "{region} does not know the setting");
    }
    let options = json!({"httpEndpoint": "disabled", "httpProtocolIPv6": "enabled", "httpTokens": "optional"});
    let spec = json!({"metadataOptions": options, "cpuOptions": {"nestedVirtualization": "disabled"}});
    let chosen = of("us-east-1", spec);
    let words = (chosen.metadata.http_endpoint, chosen.metadata.http_protocol_ipv6, chosen.metadata.http_tokens);
    assert_eq!(words, ("disabled".to_owned(), Some("enabled".to_owned()), "optional".to_owned()));
    assert_eq!(chosen.nested_virtualization, Some(false));
}

#[test]
fn user_data_has_what_the_class_and_the_launch_say_of_the_node() {
    let taint = Taint {
        key: "example.com/own".to_owned(),
        value: String::new(),
        effect: plimsoll_model::taints::TaintEffect::NoSchedule,
    };
    let input = TemplateInput { taints: vec![taint], ..wanted() };
    let spec = json!({"instanceStorePolicy": "RAID0", "kubelet": {"maxPods": 17}});
    let kinds = [kind("m5.large", "amd64", 29, 0)];
    let (own, plain) = (planned(&class(spec), &input, &kinds), planned(&class(json!({})), &wanted(), &kinds));
    let (own, plain) = (&own[0].spec.user_data, &plain[0].spec.user_data);
    for (part, otherwise) in [("RAID0", false), ("maxPods: 17", false), ("example.com/own", false), ("demo", true)] {
        assert_eq!((own.contains(part), plain.contains(part)), (true, otherwise), "{part}: {own}");
    }
}

#[test]
fn instances_stay_out_of_capacity_reservations_that_they_do_not_target() {
    let target = ReservationSpec::Target { id: "cr-1".to_owned(), market_type: None };
    let of = |settings: &Settings, reservation: Option<&ReservationSpec>| {
        let input = TemplateInput { reservation: reservation.cloned(), ..wanted() };
        let kind = kind("m5.large", "amd64", 29, 0);
        plan(settings, &class(json!({})), &resolved(), &input, &[&kind]).unwrap().remove(0).spec
    };
    let (avoiding, targeting) = (of(&settings(), None), of(&settings(), Some(&target)));
    assert_eq!((avoiding.reservation, targeting.reservation), (Some(ReservationSpec::Avoid), Some(target)));
    assert_ne!(avoiding.name, targeting.name);
    let disabled = Settings { reserved_capacity: false, ..settings() };
    assert_eq!(of(&disabled, None).reservation, None, "open reservations may be used");
}

#[test]
fn bottlerocket_version_comes_from_the_alias_or_a_name() {
    let version = |spec: Value, image_name: &str| {
        let image = ResolvedImage { name: image_name.to_owned(), ..image("ami-1", "amd64") };
        bottlerocket_version(&class(spec).spec, &image)
    };
    let family = |terms: Value| json!({"amiFamily": "Bottlerocket", "amiSelectorTerms": terms});
    assert_eq!(version(family(json!([{"alias": "bottlerocket@1.50.0"}])), "").as_deref(), Some("1.50.0"));
    let named = json!([{"name": "bottlerocket-aws-k8s-1.36-x86_64-v1.44.0-abc"}]);
    assert_eq!(version(family(named), "").as_deref(), Some("v1.44.0"));
    let image_name = "bottlerocket-aws-k8s-1.36-x86_64-v1.20.1-abc";
    assert_eq!(version(family(json!([{"id": "ami-1"}])), image_name).as_deref(), Some("v1.20.1"));
    assert_eq!(version(json!({"amiFamily": "AL2023"}), image_name), None);
}

#[test]
fn missing_image_or_user_data_prevents_the_launch() {
    let refused = |class: &EC2NodeClass, kinds: &[&InstanceType]| {
        plan(&settings(), class, &resolved(), &wanted(), kinds).unwrap_err().to_string()
    };
    let mac = kind("mac1.metal", "x86_64_mac", 29, 0);
    assert!(
        refused(&class(json!({})), &[&mac]).contains("no image in its status supports the requested instance types")
    );
    let broken = class(json!({"amiFamily": "Bottlerocket", "userData": "x"}));
    let message = refused(&broken, &[&kind("m5.large", "amd64", 29, 0)]);
    assert!(message.starts_with("EC2NodeClass default: spec.userData: not TOML"), "{message}");
}

#[test]
fn template_names_the_placement_group_and_the_partition() {
    let group = |strategy, partition_count| plimsoll_api::ec2_node_class::PlacementGroup {
        id: "pg-1".to_owned(),
        name: None,
        strategy,
        partition_count,
    };
    let of = |placement_group, wanted: TemplateInput| {
        let resolved = Resolved { placement_group, ..resolved() };
        let kind = kind("m5.large", "amd64", 29, 0);
        plan(&settings(), &class(json!({})), &resolved, &wanted, &[&kind]).map(|mut planned| planned.remove(0).spec)
    };
    let two = TemplateInput { partition: Some(2), ..wanted() };
    let partitions = Some(group(PlacementStrategy::Partition, Some(3)));
    let (chosen, open) = (of(partitions.clone(), two).unwrap(), of(partitions, wanted()).unwrap());
    assert_eq!((chosen.placement_group_id.as_deref(), chosen.partition), (Some("pg-1"), Some(2)));
    assert_eq!((open.placement_group_id.as_deref(), open.partition), (Some("pg-1"), None));
    let without = of(None, wanted()).unwrap();
    assert_eq!((without.placement_group_id.as_deref(), without.partition), (None, None));
    let without_name = without.name.clone();
    let names: BTreeSet<String> = [chosen.name, open.name, without.name].into();
    assert_eq!(names.len(), 3, "each is a template of its own");
    let dedicated = || TemplateInput { dedicated: true, ..wanted() };
    let nowhere = of(None, TemplateInput { partition: Some(2), ..wanted() }).unwrap();
    assert_eq!((nowhere.partition, nowhere.name), (None, without_name), "there is no group");
    let shared = of(Some(group(PlacementStrategy::Spread, None)), wanted()).unwrap();
    assert_eq!((shared.tenancy.as_str(), shared.placement_group_id.as_deref()), ("default", Some("pg-1")));
    let error = of(Some(group(PlacementStrategy::Spread, None)), dedicated()).unwrap_err().to_string();
    assert!(error.starts_with("EC2NodeClass default: spec.placementGroupSelector: spread placement group"), "{error}");
    assert_eq!(of(Some(group(PlacementStrategy::Cluster, None)), dedicated()).unwrap().tenancy, "dedicated");
}
