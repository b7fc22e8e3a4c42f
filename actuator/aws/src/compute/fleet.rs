//! CreateFleet of type `instant`. The call is a pure function of the request, so a repeated request is identical byte
//! for byte.

use super::tag_specifications;
use crate::error::classify;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder;
use aws_sdk_ec2::types::{
    CreateFleetError, CreateFleetInstance, DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
    FleetLaunchTemplateOverrides, FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetOnDemandAllocationStrategy, FleetReservationType, FleetType, InstanceLifecycle, InstanceType,
    OnDemandOptionsRequest, ReservedCapacityOptionsRequest, SpotAllocationStrategy, SpotOptionsRequest,
    TargetCapacitySpecificationRequest,
};
use plimsoll_actuator::ports::{CloudError, FleetAnswer, FleetInstance, FleetRequest, OfferingError};
use plimsoll_actuator::requests::{CreateFleet, FleetLaunchTemplateConfig, FleetOverride};
use plimsoll_model::catalog::CapacityType;

/// The call, without its client token.
pub(super) fn call(client: &aws_sdk_ec2::Client, sent: CreateFleet) -> CreateFleetFluentBuilder {
    let target = TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(sent.target_capacity_specification.total_target_capacity)
        .default_target_capacity_type(DefaultTargetCapacityType::from(
            sent.target_capacity_specification.default_target_capacity_type,
        ))
        .build();
    let spot = sent.spot_options.map(|options| {
        let strategy = SpotAllocationStrategy::from(options.allocation_strategy);
        SpotOptionsRequest::builder().allocation_strategy(strategy).build()
    });
    let on_demand = sent.on_demand_options.map(|options| {
        let strategy = FleetOnDemandAllocationStrategy::from(options.allocation_strategy);
        OnDemandOptionsRequest::builder().allocation_strategy(strategy).build()
    });
    let reserved = sent.reserved_capacity_options.map(|options| {
        let kinds = options.reservation_types.into_iter().map(FleetReservationType::from).collect();
        ReservedCapacityOptionsRequest::builder().set_reservation_types(Some(kinds)).build()
    });
    client
        .create_fleet()
        .r#type(FleetType::from(sent.r#type))
        .target_capacity_specification(target)
        .set_spot_options(spot)
        .set_on_demand_options(on_demand)
        .set_reserved_capacity_options(reserved)
        .set_launch_template_configs(Some(sent.launch_template_configs.into_iter().map(config).collect()))
        .set_tag_specifications(Some(tag_specifications(sent.tag_specifications)))
        .set_context(sent.context)
}

pub(super) async fn create(client: &aws_sdk_ec2::Client, request: &FleetRequest) -> Result<FleetAnswer, CloudError> {
    let call = call(client, CreateFleet::from(request)).client_token(&request.client_token);
    match call.send().await.map_err(|error| (code(&error), classify(error))) {
        Ok(answer) => Ok(FleetAnswer {
            instances: answer
                .instances
                .unwrap_or_default()
                .into_iter()
                .flat_map(|item| instances(item, request))
                .collect(),
            errors: answer.errors.unwrap_or_default().into_iter().map(|error| refusal(error, request)).collect(),
        }),
        // A missing resource is part of the request: report the code, so that the caller knows which.
        Err((code, CloudError::NotFound { message })) => Err(CloudError::InvalidRequest { code, message }),
        Err((_, error)) => Err(error),
    }
}

fn code<E: aws_sdk_ec2::error::ProvideErrorMetadata, R>(error: &aws_sdk_ec2::error::SdkError<E, R>) -> String {
    use aws_sdk_ec2::error::ProvideErrorMetadata as _;
    error.code().unwrap_or_default().to_owned()
}

fn config(config: FleetLaunchTemplateConfig) -> FleetLaunchTemplateConfigRequest {
    let template = FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(config.launch_template_specification.launch_template_name)
        .version(config.launch_template_specification.version)
        .build();
    FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(config.overrides.into_iter().map(override_request).collect()))
        .build()
}

fn override_request(item: FleetOverride) -> FleetLaunchTemplateOverridesRequest {
    FleetLaunchTemplateOverridesRequest::builder()
        .instance_type(InstanceType::from(item.instance_type.as_str()))
        .availability_zone(item.availability_zone)
        .set_subnet_id(item.subnet_id)
        .image_id(item.image_id)
        .priority(item.priority)
        .build()
}

fn instances(item: CreateFleetInstance, request: &FleetRequest) -> impl Iterator<Item = FleetInstance> {
    let overrides = item.launch_template_and_overrides.and_then(|it| it.overrides);
    let overrides = overrides.unwrap_or_else(|| FleetLaunchTemplateOverrides::builder().build());
    let instance_type = item.instance_type.or(overrides.instance_type);
    let template = FleetInstance {
        instance_id: String::new(),
        instance_type: instance_type.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        zone: item.availability_zone.or(overrides.availability_zone).unwrap_or_default(),
        capacity_type: capacity_type_of(item.lifecycle.as_ref(), request),
        subnet_id: item.subnet_id.or(overrides.subnet_id).unwrap_or_default(),
        image_id: overrides.image_id.unwrap_or_default(),
    };
    let ids = item.instance_ids.unwrap_or_default().into_iter();
    ids.map(move |instance_id| FleetInstance { instance_id, ..template.clone() })
}

fn refusal(error: CreateFleetError, request: &FleetRequest) -> OfferingError {
    let overrides = error.launch_template_and_overrides.and_then(|it| it.overrides);
    let overrides = overrides.unwrap_or_else(|| FleetLaunchTemplateOverrides::builder().build());
    OfferingError {
        instance_type: overrides.instance_type.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        zone: overrides.availability_zone.unwrap_or_default(),
        subnet_id: overrides.subnet_id.unwrap_or_default(),
        capacity_type: capacity_type_of(error.lifecycle.as_ref(), request),
        code: error.error_code.unwrap_or_default(),
        message: error.error_message.unwrap_or_default(),
    }
}

/// EC2 reports reserved capacity as on-demand.
fn capacity_type_of(lifecycle: Option<&InstanceLifecycle>, request: &FleetRequest) -> CapacityType {
    match lifecycle {
        Some(InstanceLifecycle::Spot) => CapacityType::Spot,
        Some(InstanceLifecycle::OnDemand) if request.capacity_type == CapacityType::Spot => CapacityType::OnDemand,
        _ => request.capacity_type,
    }
}
