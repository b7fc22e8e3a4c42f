use super::*;
use crate::ports::{FleetRequest, LaunchTemplateConfig, Override};
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
