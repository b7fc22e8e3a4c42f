//! Output of DescribeInstanceTypes as printed by the AWS CLI.
//!
//! The types of numbers are larger than any instance type needs, and small enough that amounts in bytes and products of
//! two of them do not overflow.

use crate::facts::{AcceleratorFacts, GpuFacts, InstanceStoreFacts, InstanceTypeFacts, NetworkFacts, NeuronFacts};
use serde::Deserialize;

/// An element of `InstanceTypes`. Fields that catalogs do not need are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Description {
    instance_type: String,
    #[serde(default)]
    supported_virtualization_types: Vec<String>,
    #[serde(default)]
    supported_usage_classes: Vec<String>,
    #[serde(default)]
    hypervisor: String,
    #[serde(default)]
    nitro_enclaves_support: String,
    #[serde(default)]
    placement_group_info: PlacementGroupInfo,
    processor_info: ProcessorInfo,
    #[serde(rename = "VCpuInfo")]
    vcpu_info: VcpuInfo,
    memory_info: MemoryInfo,
    network_info: NetworkInfo,
    #[serde(default)]
    ebs_info: EbsInfo,
    instance_storage_info: Option<InstanceStorageInfo>,
    gpu_info: Option<GpuInfo>,
    neuron_info: Option<NeuronInfo>,
    inference_accelerator_info: Option<InferenceAcceleratorInfo>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct PlacementGroupInfo {
    supported_strategies: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessorInfo {
    supported_architectures: Vec<String>,
    #[serde(default)]
    manufacturer: String,
    #[serde(default)]
    sustained_clock_speed_in_ghz: f64,
    #[serde(default)]
    supported_features: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct VcpuInfo {
    #[serde(rename = "DefaultVCpus")]
    default: u32,
}

#[derive(Debug, Deserialize)]
struct MemoryInfo {
    #[serde(rename = "SizeInMiB")]
    size_mib: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkInfo {
    #[serde(default)]
    default_network_card_index: usize,
    network_cards: Vec<NetworkCard>,
    #[serde(rename = "Ipv4AddressesPerInterface")]
    ipv4_per_interface: u16,
    efa_info: Option<EfaInfo>,
    #[serde(default)]
    ena_support: String,
    #[serde(default)]
    encryption_in_transit_supported: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkCard {
    network_card_index: usize,
    maximum_network_interfaces: u16,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EfaInfo {
    maximum_efa_interfaces: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EbsInfo {
    #[serde(default)]
    ebs_optimized_support: String,
    ebs_optimized_info: Option<EbsOptimizedInfo>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EbsOptimizedInfo {
    maximum_bandwidth_in_mbps: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceStorageInfo {
    #[serde(rename = "TotalSizeInGB")]
    total_size_gb: u32,
    nvme_support: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GpuInfo {
    gpus: Vec<Gpu>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Gpu {
    name: String,
    manufacturer: String,
    #[serde(default)]
    count: u16,
    memory_info: MemoryInfo,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NeuronInfo {
    neuron_devices: Vec<NeuronDevice>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NeuronDevice {
    name: String,
    count: u16,
    core_info: CoreInfo,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CoreInfo {
    count: u16,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InferenceAcceleratorInfo {
    accelerators: Vec<Accelerator>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Accelerator {
    name: String,
    manufacturer: String,
    count: u16,
}

impl From<Description> for InstanceTypeFacts {
    fn from(it: Description) -> Self {
        let mut usage_classes = it.supported_usage_classes;
        usage_classes.sort();
        let mut processor_features = it.processor_info.supported_features;
        processor_features.sort();
        let ebs_bandwidth = it.ebs_info.ebs_optimized_info.filter(|_| it.ebs_info.ebs_optimized_support == "default");
        #[expect(clippy::cast_possible_truncation, reason = "clock speeds are a few thousand MHz; the cast saturates")]
        let sustained_clock_mhz = (it.processor_info.sustained_clock_speed_in_ghz * 1000.0).round() as i64;
        Self {
            name: it.instance_type,
            architectures: it.processor_info.supported_architectures,
            virtualization_types: it.supported_virtualization_types,
            usage_classes,
            hypervisor: it.hypervisor,
            placement_strategies: it.placement_group_info.supported_strategies,
            vcpus: it.vcpu_info.default.into(),
            memory_mib: it.memory_info.size_mib.into(),
            cpu_manufacturer: it.processor_info.manufacturer,
            sustained_clock_mhz,
            processor_features,
            nitro_enclaves: it.nitro_enclaves_support == "supported",
            ebs_bandwidth_mbps: ebs_bandwidth.map_or(0, |info| info.maximum_bandwidth_in_mbps.into()),
            network: it.network_info.into(),
            instance_store: it.instance_storage_info.map(|info| InstanceStoreFacts {
                total_gb: info.total_size_gb.into(),
                nvme: info.nvme_support.is_some_and(|support| support != "unsupported"),
            }),
            gpus: it.gpu_info.into_iter().flat_map(|info| info.gpus).map(Into::into).collect(),
            neuron_devices: it.neuron_info.into_iter().flat_map(|info| info.neuron_devices).map(Into::into).collect(),
            inference_accelerators: it
                .inference_accelerator_info
                .into_iter()
                .flat_map(|info| info.accelerators)
                .map(Into::into)
                .collect(),
        }
    }
}

impl From<NetworkInfo> for NetworkFacts {
    fn from(mut it: NetworkInfo) -> Self {
        it.network_cards.sort_by_key(|card| card.network_card_index);
        Self {
            default_card: it.default_network_card_index,
            cards: it.network_cards.iter().map(|card| card.maximum_network_interfaces.into()).collect(),
            ipv4_per_interface: it.ipv4_per_interface.into(),
            efa_interfaces: it.efa_info.map_or(0, |info| info.maximum_efa_interfaces.into()),
            ena_supported: matches!(it.ena_support.as_str(), "supported" | "required"),
            encryption_in_transit: it.encryption_in_transit_supported,
        }
    }
}

impl From<Gpu> for GpuFacts {
    fn from(it: Gpu) -> Self {
        let (count, memory_mib) = (it.count.into(), it.memory_info.size_mib.into());
        Self { name: it.name, manufacturer: it.manufacturer, count, memory_mib }
    }
}

impl From<NeuronDevice> for NeuronFacts {
    fn from(it: NeuronDevice) -> Self {
        Self { name: it.name, count: it.count.into(), cores_per_device: it.core_info.count.into() }
    }
}

impl From<Accelerator> for AcceleratorFacts {
    fn from(it: Accelerator) -> Self {
        Self { name: it.name, manufacturer: it.manufacturer, count: it.count.into() }
    }
}
