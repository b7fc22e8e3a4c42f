use super::*;
use crate::state::catalogs::fixtures;
use plimsoll_api::EC2NodeClassSpec;
use plimsoll_api::ec2_node_class::{Ami, EC2NodeClassStatus, SecurityGroup, Subnet};
use serde_json::json;

fn ami(id: &str, requirements: serde_json::Value) -> Ami {
    Ami { id: id.to_owned(), name: None, deprecated: None, requirements: serde_json::from_value(requirements).unwrap() }
}

fn class() -> EC2NodeClass {
    let mut class = EC2NodeClass::new("default", EC2NodeClassSpec::default());
    class.metadata.generation = Some(2);
    let subnet = |id: &str, zone: &str| Subnet { id: id.to_owned(), zone: zone.to_owned(), zone_id: None };
    class.status = Some(EC2NodeClassStatus {
        subnets: vec![subnet("subnet-1", "a"), subnet("subnet-2", "a"), subnet("subnet-3", "b")],
        security_groups: ["sg-2", "sg-1"].map(|id| SecurityGroup { id: id.to_owned(), name: None }).into(),
        amis: vec![
            ami("ami-gpu", json!([{"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"}])),
            ami(
                "ami-arm",
                json!([
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
                    {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"},
                ]),
            ),
        ],
        instance_profile: Some("profile".to_owned()),
        conditions: serde_json::from_value(json!([{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 2,
            "lastTransitionTime": "2026-11-01T00:00:00Z",
        }]))
        .unwrap(),
        ..EC2NodeClassStatus::default()
    });
    class
}

fn instance_type(architecture: &str, gpus: Option<&str>) -> InstanceType {
    let labels = gpus.map(|count| ("karpenter.k8s.aws/instance-gpu-count".to_owned(), count.to_owned()));
    let (architecture, labels) = (architecture.to_owned(), labels.into_iter().collect());
    InstanceType { architecture, labels, ..fixtures::instance_type("x.large") }
}

#[test]
fn launch_resolves_the_status() {
    let resolved = for_launch(&class()).unwrap();
    assert_eq!(resolved.security_group_ids, ["sg-1", "sg-2"]);
    assert_eq!(resolved.instance_profile, "profile");
    let in_zone = |zone: &str| resolved.subnet_in(zone).map(|subnet| subnet.id.as_str());
    assert_eq!((in_zone("a"), in_zone("b"), in_zone("c")), (Some("subnet-1"), Some("subnet-3"), None));
}

#[test]
fn type_gets_the_first_image_it_can_run() {
    let resolved = for_launch(&class()).unwrap();
    let image = |kind: InstanceType| resolved.image_for(&kind).map(|image| image.id.clone());
    assert_eq!(image(instance_type("amd64", Some("1"))).as_deref(), Some("ami-gpu"));
    assert_eq!(image(instance_type("arm64", None)).as_deref(), Some("ami-arm"));
    assert_eq!(image(instance_type("amd64", None)), None, "no image for x86 without GPU");
}

#[test]
fn unready_class_is_rejected_with_the_reason() {
    let with = |change: fn(&mut EC2NodeClass)| {
        let mut class = class();
        change(&mut class);
        for_launch(&class).unwrap_err().to_string()
    };
    assert_eq!(
        with(|class| class.metadata.generation = Some(3)),
        "EC2NodeClass default is not ready: its latest change has not been reconciled yet"
    );
    assert_eq!(with(|class| class.status = None), "EC2NodeClass default is not ready: it has not been reconciled yet");
    assert_eq!(
        with(|class| class.status.as_mut().unwrap().subnets.clear()),
        "EC2NodeClass default: status.subnets: there are none"
    );
    assert_eq!(
        with(|class| {
            let ready = &mut class.status.as_mut().unwrap().conditions[0];
            ready.status = "False".to_owned();
            ready.message = "AMIsReady=False".to_owned();
        }),
        "EC2NodeClass default is not ready: AMIsReady=False"
    );
}
