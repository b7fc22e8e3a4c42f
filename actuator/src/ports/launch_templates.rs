//! Launch templates.

use super::Tags;
use plimsoll_model::catalog::CapacityType;
use serde::{Deserialize, Serialize};

/// Content of a launch template. The name is derived from the content, so an existing name means the same template.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaunchTemplateSpec {
    /// Name.
    pub name: String,
    /// Image.
    pub image_id: String,
    /// User data as text; the adapter encodes it.
    pub user_data: String,
    /// Instance profile by name.
    pub instance_profile: String,
    /// Disks.
    pub block_devices: Vec<BlockDevice>,
    /// Metadata service.
    pub metadata: MetadataOptions,
    /// Detailed monitoring (metrics every minute).
    pub detailed_monitoring: bool,
    /// Nested virtualization, if the node class sets it.
    pub nested_virtualization: Option<bool>,
    /// Nitro Enclaves.
    pub enclave: bool,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// Placement group by id.
    pub placement_group_id: Option<String>,
    /// Partition of the placement group.
    pub partition: Option<u32>,
    /// Network interfaces; at least one.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Capacity type; Spot requests get their own tags.
    pub capacity_type: CapacityType,
    /// Use of capacity reservations; `None` leaves it to EC2.
    pub reservation: Option<ReservationSpec>,
    /// Tags of the template, of network interfaces and of Spot requests.
    pub tags: Tags,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockDevice {
    /// `/dev/xvda`.
    pub device_name: String,
    /// Size in GiB; `None` uses the snapshot's size.
    pub size_gib: Option<u64>,
    /// `gp3`.
    pub volume_type: Option<String>,
    /// Input and output operations per second.
    pub iops: Option<u64>,
    /// MiB/s.
    pub throughput: Option<u64>,
    /// Encrypted.
    pub encrypted: Option<bool>,
    /// KMS key.
    pub kms_key_id: Option<String>,
    /// Snapshot.
    pub snapshot_id: Option<String>,
    /// Rate at which a snapshot is loaded, MiB/s.
    pub initialization_rate: Option<u64>,
    /// Deleted with its instance.
    pub delete_on_termination: Option<bool>,
}

/// Instance metadata service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MetadataOptions {
    /// `enabled` or `disabled`.
    pub http_endpoint: String,
    /// `enabled` or `disabled`; `None` if the region does not support the setting.
    pub http_protocol_ipv6: Option<String>,
    /// Hop limit.
    pub http_put_response_hop_limit: u32,
    /// `required` or `optional`.
    pub http_tokens: String,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkInterface {
    /// Network card index.
    pub network_card_index: u32,
    /// Device index.
    pub device_index: u32,
    /// `interface`, `efa`, `efa-only`; `None` leaves it to EC2.
    pub interface_type: Option<String>,
    /// Security groups.
    pub security_group_ids: Vec<String>,
    /// Public IP address; `None` uses the subnet's setting.
    pub associate_public_ip: Option<bool>,
    /// IPv4 prefixes.
    pub ipv4_prefix_count: Option<u32>,
    /// IPv6 prefixes.
    pub ipv6_prefix_count: Option<u32>,
    /// IPv6 addresses.
    pub ipv6_address_count: Option<u32>,
    /// The first IPv6 address is the primary one and never changes.
    pub primary_ipv6: Option<bool>,
    /// Idle timeout of established TCP connections, in seconds.
    pub tcp_established_timeout: Option<u32>,
    /// Idle timeout of UDP streams, in seconds.
    pub udp_stream_timeout: Option<u32>,
    /// Idle timeout of single UDP request-response flows, in seconds.
    pub udp_timeout: Option<u32>,
}

/// How capacity reservations are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationSpec {
    /// Use none, not even open ones.
    Avoid,
    /// Use only this one.
    Target {
        /// `cr-...`.
        id: String,
        /// Unless it is an ordinary one.
        market_type: Option<MarketType>,
    },
}

/// What EC2 calls the market of capacity reservations that are no ordinary ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarketType {
    /// A Capacity Block.
    CapacityBlock,
    /// Its owner may take the instances back.
    InterruptibleCapacityReservation,
}

impl MarketType {
    /// EC2's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CapacityBlock => "capacity-block",
            Self::InterruptibleCapacityReservation => "interruptible-capacity-reservation",
        }
    }
}

/// An existing launch template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchTemplate {
    /// Name.
    pub name: String,
    /// `lt-...`.
    pub id: String,
    /// Latest version.
    pub version: u64,
    /// Tags.
    pub tags: Tags,
}

/// Filter for listing launch templates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchTemplateFilter {
    /// Tags that must be present with that value.
    pub tags: Tags,
}
