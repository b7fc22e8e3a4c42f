//! Computes the total capacity of nodes.

use crate::settings::scaled_up;
use crate::{InstanceTypeFacts, NodeClassSettings, limits, pods};
use plimsoll_api::AmiFamily;
use plimsoll_api::ec2_node_class::{BlockDeviceMapping, InstanceStorePolicy, InterfaceType};
use plimsoll_model::quantity::Quantity;
use plimsoll_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};

pub(crate) const MIB: i64 = 1 << 20;
pub(crate) const GIB: i64 = 1 << 30;
/// Bytes per GB as used by EC2.
const GB: i64 = 1_000_000_000;
/// Memory that arm64 instances reserve for the contiguous memory allocator.
const ARM64_RESERVED_MIB: i64 = 64;
/// Default size of the volume for pods.
const DEFAULT_STORAGE: i64 = 20 * GIB;
const DEFAULT_STORAGE_WINDOWS: i64 = 50 * GIB;

/// Memory that a kernel may keep for itself and for crash dumps, beyond what [`is_plausible_memory`] allows in
/// proportion.
const MAX_KERNEL_MIB: i64 = 256;

/// Extended resources by GPU manufacturer, with EC2's names.
const GPU_RESOURCES: [(&str, &str); 3] =
    [("NVIDIA", "nvidia.com/gpu"), ("AMD", "amd.com/gpu"), ("Habana", "habana.ai/gaudi")];

/// Capacity of a node of this instance type.
pub(crate) fn capacity(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> Resources {
    let mut capacity = Resources::from([
        (CPU, facts.vcpus * 1000),
        (MEMORY, memory(facts, settings)),
        (EPHEMERAL_STORAGE, ephemeral_storage(facts, settings)),
        (PODS, pods::pods(facts, settings)),
    ]);
    for (name, amount) in devices(facts, settings) {
        if amount > 0 {
            capacity.set(name, amount);
        }
    }
    capacity
}

/// Whether a node of a type with `nominal_mib` MiB may have this memory: at most what EC2 states, at least three
/// quarters of it less 256 MiB. The hypervisor and the kernel of known types and images keep at most a fifth. A node
/// outside of these bounds reports nonsense or limits its memory itself, and says nothing about other nodes.
#[must_use]
pub fn is_plausible_memory(nominal_mib: i64, bytes: i64) -> bool {
    let nominal = nominal_mib.saturating_mul(MIB);
    let least = nominal / 4 * 3 - MAX_KERNEL_MIB * MIB;
    bytes > 0 && bytes >= least && bytes <= nominal
}

fn memory(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> i64 {
    let discovered = settings.discovered_memory.get(&facts.name).copied();
    if let Some(discovered) = discovered.filter(|bytes| is_plausible_memory(facts.memory_mib, *bytes)) {
        return discovered;
    }
    let reserved =
        if facts.architectures.first().is_some_and(|first| first == "arm64") { ARM64_RESERVED_MIB } else { 0 };
    let mib = facts.memory_mib - reserved;
    (mib - scaled_up(mib, settings.vm_memory_overhead_percent)) * MIB
}

fn ephemeral_storage(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> i64 {
    let family = settings.ami_family;
    // The images' scripts mount only NVMe disks, and those of Windows mount none.
    if settings.instance_store_policy == Some(InstanceStorePolicy::RAID0)
        && !family.is_windows()
        && let Some(store) = facts.instance_store.filter(|store| store.nvme)
        && store.total_gb > 0
    {
        return store.total_gb * GB;
    }
    let default = if family.is_windows() { DEFAULT_STORAGE_WINDOWS } else { DEFAULT_STORAGE };
    let mappings = &settings.block_device_mappings;
    if let Some(size) = mappings.iter().filter(|mapping| mapping.root_volume == Some(true)).find_map(size) {
        return size;
    }
    let mapping = match ephemeral_device(family) {
        Some(device) => mappings.iter().find(|mapping| mapping.device_name.as_deref() == Some(device)),
        // The layout of a custom image is unknown: its last volume is assumed to be the one for pods.
        None => mappings.last(),
    };
    mapping.and_then(size).unwrap_or(default)
}

/// Device of the volume for pods.
fn ephemeral_device(family: AmiFamily) -> Option<&'static str> {
    match family {
        AmiFamily::AL2 | AmiFamily::AL2023 => Some("/dev/xvda"),
        AmiFamily::Bottlerocket => Some("/dev/xvdb"),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => Some("/dev/sda1"),
        AmiFamily::Custom => None,
    }
}

fn size(mapping: &BlockDeviceMapping) -> Option<i64> {
    Quantity::parse(&mapping.ebs.as_ref()?.volume_size.as_ref()?.0).ok()?.value_ceil()
}

fn devices(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> Vec<(&'static str, i64)> {
    let mut devices: Vec<(&str, i64)> = GPU_RESOURCES
        .iter()
        .map(|(maker, resource)| {
            (*resource, facts.gpus.iter().filter(|gpu| gpu.manufacturer == *maker).map(|gpu| gpu.count).sum())
        })
        .collect();
    let neuron: i64 = facts.neuron_devices.iter().map(|device| device.count).sum();
    let cores = facts.neuron_devices.first().map_or(0, |device| device.count * device.cores_per_device);
    devices.push(("aws.amazon.com/neuron", neuron));
    devices.push(("aws.amazon.com/neuroncore", cores));
    devices.push(("vpc.amazonaws.com/efa", efa_interfaces(facts, settings)));
    devices.push(("vpc.amazonaws.com/pod-eni", limits::branch_interfaces(&facts.name).unwrap_or(0)));
    if settings.ami_family.is_windows() {
        devices.push(("vpc.amazonaws.com/PrivateIPv4Address", facts.network.ipv4_per_interface - 1));
    }
    devices
}

/// EFA interfaces of an instance: those of the node class, or else all that the type has. With a public address, an
/// instance cannot have several.
pub(crate) fn efa_interfaces(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> i64 {
    if settings.network_interfaces.is_empty() {
        let all = facts.network.efa_interfaces;
        return if settings.public_address && all > 1 { 0 } else { all };
    }
    let efa_only = settings
        .network_interfaces
        .iter()
        .filter(|interface| interface.interface_type == InterfaceType::EfaOnly)
        .count();
    i64::try_from(efa_only).unwrap_or(i64::MAX)
}
