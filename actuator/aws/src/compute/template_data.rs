//! Converts a launch template to EC2's request type (spec: AWS provider section 4.3).

use super::{number, to_tags};
use aws_sdk_ec2::types::{
    CapacityReservationPreference, CapacityReservationTarget, ConnectionTrackingSpecificationRequest,
    LaunchTemplateBlockDeviceMappingRequest,
    LaunchTemplateCapacityReservationSpecificationRequest as ReservationRequest, LaunchTemplateCpuOptionsRequest,
    LaunchTemplateEbsBlockDeviceRequest, LaunchTemplateEnclaveOptionsRequest, LaunchTemplateHttpTokensState,
    LaunchTemplateIamInstanceProfileSpecificationRequest, LaunchTemplateInstanceMarketOptionsRequest,
    LaunchTemplateInstanceMetadataEndpointState, LaunchTemplateInstanceMetadataOptionsRequest,
    LaunchTemplateInstanceMetadataProtocolIpv6, LaunchTemplateInstanceMetadataTagsState,
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest as InterfaceRequest, LaunchTemplatePlacementRequest,
    LaunchTemplateTagSpecificationRequest, LaunchTemplatesMonitoringRequest, MarketType,
    NestedVirtualizationSpecification, RequestLaunchTemplateData, ResourceType, Tenancy, VolumeType,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_actuator::ports::{BlockDevice, LaunchTemplateSpec, MetadataOptions, NetworkInterface, ReservationSpec};
use plimsoll_model::catalog::CapacityType;

pub(super) fn data(spec: &LaunchTemplateSpec) -> RequestLaunchTemplateData {
    let placement = LaunchTemplatePlacementRequest::builder()
        .tenancy(Tenancy::from(spec.tenancy.as_str()))
        .set_group_id(spec.placement_group_id.clone())
        .set_partition_number(spec.partition.map(|it| number(u64::from(it))))
        .build();
    let profile = LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(&spec.instance_profile).build();
    let monitoring = LaunchTemplatesMonitoringRequest::builder().enabled(spec.detailed_monitoring).build();
    let mut data = RequestLaunchTemplateData::builder()
        .image_id(&spec.image_id)
        .user_data(STANDARD.encode(&spec.user_data))
        .iam_instance_profile(profile)
        .metadata_options(metadata(&spec.metadata))
        .monitoring(monitoring)
        .placement(placement)
        .set_network_interfaces(Some(spec.network_interfaces.iter().map(interface).collect()))
        .set_tag_specifications(Some(tag_specifications(spec)));
    if !spec.block_devices.is_empty() {
        data = data.set_block_device_mappings(Some(spec.block_devices.iter().map(device).collect()));
    }
    if let Some(nested) = spec.nested_virtualization {
        let word = if nested { "enabled" } else { "disabled" };
        let options = LaunchTemplateCpuOptionsRequest::builder();
        data = data.cpu_options(options.nested_virtualization(NestedVirtualizationSpecification::from(word)).build());
    }
    if spec.enclave {
        data = data.enclave_options(LaunchTemplateEnclaveOptionsRequest::builder().enabled(true).build());
    }
    match &spec.reservation {
        None => {}
        Some(ReservationSpec::Avoid) => {
            let none = ReservationRequest::builder();
            let none = none.capacity_reservation_preference(CapacityReservationPreference::None).build();
            data = data.capacity_reservation_specification(none);
        }
        Some(ReservationSpec::Target { id, market_type }) => {
            let target = CapacityReservationTarget::builder().capacity_reservation_id(id).build();
            let only = ReservationRequest::builder()
                .capacity_reservation_preference(CapacityReservationPreference::CapacityReservationsOnly)
                .capacity_reservation_target(target)
                .build();
            data = data.capacity_reservation_specification(only);
            if let Some(market) = market_type {
                let options = LaunchTemplateInstanceMarketOptionsRequest::builder();
                data = data.instance_market_options(options.market_type(MarketType::from(market.as_str())).build());
            }
        }
    }
    data.build()
}

fn tag_specifications(spec: &LaunchTemplateSpec) -> Vec<LaunchTemplateTagSpecificationRequest> {
    let mut resources = vec![ResourceType::NetworkInterface];
    if spec.capacity_type == CapacityType::Spot {
        resources.push(ResourceType::SpotInstancesRequest);
    }
    let tagged = |resource| {
        let builder = LaunchTemplateTagSpecificationRequest::builder().resource_type(resource);
        builder.set_tags(Some(to_tags(&spec.tags))).build()
    };
    resources.into_iter().map(tagged).collect()
}

fn metadata(options: &MetadataOptions) -> LaunchTemplateInstanceMetadataOptionsRequest {
    let ipv6 = options.http_protocol_ipv6.as_deref().map(LaunchTemplateInstanceMetadataProtocolIpv6::from);
    LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(LaunchTemplateInstanceMetadataEndpointState::from(options.http_endpoint.as_str()))
        .set_http_protocol_ipv6(ipv6)
        .http_put_response_hop_limit(number(u64::from(options.http_put_response_hop_limit)))
        .http_tokens(LaunchTemplateHttpTokensState::from(options.http_tokens.as_str()))
        .instance_metadata_tags(LaunchTemplateInstanceMetadataTagsState::Disabled)
        .build()
}

fn device(device: &BlockDevice) -> LaunchTemplateBlockDeviceMappingRequest {
    let ebs = LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_volume_size(device.size_gib.map(number))
        .set_volume_type(device.volume_type.as_deref().map(VolumeType::from))
        .set_iops(device.iops.map(number))
        .set_throughput(device.throughput.map(number))
        .set_encrypted(device.encrypted)
        .set_kms_key_id(device.kms_key_id.clone())
        .set_snapshot_id(device.snapshot_id.clone())
        .set_volume_initialization_rate(device.initialization_rate.map(number))
        .set_delete_on_termination(device.delete_on_termination)
        .build();
    LaunchTemplateBlockDeviceMappingRequest::builder().device_name(&device.device_name).ebs(ebs).build()
}

fn interface(interface: &NetworkInterface) -> InterfaceRequest {
    let count = |value: Option<u32>| value.map(|value| number(u64::from(value)));
    let timeouts = [interface.tcp_established_timeout, interface.udp_stream_timeout, interface.udp_timeout];
    let tracking = timeouts.iter().any(Option::is_some).then(|| {
        ConnectionTrackingSpecificationRequest::builder()
            .set_tcp_established_timeout(count(interface.tcp_established_timeout))
            .set_udp_stream_timeout(count(interface.udp_stream_timeout))
            .set_udp_timeout(count(interface.udp_timeout))
            .build()
    });
    InterfaceRequest::builder()
        .network_card_index(number(u64::from(interface.network_card_index)))
        .device_index(number(u64::from(interface.device_index)))
        .set_interface_type(interface.interface_type.clone())
        .set_groups(Some(interface.security_group_ids.clone()))
        .set_associate_public_ip_address(interface.associate_public_ip)
        .set_ipv4_prefix_count(count(interface.ipv4_prefix_count))
        .set_ipv6_prefix_count(count(interface.ipv6_prefix_count))
        .set_ipv6_address_count(count(interface.ipv6_address_count))
        .set_primary_ipv6(interface.primary_ipv6)
        .set_connection_tracking_specification(tracking)
        .build()
}
