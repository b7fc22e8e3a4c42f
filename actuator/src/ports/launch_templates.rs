//! Launch templates.

use super::Tags;
use plimsoll_model::catalog::CapacityType;
use serde::{Deserialize, Serialize};

/// All that a launch template holds; its name derives from it, so an existing name is the same template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Metrics every minute.
    pub detailed_monitoring: bool,
    /// Nested virtualisation, where the node class says so.
    pub nested_virtualization: Option<bool>,
    /// Nitro Enclaves.
    pub enclave: bool,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// Placement group by id.
    pub placement_group_id: Option<String>,
    /// Partition of the placement group.
    pub partition: Option<u32>,
    /// At least one.
    pub network_interfaces: Vec<NetworkInterface>,
    /// How it will be bought: Spot requests get tags of their own.
    pub capacity_type: CapacityType,
    /// Use of reservations; `None` leaves it to EC2.
    pub reservation: Option<ReservationSpec>,
    /// Tags of the template, of network interfaces and of Spot requests.
    pub tags: Tags,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// `/dev/xvda`.
    pub device_name: String,
    /// GiB; `None` takes the snapshot's.
    pub size_gib: Option<u64>,
    /// `gp3`.
    pub volume_type: Option<String>,
    /// Input and output operations per second.
    pub iops: Option<u64>,
    /// MiB/s.
    pub throughput: Option<u64>,
    /// Encrypted.
    pub encrypted: Option<bool>,
    /// Key.
    pub kms_key_id: Option<String>,
    /// Snapshot.
    pub snapshot_id: Option<String>,
    /// Rate at which a snapshot is loaded, MiB/s.
    pub initialization_rate: Option<u64>,
    /// Deleted with its instance.
    pub delete_on_termination: Option<bool>,
}

/// Instance metadata service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataOptions {
    /// `enabled` or `disabled`.
    pub http_endpoint: String,
    /// `enabled` or `disabled`; `None` where the region does not know it.
    pub http_protocol_ipv6: Option<String>,
    /// Hops.
    pub http_put_response_hop_limit: u32,
    /// `required` or `optional`.
    pub http_tokens: String,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkInterface {
    /// Card.
    pub network_card_index: u32,
    /// Device.
    pub device_index: u32,
    /// `interface`, `efa`, `efa-only`; `None` leaves it to EC2.
    pub interface_type: Option<String>,
    /// Security groups.
    pub security_group_ids: Vec<String>,
    /// Public address; `None` takes the subnet's setting.
    pub associate_public_ip: Option<bool>,
    /// IPv4 prefixes.
    pub ipv4_prefix_count: Option<u32>,
    /// IPv6 prefixes.
    pub ipv6_prefix_count: Option<u32>,
    /// IPv6 addresses.
    pub ipv6_address_count: Option<u32>,
    /// The first IPv6 address stays the same.
    pub primary_ipv6: Option<bool>,
    /// Time-out of idle established TCP connections, seconds.
    pub tcp_established_timeout: Option<u32>,
    /// Time-out of idle UDP streams, seconds.
    pub udp_stream_timeout: Option<u32>,
    /// Time-out of single UDP exchanges, seconds.
    pub udp_timeout: Option<u32>,
}

/// How reservations are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationSpec {
    /// None, not even open ones.
    Avoid,
    /// Only this one.
    Target {
        /// `cr-...`.
        id: String,
        /// `capacity-block` or `interruptible-capacity-reservation`.
        market_type: Option<String>,
    },
}

/// A launch template that exists.
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

/// Which launch templates to list: all with these tags.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchTemplateFilter {
    /// Tags that must be there with that value.
    pub tags: Tags,
}
