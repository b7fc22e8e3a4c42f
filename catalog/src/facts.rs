//! Facts of EC2 about instance types (DescribeInstanceTypes) that catalogs need.

use plimsoll_model::catalog::CapacityType;
use serde::{Deserialize, Serialize};

/// An instance type as described by EC2. Fields that EC2 omits are empty or 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceTypeFacts {
    /// Name, such as `m5.large`.
    pub name: String,
    /// Architectures in EC2's terms: `x86_64`, `arm64`, `i386`, `x86_64_mac`, `arm64_mac`.
    pub architectures: Vec<String>,
    /// Virtualization types: `hvm`, `paravirtual`.
    pub virtualization_types: Vec<String>,
    /// Usage classes: `on-demand`, `spot`, `capacity-block`.
    pub usage_classes: Vec<String>,
    /// Hypervisor: `nitro`, `xen`; empty for bare metal.
    pub hypervisor: String,
    /// Strategies of placement groups that are supported: `cluster`, `partition`, `spread`; empty if not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placement_strategies: Vec<String>,
    /// Default vCPUs.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mib: i64,
    /// CPU manufacturer: `Intel`, `AMD`, `AWS`.
    pub cpu_manufacturer: String,
    /// Sustained clock speed in MHz.
    pub sustained_clock_mhz: i64,
    /// Processor features, such as `nested-virtualization` and `amd-sev-snp`.
    pub processor_features: Vec<String>,
    /// Whether Nitro Enclaves are supported.
    pub nitro_enclaves: bool,
    /// Maximum EBS bandwidth in Mbps if the type is EBS-optimized by default; otherwise 0.
    pub ebs_bandwidth_mbps: i64,
    /// Network.
    pub network: NetworkFacts,
    /// Instance store disks, if there are any.
    pub instance_store: Option<InstanceStoreFacts>,
    /// GPUs, one entry per model.
    pub gpus: Vec<GpuFacts>,
    /// Neuron devices, one entry per model.
    pub neuron_devices: Vec<NeuronFacts>,
    /// Inference accelerators, one entry per model.
    pub inference_accelerators: Vec<AcceleratorFacts>,
}

/// Network of an instance type.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkFacts {
    /// Index of the default network card.
    pub default_card: usize,
    /// Maximum network interfaces of each card, by index of the card.
    pub cards: Vec<i64>,
    /// IPv4 addresses per interface, including its own.
    pub ipv4_per_interface: i64,
    /// Maximum EFA interfaces.
    pub efa_interfaces: i64,
    /// Whether ENA is supported or required.
    pub ena_supported: bool,
    /// Whether traffic between instances is encrypted.
    pub encryption_in_transit: bool,
}

/// Instance store disks of an instance type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStoreFacts {
    /// Total size in GB (10^9 bytes).
    pub total_gb: i64,
    /// Whether the disks are NVMe disks.
    pub nvme: bool,
}

/// GPUs of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuFacts {
    /// Name, such as `A100`.
    pub name: String,
    /// Manufacturer, such as `NVIDIA`.
    pub manufacturer: String,
    /// Number of GPUs; 0 if an instance has a fraction of one.
    pub count: i64,
    /// Memory per GPU in MiB.
    pub memory_mib: i64,
}

/// Neuron devices of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NeuronFacts {
    /// Name, such as `Inferentia2`.
    pub name: String,
    /// Number of devices.
    pub count: i64,
    /// Cores per device.
    pub cores_per_device: i64,
}

/// Inference accelerators of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorFacts {
    /// Name, such as `Inferentia`.
    pub name: String,
    /// Manufacturer, such as `AWS`.
    pub manufacturer: String,
    /// Number of devices.
    pub count: i64,
}

impl InstanceTypeFacts {
    /// `amd64` or `arm64`; `None` if the type cannot be a node.
    #[must_use]
    pub fn architecture(&self) -> Option<&'static str> {
        if !self.virtualization_types.iter().any(|virtualization| virtualization == "hvm") {
            return None;
        }
        self.architectures.iter().find_map(|architecture| match architecture.as_str() {
            "x86_64" => Some("amd64"),
            "arm64" => Some("arm64"),
            _ => None,
        })
    }

    /// Whether EC2 sells this type with the capacity type. A reservation contains On-Demand capacity or is a Capacity
    /// Block.
    #[must_use]
    pub fn sells(&self, capacity_type: CapacityType) -> bool {
        let usage_classes: &[&str] = match capacity_type {
            CapacityType::Spot => &["spot"],
            CapacityType::OnDemand => &["on-demand"],
            CapacityType::Reserved => &["on-demand", "capacity-block"],
        };
        self.usage_classes.iter().any(|class| usage_classes.contains(&class.as_str()))
    }

    /// Family of the type: the name before the dot, such as `m5`.
    #[must_use]
    pub fn family(&self) -> &str {
        self.name.split_once('.').map_or(&self.name, |(family, _)| family)
    }

    /// Size of the type: the name after the dot, such as `large`.
    #[must_use]
    pub fn size(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, size)| size)
    }
}
