//! Dry runs: EC2 checks permissions and parameters, and answers with an error in any case.

use super::{fleet, tag_specifications};
use crate::error::classify;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::{InstanceNetworkInterfaceSpecification, InstanceType, LaunchTemplateSpecification};
use plimsoll_actuator::ports::{CloudError, FleetRequest, InstanceRequest};
use plimsoll_actuator::requests::{CreateFleet, InstanceInterface, RunInstances};
use std::error::Error;

/// Error code if the call would have succeeded.
const SUCCESS: &str = "DryRunOperation";

pub(super) async fn fleet(client: &aws_sdk_ec2::Client, request: &FleetRequest) -> Result<(), CloudError> {
    answer(fleet::call(client, CreateFleet::from(request)).dry_run(true).send().await)
}

pub(super) async fn instance(client: &aws_sdk_ec2::Client, request: &InstanceRequest) -> Result<(), CloudError> {
    let sent = RunInstances::from(request);
    let template = LaunchTemplateSpecification::builder()
        .launch_template_name(sent.launch_template.launch_template_name)
        .version(sent.launch_template.version)
        .build();
    let call = client
        .run_instances()
        .dry_run(sent.dry_run)
        .launch_template(template)
        .instance_type(InstanceType::from(sent.instance_type.as_str()))
        .min_count(sent.min_count)
        .max_count(sent.max_count)
        .set_network_interfaces(Some(sent.network_interfaces.into_iter().map(interface).collect()))
        .set_tag_specifications(Some(tag_specifications(sent.tag_specifications)));
    answer(call.send().await)
}

fn interface(interface: InstanceInterface) -> InstanceNetworkInterfaceSpecification {
    InstanceNetworkInterfaceSpecification::builder()
        .device_index(interface.device_index)
        .subnet_id(interface.subnet_id)
        .set_groups(Some(interface.groups))
        .build()
}

fn answer<T, E>(answer: Result<T, SdkError<E, HttpResponse>>) -> Result<(), CloudError>
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match answer {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(SUCCESS) => Ok(()),
        Err(error) => Err(classify(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::tests::{ec2, request};
    use crate::stub::{Reply, Stub};
    use plimsoll_actuator::ports::Compute as _;
    use plimsoll_model::catalog::CapacityType;

    #[tokio::test]
    async fn dry_runs_are_sent_once_without_a_token_and_succeed_by_an_error() {
        let instance = InstanceRequest {
            launch_template_name: "karpenter.k8s.aws/1".to_owned(),
            version: 4,
            instance_type: "c6g.large".to_owned(),
            subnet_id: "subnet-1".to_owned(),
            security_group_ids: vec!["sg-1".to_owned()],
            tags: [("team".to_owned(), "a b".to_owned())].into(),
        };
        let would = || Reply::ec2_error(412, "DryRunOperation");
        let stub = Stub::new(vec![would(), would()]).await;
        assert_eq!(ec2(&stub).dry_run_fleet(&request(CapacityType::OnDemand)).await, Ok(()));
        assert_eq!(ec2(&stub).dry_run_instance(&instance).await, Ok(()));
        let sent = stub.requests();
        for part in
            ["Action=CreateFleet&", "&DryRun=true", "&LaunchTemplateConfigs.1.Overrides.1.SubnetId=subnet-us-east-1a"]
        {
            assert!(sent[0].contains(part), "{part} in {}", sent[0]);
        }
        assert!(!sent[0].contains("ClientToken=group-1"), "{}", sent[0]);
        for part in [
            "Action=RunInstances&",
            "&DryRun=true",
            "&LaunchTemplate.Version=4",
            "&MinCount=1",
            "&NetworkInterface.1.SubnetId=subnet-1",
            "&NetworkInterface.1.SecurityGroupId.1=sg-1",
            "&TagSpecification.3.ResourceType=network-interface",
        ] {
            assert!(sent[1].contains(part), "{part} in {}", sent[1]);
        }
        let throttled = Stub::new(vec![Reply::ec2_error(503, "RequestLimitExceeded")]).await;
        let answer = ec2(&throttled).dry_run_instance(&instance).await;
        assert_eq!((answer, throttled.requests().len()), (Err(CloudError::Throttled), 1), "not retried");
        let denied = Stub::new(vec![Reply::ec2_error(403, "UnauthorizedOperation")]).await;
        let answer = ec2(&denied).dry_run_fleet(&request(CapacityType::OnDemand)).await;
        assert!(matches!(answer, Err(CloudError::Denied { .. })), "{answer:?}");
    }
}
