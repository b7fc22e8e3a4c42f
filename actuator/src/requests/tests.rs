use super::*;
use crate::ports::{FleetRequest, LaunchTemplateConfig, MarketType, Override, ReservationSpec};
use plimsoll_model::catalog::CapacityType;
use serde_json::json;

#[test]
fn fleet_request_has_the_names_of_the_ec2_api() {
    let request = FleetRequest {
        client_token: "g-1".to_owned(),
        capacity_type: CapacityType::Spot,
        total_target_capacity: 2,
        launch_template_configs: vec![LaunchTemplateConfig {
            launch_template_name: "t".to_owned(),
            version: 3,
            overrides: vec![Override {
                instance_type: "m5.large".to_owned(),
                zone: "us-east-1a".to_owned(),
                subnet_id: None,
                image_id: "ami-1".to_owned(),
                priority: 7,
            }],
            reservation: None,
        }],
        prioritized: false,
        context: Some("c".to_owned()),
        tags: [("k".to_owned(), "v".to_owned())].into(),
    };
    let tagged = |resource: &str| json!({"ResourceType": resource, "Tags": [{"Key": "k", "Value": "v"}]});
    let expected = json!({
        "Type": "instant",
        "ClientToken": "g-1",
        "TargetCapacitySpecification": {"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "spot"},
        "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
        "LaunchTemplateConfigs": [{
            "LaunchTemplateSpecification": {"LaunchTemplateName": "t", "Version": "3"},
            "Overrides": [
                {"InstanceType": "m5.large", "AvailabilityZone": "us-east-1a", "ImageId": "ami-1", "Priority": 7.0},
            ],
        }],
        "TagSpecifications": [tagged("fleet"), tagged("instance"), tagged("volume")],
        "Context": "c",
    });
    assert_eq!(serde_json::to_value(CreateFleet::from(&request)).unwrap(), expected);
}

#[test]
fn fleets_of_capacity_reservations_ask_for_their_kind_of_capacity() {
    let fleet = |market_type| {
        let target = ReservationSpec::Target { id: "cr-1".to_owned(), market_type };
        let request = FleetRequest {
            client_token: "g-1".to_owned(),
            capacity_type: CapacityType::Reserved,
            total_target_capacity: 1,
            launch_template_configs: vec![LaunchTemplateConfig {
                launch_template_name: "t".to_owned(),
                version: 1,
                overrides: Vec::new(),
                reservation: Some(target),
            }],
            ..FleetRequest::default()
        };
        let sent = serde_json::to_value(CreateFleet::from(&request)).unwrap();
        let kind = sent["TargetCapacitySpecification"]["DefaultTargetCapacityType"].clone();
        (kind, sent["OnDemandOptions"].clone(), sent["ReservedCapacityOptions"].clone(), sent["SpotOptions"].clone())
    };
    let none = serde_json::Value::Null;
    let lowest = json!({"AllocationStrategy": "lowest-price"});
    assert_eq!(fleet(None), (json!("on-demand"), lowest, none.clone(), none.clone()));
    let block = (json!("capacity-block"), none.clone(), none.clone(), none.clone());
    assert_eq!(fleet(Some(MarketType::CapacityBlock)), block);
    let kinds = json!({"ReservationTypes": ["interruptible-capacity-reservation"]});
    let interruptible = fleet(Some(MarketType::InterruptibleCapacityReservation));
    assert_eq!(interruptible, (json!("reserved-capacity"), none.clone(), kinds, none));
}

/// `tests/judge` validates the same file against AWS' model of EC2.
#[test]
fn dry_run_of_an_instance_has_the_names_of_the_ec2_api() {
    let request = crate::ports::InstanceRequest {
        launch_template_name: "karpenter.k8s.aws/1".to_owned(),
        version: 4,
        instance_type: "c6g.large".to_owned(),
        subnet_id: "subnet-0a1".to_owned(),
        security_group_ids: vec!["sg-1".to_owned(), "sg-2".to_owned()],
        tags: [("team".to_owned(), "shop".to_owned())].into(),
    };
    let file = include_str!("../../../tests/judge/examples/run-instances.json");
    let expected: serde_json::Value = serde_json::from_str(file).unwrap();
    assert_eq!(serde_json::to_value(RunInstances::from(&request)).unwrap(), expected);
}
