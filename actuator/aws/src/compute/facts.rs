//! Converts DescribeInstanceTypes to the catalog's facts.

use aws_sdk_ec2::types::{
    EbsOptimizedSupport, EnaSupport, EphemeralNvmeSupport, InstanceTypeInfo, NetworkInfo, NitroEnclavesSupport,
};
use plimsoll_actuator::ports::InstanceTypeFacts;
use plimsoll_catalog::facts::{AcceleratorFacts, GpuFacts, InstanceStoreFacts, NetworkFacts, NeuronFacts};

/// `None` for an instance type without a name.
pub(super) fn facts(info: &InstanceTypeInfo) -> Option<InstanceTypeFacts> {
    let name = info.instance_type.as_ref()?.as_str().to_owned();
    let words = |words: &mut Vec<String>| {
        words.sort();
        std::mem::take(words)
    };
    let processor = info.processor_info.as_ref();
    let mut usage: Vec<String> = info.supported_usage_classes().iter().map(|it| it.as_str().to_owned()).collect();
    let features = processor.map(|it| it.supported_features()).unwrap_or_default();
    let mut features: Vec<String> = features.iter().map(|it| it.as_str().to_owned()).collect();
    let architectures = processor.map(|it| it.supported_architectures()).unwrap_or_default();
    Some(InstanceTypeFacts {
        name,
        architectures: architectures.iter().map(|it| it.as_str().to_owned()).collect(),
        virtualization_types: info.supported_virtualization_types().iter().map(|it| it.as_str().to_owned()).collect(),
        usage_classes: words(&mut usage),
        hypervisor: info.hypervisor.as_ref().map(|it| it.as_str().to_owned()).unwrap_or_default(),
        placement_strategies: info
            .placement_group_info
            .as_ref()
            .map(|it| it.supported_strategies().iter().map(|strategy| strategy.as_str().to_owned()).collect())
            .unwrap_or_default(),
        vcpus: info.v_cpu_info.as_ref().and_then(|it| it.default_v_cpus).map_or(0, i64::from),
        memory_mib: info.memory_info.as_ref().and_then(|it| it.size_in_mib).unwrap_or(0),
        cpu_manufacturer: processor.and_then(|it| it.manufacturer.clone()).unwrap_or_default(),
        sustained_clock_mhz: processor.and_then(|it| it.sustained_clock_speed_in_ghz).map_or(0, mhz),
        processor_features: words(&mut features),
        nitro_enclaves: info.nitro_enclaves_support == Some(NitroEnclavesSupport::Supported),
        ebs_bandwidth_mbps: ebs_bandwidth(info),
        network: info.network_info.as_ref().map(network).unwrap_or_default(),
        instance_store: instance_store(info),
        gpus: gpus(info),
        neuron_devices: neuron(info),
        inference_accelerators: accelerators(info),
    })
}

fn count(value: Option<i32>) -> i64 {
    value.map_or(0, i64::from)
}

fn mhz(ghz: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "clocks are some GHz")]
    let mhz = (ghz * 1000.0).round() as i64;
    mhz
}

/// Only for types that are EBS-optimized by default.
fn ebs_bandwidth(info: &InstanceTypeInfo) -> i64 {
    let Some(ebs) = &info.ebs_info else { return 0 };
    if ebs.ebs_optimized_support != Some(EbsOptimizedSupport::Default) {
        return 0;
    }
    count(ebs.ebs_optimized_info.as_ref().and_then(|it| it.maximum_bandwidth_in_mbps))
}

fn network(info: &NetworkInfo) -> NetworkFacts {
    let mut cards: Vec<_> = info.network_cards().iter().collect();
    cards.sort_by_key(|card| card.network_card_index);
    NetworkFacts {
        default_card: usize::try_from(info.default_network_card_index.unwrap_or(0)).unwrap_or(0),
        cards: cards.into_iter().map(|card| count(card.maximum_network_interfaces)).collect(),
        ipv4_per_interface: count(info.ipv4_addresses_per_interface),
        efa_interfaces: count(info.efa_info.as_ref().and_then(|it| it.maximum_efa_interfaces)),
        ena_supported: matches!(info.ena_support, Some(EnaSupport::Supported | EnaSupport::Required)),
        encryption_in_transit: info.encryption_in_transit_supported.unwrap_or(false),
    }
}

fn instance_store(info: &InstanceTypeInfo) -> Option<InstanceStoreFacts> {
    let storage = info.instance_storage_info.as_ref()?;
    let nvme = storage.nvme_support.as_ref().is_some_and(|support| *support != EphemeralNvmeSupport::Unsupported);
    Some(InstanceStoreFacts { total_gb: storage.total_size_in_gb.unwrap_or(0), nvme })
}

fn gpus(info: &InstanceTypeInfo) -> Vec<GpuFacts> {
    let gpus = info.gpu_info.as_ref().map(|it| it.gpus()).unwrap_or_default();
    gpus.iter()
        .map(|gpu| GpuFacts {
            name: gpu.name.clone().unwrap_or_default(),
            manufacturer: gpu.manufacturer.clone().unwrap_or_default(),
            count: count(gpu.count),
            memory_mib: count(gpu.memory_info.as_ref().and_then(|it| it.size_in_mib)),
        })
        .collect()
}

fn neuron(info: &InstanceTypeInfo) -> Vec<NeuronFacts> {
    let devices = info.neuron_info.as_ref().map(|it| it.neuron_devices()).unwrap_or_default();
    devices
        .iter()
        .map(|device| NeuronFacts {
            name: device.name.clone().unwrap_or_default(),
            count: count(device.count),
            cores_per_device: count(device.core_info.as_ref().and_then(|it| it.count)),
        })
        .collect()
}

fn accelerators(info: &InstanceTypeInfo) -> Vec<AcceleratorFacts> {
    let accelerators = info.inference_accelerator_info.as_ref().map(|it| it.accelerators()).unwrap_or_default();
    accelerators
        .iter()
        .map(|it| AcceleratorFacts {
            name: it.name.clone().unwrap_or_default(),
            manufacturer: it.manufacturer.clone().unwrap_or_default(),
            count: count(it.count),
        })
        .collect()
}
