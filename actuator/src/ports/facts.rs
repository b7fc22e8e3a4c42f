//! What EC2 says about instance types: raw facts, before any node class.

use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;

/// An instance type as DescribeInstanceTypes tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceTypeFacts {
    /// `c6g.large`.
    pub name: String,
    /// Architectures in EC2's words: `x86_64`, `arm64`.
    pub architectures: Vec<String>,
    /// Ways to buy it in EC2's words: `spot`, `on-demand`, `capacity-block`.
    pub usage_classes: Vec<String>,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Clock, MHz; 0 where unknown.
    pub sustained_clock_mhz: u32,
    /// Processor's maker: `intel`, `amd`, `aws`; empty where unknown.
    pub cpu_manufacturer: String,
    /// `nitro`, `xen`; empty for metal.
    pub hypervisor: String,
    /// Without hypervisor.
    pub bare_metal: bool,
    /// Its CPU is throttled to credits.
    pub burstable: bool,
    /// Of the current generation.
    pub current_generation: bool,
    /// Network cards in order of their index.
    pub network_cards: Vec<NetworkCardFacts>,
    /// Network interfaces in all.
    pub maximum_network_interfaces: u32,
    /// IPv4 addresses per interface.
    pub ipv4_addresses_per_interface: u32,
    /// Elastic fabric adapters, at most.
    pub efa_interfaces: u32,
    /// Traffic between instances is encrypted.
    pub encryption_in_transit: bool,
    /// Local disks, GB in all; 0 for none.
    pub local_storage_gb: u64,
    /// EBS bandwidth, Mbit/s; 0 where unknown.
    pub ebs_bandwidth_mbps: u32,
    /// GPUs by kind.
    pub gpus: Vec<GpuFacts>,
    /// Inference and training accelerators by kind.
    pub accelerators: Vec<GpuFacts>,
    /// Nitro Enclaves can be used.
    pub nitro_enclaves: bool,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkCardFacts {
    /// Index.
    pub index: u32,
    /// Interfaces it takes.
    pub maximum_interfaces: u32,
    /// Baseline bandwidth, Mbit/s; 0 where unknown.
    pub baseline_mbps: u32,
}

/// GPUs or accelerators of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuFacts {
    /// `T4`, `Inferentia`.
    pub name: String,
    /// `NVIDIA`, `AWS`.
    pub manufacturer: String,
    /// How many.
    pub count: u32,
    /// Memory of each, MiB; 0 where unknown.
    pub memory_mib: u64,
}

/// A type is offered in a zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeOffering {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone by name.
    pub zone: String,
}

/// The latest Spot price of a type in a zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpotPrice {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// Price.
    pub price: MicroUsdPerHour,
}

impl InstanceTypeFacts {
    /// Whether EC2 sells this type that way. A reservation holds On-Demand capacity.
    #[must_use]
    pub fn sells(&self, capacity_type: CapacityType) -> bool {
        let word = match capacity_type {
            CapacityType::Spot => "spot",
            CapacityType::OnDemand | CapacityType::Reserved => "on-demand",
        };
        self.usage_classes.iter().any(|class| class == word)
    }
}
