//! What EC2 says about an instance type (DescribeInstanceTypes), as far as a catalog needs it.

use plimsoll_model::catalog::CapacityType;
use serde::{Deserialize, Serialize};

/// An instance type as EC2 describes it. Fields that EC2 leaves out are empty or 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceTypeFacts {
    /// `m5.large`.
    pub name: String,
    /// EC2's words: `x86_64`, `arm64`, `i386`, `x86_64_mac`, `arm64_mac`.
    pub architectures: Vec<String>,
    /// `hvm`, `paravirtual`.
    pub virtualization_types: Vec<String>,
    /// `on-demand`, `spot`, `capacity-block`.
    pub usage_classes: Vec<String>,
    /// `nitro`, `xen`; empty for bare metal.
    pub hypervisor: String,
    /// Default vCPUs.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mib: i64,
    /// `Intel`, `AMD`, `AWS`.
    pub cpu_manufacturer: String,
    /// Sustained clock speed in MHz.
    pub sustained_clock_mhz: i64,
    /// `nested-virtualization`, `amd-sev-snp`.
    pub processor_features: Vec<String>,
    /// Whether it has Nitro Enclaves.
    pub nitro_enclaves: bool,
    /// Maximum EBS bandwidth in Mbps, where it is EBS-optimised by default; otherwise 0.
    pub ebs_bandwidth_mbps: i64,
    /// Its network.
    pub network: NetworkFacts,
    /// Disks that belong to it, if it has any.
    pub instance_store: Option<InstanceStoreFacts>,
    /// Its GPUs, one entry a model.
    pub gpus: Vec<GpuFacts>,
    /// Its Neuron devices, one entry a model.
    pub neuron_devices: Vec<NeuronFacts>,
    /// Its inference accelerators, one entry a model.
    pub inference_accelerators: Vec<AcceleratorFacts>,
}

/// Network of an instance type.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkFacts {
    /// Index of the default network card.
    pub default_card: usize,
    /// Most network interfaces of each card, by the card's index.
    pub cards: Vec<i64>,
    /// IPv4 addresses of one interface, its own included.
    pub ipv4_per_interface: i64,
    /// Most EFA interfaces.
    pub efa_interfaces: i64,
    /// Whether ENA is supported or required.
    pub ena_supported: bool,
    /// Whether traffic between instances is encrypted.
    pub encryption_in_transit: bool,
}

/// Disks of an instance type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStoreFacts {
    /// Size of all of them, in GB (10^9 bytes).
    pub total_gb: i64,
    /// Whether they are NVMe disks.
    pub nvme: bool,
}

/// GPUs of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuFacts {
    /// `A100`.
    pub name: String,
    /// `NVIDIA`.
    pub manufacturer: String,
    /// How many; 0 where an instance has a part of one.
    pub count: i64,
    /// Memory of one, in MiB.
    pub memory_mib: i64,
}

/// Neuron devices of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NeuronFacts {
    /// `Inferentia2`.
    pub name: String,
    /// How many.
    pub count: i64,
    /// Cores of one.
    pub cores_per_device: i64,
}

/// Inference accelerators of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorFacts {
    /// `Inferentia`.
    pub name: String,
    /// `AWS`.
    pub manufacturer: String,
    /// How many.
    pub count: i64,
}

impl InstanceTypeFacts {
    /// `amd64` or `arm64`; `None` for what cannot be a node.
    #[must_use]
    pub fn architecture(&self) -> Option<&'static str> {
        if !self.virtualization_types.iter().any(|it| it == "hvm") {
            return None;
        }
        self.architectures.iter().find_map(|architecture| match architecture.as_str() {
            "x86_64" => Some("amd64"),
            "arm64" => Some("arm64"),
            _ => None,
        })
    }

    /// Whether EC2 sells this type that way. A reservation holds On-Demand capacity.
    #[must_use]
    pub fn sells(&self, capacity_type: CapacityType) -> bool {
        let word = match capacity_type {
            CapacityType::Spot => "spot",
            CapacityType::OnDemand | CapacityType::Reserved => "on-demand",
        };
        self.usage_classes.iter().any(|class| class == word)
    }

    /// The part of the name before the dot: `m5`.
    #[must_use]
    pub fn family(&self) -> &str {
        self.name.split_once('.').map_or(&self.name, |(family, _)| family)
    }

    /// The part of the name after the dot: `large`.
    #[must_use]
    pub fn size(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, size)| size)
    }
}
