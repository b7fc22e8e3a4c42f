//! The request CreateLaunchTemplate.

use super::{TagSpecification, number, small, tag_specification};
use crate::ports::{BlockDevice, LaunchTemplateSpec, MetadataOptions, NetworkInterface, ReservationSpec};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_model::catalog::CapacityType;
use serde::Serialize;

/// `CreateLaunchTemplate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateLaunchTemplate {
    /// Name.
    pub launch_template_name: String,
    /// Content.
    pub launch_template_data: LaunchTemplateData,
    /// Tags of the template itself.
    pub tag_specifications: Vec<TagSpecification>,
}

/// `LaunchTemplateData`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LaunchTemplateData {
    /// Image.
    pub image_id: String,
    /// User data in base64.
    pub user_data: String,
    /// Instance profile.
    pub iam_instance_profile: InstanceProfileName,
    /// Disks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// Metadata service.
    pub metadata_options: Metadata,
    /// Detailed monitoring.
    pub monitoring: Enabled,
    /// Tenancy and placement group.
    pub placement: Placement,
    /// Network interfaces.
    pub network_interfaces: Vec<Interface>,
    /// CPU options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// Nitro Enclaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enclave_options: Option<Enabled>,
    /// Use of capacity reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_reservation_specification: Option<Reservation>,
    /// Market of a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_market_options: Option<MarketOptions>,
    /// Tags of what a launch creates, beyond those of CreateFleet.
    pub tag_specifications: Vec<TagSpecification>,
}

/// `IamInstanceProfile`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct InstanceProfileName {
    /// Name.
    pub name: String,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Enabled {
    /// On or off.
    pub enabled: bool,
}

/// An item of `BlockDeviceMappings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BlockDeviceMapping {
    /// `/dev/xvda`.
    pub device_name: String,
    /// Volume.
    pub ebs: Ebs,
}

/// A volume. What is not set is EC2's default, or the snapshot's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Ebs {
    /// GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<i32>,
    /// `gp3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// Input and output operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i32>,
    /// MiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i32>,
    /// Encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// KMS key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Rate at which a snapshot is loaded, MiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// Deleted with its instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
}

/// `MetadataOptions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Metadata {
    /// `enabled` or `disabled`.
    pub http_endpoint: String,
    /// `enabled` or `disabled`; not set where the region does not support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_protocol_ipv6: Option<String>,
    /// Hop limit.
    pub http_put_response_hop_limit: i32,
    /// `required` or `optional`.
    pub http_tokens: String,
    /// Always `disabled`.
    pub instance_metadata_tags: &'static str,
}

/// `Placement`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Placement {
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// Placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// Partition of the placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_number: Option<i32>,
}

/// An item of `NetworkInterfaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Interface {
    /// Network card index.
    pub network_card_index: i32,
    /// Device index.
    pub device_index: i32,
    /// `interface`, `efa`, `efa-only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_type: Option<String>,
    /// Security groups.
    pub groups: Vec<String>,
    /// Public IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// IPv4 prefixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_prefix_count: Option<i32>,
    /// IPv6 prefixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_prefix_count: Option<i32>,
    /// IPv6 addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_address_count: Option<i32>,
    /// The first IPv6 address is the primary one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_ipv6: Option<bool>,
    /// Idle timeouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking_specification: Option<ConnectionTracking>,
}

/// `ConnectionTrackingSpecification`, in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ConnectionTracking {
    /// Established TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    /// UDP streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    /// Single UDP request-response flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

/// `CpuOptions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CpuOptions {
    /// `enabled` or `disabled`.
    pub nested_virtualization: &'static str,
}

/// `CapacityReservationSpecification`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Reservation {
    /// `none` or `capacity-reservations-only`.
    pub capacity_reservation_preference: &'static str,
    /// The only reservation to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_reservation_target: Option<ReservationTarget>,
}

/// `CapacityReservationTarget`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReservationTarget {
    /// `cr-...`.
    pub capacity_reservation_id: String,
}

/// `InstanceMarketOptions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct MarketOptions {
    /// `capacity-block` or `interruptible-capacity-reservation`.
    pub market_type: &'static str,
}

impl From<&LaunchTemplateSpec> for CreateLaunchTemplate {
    fn from(spec: &LaunchTemplateSpec) -> Self {
        Self {
            launch_template_name: spec.name.clone(),
            launch_template_data: LaunchTemplateData::from(spec),
            tag_specifications: vec![tag_specification("launch-template", &spec.tags)],
        }
    }
}

impl From<&LaunchTemplateSpec> for LaunchTemplateData {
    fn from(spec: &LaunchTemplateSpec) -> Self {
        let spot = (spec.capacity_type == CapacityType::Spot).then_some("spot-instances-request");
        let resources = ["network-interface"].into_iter().chain(spot);
        let (capacity_reservation_specification, instance_market_options) = reservation(spec.reservation.as_ref());
        Self {
            image_id: spec.image_id.clone(),
            user_data: STANDARD.encode(&spec.user_data),
            iam_instance_profile: InstanceProfileName { name: spec.instance_profile.clone() },
            block_device_mappings: spec.block_devices.iter().map(device).collect(),
            metadata_options: metadata(&spec.metadata),
            monitoring: Enabled { enabled: spec.detailed_monitoring },
            placement: Placement {
                tenancy: spec.tenancy.clone(),
                group_id: spec.placement_group_id.clone(),
                partition_number: spec.partition.map(small),
            },
            network_interfaces: spec.network_interfaces.iter().map(interface).collect(),
            cpu_options: spec
                .nested_virtualization
                .map(|on| CpuOptions { nested_virtualization: if on { "enabled" } else { "disabled" } }),
            enclave_options: spec.enclave.then_some(Enabled { enabled: true }),
            capacity_reservation_specification,
            instance_market_options,
            tag_specifications: resources.map(|resource| tag_specification(resource, &spec.tags)).collect(),
        }
    }
}

fn reservation(spec: Option<&ReservationSpec>) -> (Option<Reservation>, Option<MarketOptions>) {
    match spec {
        None => (None, None),
        Some(ReservationSpec::Avoid) => {
            let avoid = Reservation { capacity_reservation_preference: "none", capacity_reservation_target: None };
            (Some(avoid), None)
        }
        Some(ReservationSpec::Target { id, market_type }) => {
            let only = Reservation {
                capacity_reservation_preference: "capacity-reservations-only",
                capacity_reservation_target: Some(ReservationTarget { capacity_reservation_id: id.clone() }),
            };
            (Some(only), market_type.map(|market| MarketOptions { market_type: market.as_str() }))
        }
    }
}

fn metadata(options: &MetadataOptions) -> Metadata {
    Metadata {
        http_endpoint: options.http_endpoint.clone(),
        http_protocol_ipv6: options.http_protocol_ipv6.clone(),
        http_put_response_hop_limit: small(options.http_put_response_hop_limit),
        http_tokens: options.http_tokens.clone(),
        instance_metadata_tags: "disabled",
    }
}

fn device(device: &BlockDevice) -> BlockDeviceMapping {
    let ebs = Ebs {
        volume_size: device.size_gib.map(number),
        volume_type: device.volume_type.clone(),
        iops: device.iops.map(number),
        throughput: device.throughput.map(number),
        encrypted: device.encrypted,
        kms_key_id: device.kms_key_id.clone(),
        snapshot_id: device.snapshot_id.clone(),
        volume_initialization_rate: device.initialization_rate.map(number),
        delete_on_termination: device.delete_on_termination,
    };
    BlockDeviceMapping { device_name: device.device_name.clone(), ebs }
}

fn interface(interface: &NetworkInterface) -> Interface {
    let timeouts = [interface.tcp_established_timeout, interface.udp_stream_timeout, interface.udp_timeout];
    let tracking = timeouts.iter().any(Option::is_some).then(|| ConnectionTracking {
        tcp_established_timeout: interface.tcp_established_timeout.map(small),
        udp_stream_timeout: interface.udp_stream_timeout.map(small),
        udp_timeout: interface.udp_timeout.map(small),
    });
    Interface {
        network_card_index: small(interface.network_card_index),
        device_index: small(interface.device_index),
        interface_type: interface.interface_type.clone(),
        groups: interface.security_group_ids.clone(),
        associate_public_ip_address: interface.associate_public_ip,
        ipv4_prefix_count: interface.ipv4_prefix_count.map(small),
        ipv6_prefix_count: interface.ipv6_prefix_count.map(small),
        ipv6_address_count: interface.ipv6_address_count.map(small),
        primary_ipv6: interface.primary_ipv6,
        connection_tracking_specification: tracking,
    }
}
