use super::request::judge;
use super::*;
use crate::ports::LaunchTemplate;
use crate::resolve::{Resolved, ResolvedImage, ResolvedSubnet};
use crate::settings::Settings;
use crate::state::catalogs::fixtures;
use plimsoll_api::NodePool;
use plimsoll_api::ec2_node_class::{PlacementGroup, PlacementStrategy};
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::requirements::Requirements;
use plimsoll_model::resources::Resources;
use serde_json::{Value, json};

fn kind(name: &str, price: i64, zones: &[&str], labels: &[(&str, &str)]) -> InstanceType {
    let offering = |zone: &&str| Offering {
        zone: (*zone).to_owned(),
        capacity_type: CapacityType::OnDemand,
        price: MicroUsdPerHour(price),
        ..Offering::default()
    };
    InstanceType {
        capacity: Resources::from([("cpu", 2000), ("pods", 29)]),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        offerings: zones.iter().map(offering).collect(),
        ..fixtures::instance_type(name)
    }
}

fn pool(name: &str, class: &str, requirements: &Value) -> Arc<NodePool> {
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class});
    let spec = json!({"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}});
    Arc::new(NodePool::new(name, serde_json::from_value(spec).unwrap()))
}

fn class() -> EC2NodeClass {
    let spec = json!({"subnetSelectorTerms": [], "securityGroupSelectorTerms": [], "amiFamily": "AL2023"});
    EC2NodeClass::new("default", serde_json::from_value(spec).unwrap())
}

fn resolved() -> Resolved {
    let subnet =
        |id: &str, zone: &str| ResolvedSubnet { id: id.to_owned(), zone: zone.to_owned(), zone_id: String::new() };
    let image = ResolvedImage { id: "ami-1".to_owned(), name: String::new(), requirements: Requirements::default() };
    Resolved {
        node_class: "default".to_owned(),
        subnets: vec![
            subnet("subnet-1", "a"),
            subnet("subnet-2", "a"),
            subnet("subnet-3", "b"),
            subnet("subnet-4", "c"),
        ],
        security_group_ids: vec!["sg-1".to_owned()],
        images: vec![image],
        instance_profile: "profile".to_owned(),
        placement_group: None,
    }
}

fn kinds() -> Vec<InstanceType> {
    vec![
        kind("a1.medium", 10, &["z"], &[]),
        kind("g5.large", 20, &["a", "b"], &[("karpenter.k8s.aws/instance-gpu-count", "1")]),
        kind("m5.large", 96, &["a", "b"], &[("karpenter.k8s.aws/instance-category", "m")]),
        kind("t3.small", 30, &["b"], &[("karpenter.k8s.aws/instance-category", "t")]),
    ]
}

fn dry_run(pools: &[Arc<NodePool>]) -> Option<DryRun> {
    dry_run_of(kinds(), pools)
}

fn dry_run_of(instance_types: Vec<InstanceType>, pools: &[Arc<NodePool>]) -> Option<DryRun> {
    dry_run_in(&resolved(), instance_types, pools)
}

fn dry_run_in(resolved: &Resolved, instance_types: Vec<InstanceType>, pools: &[Arc<NodePool>]) -> Option<DryRun> {
    let catalog = Catalog { region: "us-east-1".to_owned(), instance_types };
    let settings = Settings { service_cidr: Some("10.100.0.0/16".to_owned()), ..Settings::default() };
    DryRun::new(&settings, &class(), resolved, &catalog, pools).unwrap()
}

fn template() -> LaunchTemplate {
    LaunchTemplate { name: "one".to_owned(), id: "lt-1".to_owned(), version: 3, tags: Default::default() }
}

/// Type and subnets of the fleet's request.
fn asked(dry_run: &DryRun) -> (String, Vec<String>) {
    let fleet = dry_run.fleet(&template());
    let kinds: BTreeSet<_> = fleet.overrides().map(|way| way.instance_type.clone()).collect();
    let subnets = fleet.overrides().filter_map(|way| way.subnet_id.clone()).collect();
    (kinds.into_iter().collect::<Vec<_>>().join(" "), subnets)
}

#[test]
fn the_cheapest_type_of_the_first_pool_is_asked_for_in_one_subnet_of_each_zone() {
    let category =
        |value: &str| json!([{"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": [value]}]);
    let pools = [
        pool("b", "default", &category("t")),
        pool("a", "default", &category("m")),
        pool("0", "other", &category("t")),
    ];
    let dry_run = dry_run(&pools).unwrap();
    assert_eq!(asked(&dry_run), ("m5.large".to_owned(), vec!["subnet-1".to_owned(), "subnet-3".to_owned()]));
    let instance = dry_run.instances(&template()).next().unwrap();
    assert_eq!((instance.subnet_id.as_str(), instance.version), ("subnet-1", 3));
    assert_eq!(instance.security_group_ids, ["sg-1"]);
    // IAM policies require the tags of the cluster and the NodePool.
    let pool_tag = |tags: &crate::ports::Tags| tags.get(tag::NODE_POOL).cloned();
    assert_eq!(
        [pool_tag(&instance.tags), pool_tag(&dry_run.template.tags)],
        [Some("a".to_owned()), Some("a".to_owned())]
    );
}

#[test]
fn a_class_without_a_pool_is_asked_about_too_and_accelerators_come_last() {
    let nothing_fits = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["a1.medium"]}]);
    for pools in [vec![], vec![pool("a", "default", &nothing_fits)]] {
        assert_eq!(asked(&dry_run(&pools).unwrap()).0, "t3.small");
    }
    let gpu = json!([{"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g5.large"]}]);
    assert_eq!(asked(&dry_run(&[pool("a", "default", &gpu)]).unwrap()).0, "g5.large");
}

/// A policy may permit only the types of the NodePool.
#[test]
fn the_type_has_the_labels_that_its_pool_demands() {
    let asked_type = |pool: Arc<NodePool>| asked(&dry_run(&[pool]).unwrap()).0;
    let required = |key: &str, operator: &str| {
        let requirements = json!([{"key": key, "operator": operator}]);
        asked_type(pool("a", "default", &requirements))
    };
    let gpus = "karpenter.k8s.aws/instance-gpu-count";
    assert_eq!(required(gpus, "Exists"), "g5.large", "other types do not have the label");
    assert_eq!(required(gpus, "DoesNotExist"), "t3.small");
    assert_eq!(required("example.com/team", "Exists"), "t3.small", "no label of the type");
    let mut labelled = pool("a", "default", &json!([]));
    let labels = json!({"labels": {"karpenter.k8s.aws/instance-category": "m"}});
    Arc::make_mut(&mut labelled).spec.template.metadata = serde_json::from_value(labels).unwrap();
    assert_eq!(asked_type(labelled), "m5.large");
}

/// The catalog of a new class does not have its group.
#[test]
fn a_pool_may_demand_the_placement_group_of_the_status() {
    let demanded = json!([{"key": "karpenter.k8s.aws/placement-group-id", "operator": "In", "values": ["pg-1"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["m"]}]);
    let pools = [pool("a", "default", &demanded)];
    let asked_type = |group: Option<&str>| {
        let placement_group = group.map(|id| PlacementGroup {
            id: id.to_owned(),
            name: None,
            strategy: PlacementStrategy::Cluster,
            partition_count: None,
        });
        asked(&dry_run_in(&Resolved { placement_group, ..resolved() }, kinds(), &pools).unwrap()).0
    };
    assert_eq!(asked_type(Some("pg-1")), "m5.large");
    assert_eq!([asked_type(Some("pg-2")), asked_type(None)], ["t3.small", "t3.small"], "the pool has no type");
}

/// EC2 would refuse them whatever the permissions.
#[test]
fn types_that_the_class_cannot_use_come_last() {
    let open = |name: &str| {
        let mut kinds = kinds();
        let of_name = kinds.iter_mut().filter(|kind| kind.name == name);
        of_name.flat_map(|kind| &mut kind.offerings).for_each(|offering| offering.available = true);
        asked(&dry_run_of(kinds, &[]).unwrap()).0
    };
    assert_eq!(["m5.large", "g5.large"].map(open), ["m5.large", "g5.large"]);
}

#[test]
fn dedicated_tenancy_is_asked_for_if_a_pool_names_it() {
    let tenancy =
        |value: &str| json!([{"key": "karpenter.k8s.aws/instance-tenancy", "operator": "In", "values": [value]}]);
    let of = |pools: &[Arc<NodePool>]| dry_run(pools).unwrap().template.tenancy;
    assert_eq!(of(&[pool("a", "default", &tenancy("default"))]), "default");
    assert_eq!(of(&[pool("a", "default", &json!([])), pool("b", "default", &tenancy("dedicated"))]), "dedicated");
    let without = |value: &str| {
        let key = "karpenter.k8s.aws/instance-tenancy";
        of(&[pool("a", "default", &json!([{"key": key, "operator": "NotIn", "values": [value]}]))])
    };
    assert_eq!([without("dedicated"), without("default")], ["default", "dedicated"]);
}

#[test]
fn a_refusal_names_the_missing_permission() {
    let denied = |message: &str| Err(CloudError::Denied { message: message.to_owned() });
    let named = "UnauthorizedOperation: You are not authorized to perform this operation. User: arn:aws:sts::1:x is not \
                 authorized to perform: iam:PassRole on resource: arn:aws:iam::1:role/node";
    let Verdict::Refused(reason, message) = judge("ec2:RunInstances", denied(named)) else { panic!("not refused") };
    assert_eq!(reason, "RunInstancesAuthCheckFailed");
    assert!(message.starts_with("the actuator's role lacks iam:PassRole: "), "{message}");
    let unnamed = "UnauthorizedOperation: You are not authorized to perform this operation.";
    for (action, expected) in [
        ("ec2:CreateFleet", "CreateFleetAuthCheckFailed"),
        ("ec2:CreateLaunchTemplate", "CreateLaunchTemplateAuthCheckFailed"),
    ] {
        let Verdict::Refused(reason, message) = judge(action, denied(unnamed)) else { panic!("not refused") };
        assert_eq!(reason, expected);
        assert!(message.contains(&format!("lacks {action}: ")), "{message}");
    }
}

#[test]
fn only_permissions_and_the_profile_make_a_class_not_ready() {
    let invalid = |code: &str, message: &str| {
        Err(CloudError::InvalidRequest { code: code.to_owned(), message: message.to_owned() })
    };
    let action = "ec2:RunInstances";
    assert_eq!(judge(action, Ok(())), Verdict::Permitted(None));
    for error in [CloudError::Throttled, CloudError::Unavailable { message: String::new() }] {
        assert!(matches!(judge(action, Err(error)), Verdict::Unknown(_)));
    }
    let denied = |code: &str| judge(action, Err(CloudError::Denied { message: format!("{code}: words") }));
    for code in ["ExpiredToken", "RequestExpired", "SignatureDoesNotMatch", "PendingVerification", "Blocked"] {
        let verdict = denied(code);
        assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
        assert_eq!(period(&verdict), RETRY);
    }
    for code in ["UnauthorizedOperation", "AccessDeniedException", "AuthFailure"] {
        let verdict = denied(code);
        assert!(matches!(verdict, Verdict::Refused("RunInstancesAuthCheckFailed", _)), "{verdict:?}");
    }
    let profile =
        judge(action, invalid("InvalidParameterValue", "Value (x) is invalid. Invalid IAM Instance Profile name"));
    assert!(matches!(&profile, Verdict::Refused("InstanceProfileNotFound", _)), "{profile:?}");
    assert_eq!(period(&profile), RETRY, "IAM may not show the profile yet");
    let other = judge(action, invalid("Unsupported", "not in this zone"));
    let message = "ec2:RunInstances: invalid request: Unsupported: not in this zone".to_owned();
    assert_eq!(other, Verdict::Permitted(Some(message)));
}

#[test]
fn a_refusal_outweighs_a_missing_answer() {
    let refused = || Verdict::Refused("CreateFleetAuthCheckFailed", String::new());
    let unknown = || Verdict::Unknown(String::new());
    assert_eq!(worst([unknown(), refused()]), refused());
    assert_eq!(worst([Verdict::Permitted(None), unknown()]), unknown());
    assert_eq!(worst([Verdict::Permitted(None), Verdict::Permitted(None)]), Verdict::Permitted(None));
}

#[test]
fn the_order_of_subnets_asks_nothing_again_and_another_profile_does() {
    let status = |subnets: [&str; 2], profile: &str| EC2NodeClassStatus {
        subnets: serde_json::from_value(json!(subnets.map(|id| json!({"id": id, "zone": "a"})))).unwrap(),
        instance_profile: Some(profile.to_owned()),
        ..EC2NodeClassStatus::default()
    };
    let of = |status| key(&class(), &status);
    let first = of(status(["subnet-1", "subnet-2"], "one"));
    assert_eq!(first, of(status(["subnet-2", "subnet-1"], "one")));
    assert_ne!(first, of(status(["subnet-1", "subnet-2"], "two")));
    assert_ne!(first, of(status(["subnet-1", "subnet-3"], "one")));
}

#[test]
fn a_users_annotation_asks_again_and_the_hash_does_not() {
    let annotated = |name: &str, value: &str| {
        let mut class = class();
        class.metadata.annotations = Some([(name.to_owned(), value.to_owned())].into());
        key(&class, &EC2NodeClassStatus::default())
    };
    let plain = key(&class(), &EC2NodeClassStatus::default());
    assert_ne!(plain, annotated("example.com/touched", "1"));
    assert_ne!(annotated("example.com/touched", "1"), annotated("example.com/touched", "2"));
    for ours in [annotation::EC2_NODE_CLASS_HASH, annotation::EC2_NODE_CLASS_HASH_VERSION] {
        assert_eq!(plain, annotated(ours, "1"), "{ours}");
    }
}
