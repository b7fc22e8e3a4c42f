//! Converts a launch template to EC2's request type, member by member: its content is decided in
//! [`plimsoll_actuator::requests`].

use super::tag_specification_tags;
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
use plimsoll_actuator::requests::{
    BlockDeviceMapping, Interface, LaunchTemplateData, Metadata, Placement, Reservation,
};

pub(super) fn data(content: LaunchTemplateData) -> RequestLaunchTemplateData {
    let profile =
        LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(content.iam_instance_profile.name).build();
    let monitoring = LaunchTemplatesMonitoringRequest::builder().enabled(content.monitoring.enabled).build();
    let devices = content.block_device_mappings;
    let devices = (!devices.is_empty()).then(|| devices.into_iter().map(device).collect());
    let cpu = content.cpu_options.map(|options| {
        let nested = NestedVirtualizationSpecification::from(options.nested_virtualization);
        LaunchTemplateCpuOptionsRequest::builder().nested_virtualization(nested).build()
    });
    let enclave = content
        .enclave_options
        .map(|options| LaunchTemplateEnclaveOptionsRequest::builder().enabled(options.enabled).build());
    let market = content.instance_market_options.map(|options| {
        let market = MarketType::from(options.market_type);
        LaunchTemplateInstanceMarketOptionsRequest::builder().market_type(market).build()
    });
    let tags = content.tag_specifications.into_iter().map(|tags| {
        LaunchTemplateTagSpecificationRequest::builder()
            .resource_type(ResourceType::from(tags.resource_type))
            .set_tags(Some(tag_specification_tags(tags)))
            .build()
    });
    RequestLaunchTemplateData::builder()
        .image_id(content.image_id)
        .user_data(content.user_data)
        .iam_instance_profile(profile)
        .set_block_device_mappings(devices)
        .metadata_options(metadata(content.metadata_options))
        .monitoring(monitoring)
        .placement(placement(content.placement))
        .set_network_interfaces(Some(content.network_interfaces.into_iter().map(interface).collect()))
        .set_cpu_options(cpu)
        .set_enclave_options(enclave)
        .set_capacity_reservation_specification(content.capacity_reservation_specification.map(reservation))
        .set_instance_market_options(market)
        .set_tag_specifications(Some(tags.collect()))
        .build()
}

fn placement(placement: Placement) -> LaunchTemplatePlacementRequest {
    LaunchTemplatePlacementRequest::builder()
        .tenancy(Tenancy::from(placement.tenancy.as_str()))
        .set_group_id(placement.group_id)
        .set_partition_number(placement.partition_number)
        .build()
}

fn reservation(reservation: Reservation) -> ReservationRequest {
    let target = reservation.capacity_reservation_target.map(|target| {
        CapacityReservationTarget::builder().capacity_reservation_id(target.capacity_reservation_id).build()
    });
    ReservationRequest::builder()
        .capacity_reservation_preference(CapacityReservationPreference::from(
            reservation.capacity_reservation_preference,
        ))
        .set_capacity_reservation_target(target)
        .build()
}

fn metadata(options: Metadata) -> LaunchTemplateInstanceMetadataOptionsRequest {
    let ipv6 = options.http_protocol_ipv6.as_deref().map(LaunchTemplateInstanceMetadataProtocolIpv6::from);
    LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(LaunchTemplateInstanceMetadataEndpointState::from(options.http_endpoint.as_str()))
        .set_http_protocol_ipv6(ipv6)
        .http_put_response_hop_limit(options.http_put_response_hop_limit)
        .http_tokens(LaunchTemplateHttpTokensState::from(options.http_tokens.as_str()))
        .instance_metadata_tags(LaunchTemplateInstanceMetadataTagsState::from(options.instance_metadata_tags))
        .build()
}

fn device(device: BlockDeviceMapping) -> LaunchTemplateBlockDeviceMappingRequest {
    let ebs = LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_volume_size(device.ebs.volume_size)
        .set_volume_type(device.ebs.volume_type.as_deref().map(VolumeType::from))
        .set_iops(device.ebs.iops)
        .set_throughput(device.ebs.throughput)
        .set_encrypted(device.ebs.encrypted)
        .set_kms_key_id(device.ebs.kms_key_id)
        .set_snapshot_id(device.ebs.snapshot_id)
        .set_volume_initialization_rate(device.ebs.volume_initialization_rate)
        .set_delete_on_termination(device.ebs.delete_on_termination)
        .build();
    LaunchTemplateBlockDeviceMappingRequest::builder().device_name(device.device_name).ebs(ebs).build()
}

fn interface(interface: Interface) -> InterfaceRequest {
    let tracking = interface.connection_tracking_specification.map(|timeouts| {
        ConnectionTrackingSpecificationRequest::builder()
            .set_tcp_established_timeout(timeouts.tcp_established_timeout)
            .set_udp_stream_timeout(timeouts.udp_stream_timeout)
            .set_udp_timeout(timeouts.udp_timeout)
            .build()
    });
    InterfaceRequest::builder()
        .network_card_index(interface.network_card_index)
        .device_index(interface.device_index)
        .set_interface_type(interface.interface_type)
        .set_groups(Some(interface.groups))
        .set_associate_public_ip_address(interface.associate_public_ip_address)
        .set_ipv4_prefix_count(interface.ipv4_prefix_count)
        .set_ipv6_prefix_count(interface.ipv6_prefix_count)
        .set_ipv6_address_count(interface.ipv6_address_count)
        .set_primary_ipv6(interface.primary_ipv6)
        .set_connection_tracking_specification(tracking)
        .build()
}
