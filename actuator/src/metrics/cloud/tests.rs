use super::CloudMethod;
use crate::metrics::tests::Fixture;
use crate::ports::{CloudError, OfferingError};
use plimsoll_model::catalog::CapacityType;
use std::time::Duration;

#[test]
fn calls_are_measured_and_errors_are_told_apart() {
    let fixture = Fixture::new();
    let cloud = &fixture.metrics.cloud;
    cloud.call(CloudMethod::Create, "CreateFleet", Duration::from_millis(1500), &Ok(()));
    cloud.call::<()>(
        CloudMethod::Delete,
        "TerminateInstances",
        Duration::from_secs(1),
        &Err(CloudError::NotFound { message: String::new() }),
    );
    cloud.call::<()>(
        CloudMethod::List,
        "DescribeInstances",
        Duration::from_secs(1),
        &Err(CloudError::Denied { message: String::new() }),
    );
    cloud.no_capacity();
    let errors = |method: &str, error: &str| {
        let labels = [("method", method), ("provider", "aws"), ("error", error)];
        fixture.value("karpenter_cloudprovider_errors_total", &labels)
    };
    assert_eq!(errors("Delete", "NodeClaimNotFoundError"), Some(1.0));
    assert_eq!(errors("List", ""), Some(1.0));
    assert_eq!(errors("Create", "InsufficientCapacityError"), Some(1.0));
    assert_eq!(errors("Create", ""), None, "a launch that found no capacity is not another error");
    let within = |le: &str| {
        let labels = [("controller", "nodeclaim.lifecycle"), ("method", "Create"), ("le", le)];
        fixture.value("karpenter_cloudprovider_duration_seconds_bucket", &labels)
    };
    assert_eq!((within("1.25"), within("1.5")), (Some(0.0), Some(1.0)));
    let calls = |action: &str, result: &str| {
        fixture.value("plimsoll_actuator_cloud_calls_total", &[("action", action), ("result", result)])
    };
    assert_eq!((calls("CreateFleet", "ok"), calls("TerminateInstances", "error")), (Some(1.0), Some(1.0)));
    let seconds = fixture.value("plimsoll_actuator_cloud_call_seconds_count", &[("action", "DescribeInstances")]);
    assert_eq!(seconds, Some(1.0));
}

#[test]
fn refused_offerings_have_a_bounded_set_of_reasons() {
    let fixture = Fixture::new();
    let refused = |code: &str| {
        let error = OfferingError {
            instance_type: "m5.large".to_owned(),
            zone: "us-west-2a".to_owned(),
            subnet_id: "subnet-1".to_owned(),
            capacity_type: CapacityType::Spot,
            code: code.to_owned(),
            message: String::new(),
        };
        fixture.metrics.cloud.refused(&error, "usw2-az1");
    };
    refused("InsufficientInstanceCapacity");
    refused("RequestThrottled");
    refused("InvalidFleetConfiguration");
    refused("SomethingNew");
    refused("SomethingElse");
    let failures = |reason: &str| {
        let labels = [("zone", "us-west-2a"), ("zone_id", "usw2-az1"), ("capacity_type", "spot"), ("reason", reason)];
        fixture.value("karpenter_cloudprovider_instance_launch_failures_total", &labels)
    };
    assert_eq!((failures("InsufficientInstanceCapacity"), failures("other")), (Some(1.0), Some(2.0)));
    assert_eq!((failures("RequestThrottled"), failures("InvalidFleetConfiguration")), (Some(1.0), Some(1.0)));
    assert_eq!(failures("SomethingNew"), None);
}
