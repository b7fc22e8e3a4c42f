//! Settings of a node class that affect the capacity of its nodes.

use crate::reservations::SelectedReservation;
use plimsoll_api::ec2_node_class::{
    BlockDeviceMapping, EnabledOrDisabled, InstanceStorePolicy, NetworkInterface, PlacementGroup,
};
use plimsoll_api::{AmiFamily, EC2NodeClassSpec};
use plimsoll_model::quantity::Quantity;
use plimsoll_model::resources::Resources;
use std::collections::BTreeMap;

/// Karpenter's default for [`NodeClassSettings::vm_memory_overhead_percent`].
pub const DEFAULT_VM_MEMORY_OVERHEAD_PERCENT: f64 = 0.075;

/// The parts of a node class and of the installation's options that a catalog depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeClassSettings {
    /// Image family.
    pub ami_family: AmiFamily,
    /// Maximum number of pods per node.
    pub max_pods: Option<i64>,
    /// Maximum number of pods per vCPU; 0 means no such limit.
    pub pods_per_core: i64,
    /// Resources reserved for Kubernetes. Each entry overrides the computed value.
    pub kube_reserved: Resources,
    /// Resources reserved for the system.
    pub system_reserved: Resources,
    /// Hard eviction threshold of memory; the default is 100Mi.
    pub eviction_memory: Option<Threshold>,
    /// Hard eviction threshold of storage; the default is 10%.
    pub eviction_storage: Option<Threshold>,
    /// Volumes; empty means the family's default.
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// Usage of instance store disks.
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Network interfaces; empty means the default interface.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Whether instances have a public address, which EC2 gives only to instances with a single network interface.
    pub public_address: bool,
    /// Whether instances must support nested virtualization.
    pub nested_virtualization: bool,
    /// The placement group of its nodes.
    pub placement_group: Option<PlacementGroup>,
    /// Whether connection tracking timeouts are set, which only Nitro supports.
    pub connection_tracking: bool,
    /// Whether the cluster uses IPv6, for which EKS needs Linux on Nitro.
    pub ipv6: bool,
    /// Fraction of the memory that the hypervisor is expected to use, 0 to 1.
    pub vm_memory_overhead_percent: f64,
    /// Number of network interfaces whose addresses are not used for pods.
    pub reserved_enis: i64,
    /// Observed memory capacity in bytes by instance type; overrides the estimate, if it is plausible.
    pub discovered_memory: BTreeMap<String, i64>,
    /// The capacity reservations that the node class selects.
    pub reservations: Vec<SelectedReservation>,
}

impl Default for NodeClassSettings {
    /// Amazon Linux 2023 without further settings.
    fn default() -> Self {
        Self {
            ami_family: AmiFamily::AL2023,
            max_pods: None,
            pods_per_core: 0,
            kube_reserved: Resources::new(),
            system_reserved: Resources::new(),
            eviction_memory: None,
            eviction_storage: None,
            block_device_mappings: Vec::new(),
            instance_store_policy: None,
            network_interfaces: Vec::new(),
            public_address: false,
            nested_virtualization: false,
            placement_group: None,
            connection_tracking: false,
            ipv6: false,
            vm_memory_overhead_percent: DEFAULT_VM_MEMORY_OVERHEAD_PERCENT,
            reserved_enis: 0,
            discovered_memory: BTreeMap::new(),
            reservations: Vec::new(),
        }
    }
}

impl From<&EC2NodeClassSpec> for NodeClassSettings {
    /// Invalid kubelet settings are ignored; validation of the node class reports them.
    fn from(spec: &EC2NodeClassSpec) -> Self {
        let kubelet = spec.kubelet.clone().unwrap_or_default().settings();
        let threshold = |signal: &str| kubelet.eviction_hard.get(signal).and_then(|text| Threshold::parse(text));
        let nested = spec.cpu_options.as_ref().and_then(|options| options.nested_virtualization);
        Self {
            ami_family: spec.effective_ami_family(),
            max_pods: kubelet.max_pods.map(i64::from),
            pods_per_core: kubelet.pods_per_core.map_or(0, i64::from),
            kube_reserved: amounts(&kubelet.kube_reserved),
            system_reserved: amounts(&kubelet.system_reserved),
            eviction_memory: threshold("memory.available"),
            eviction_storage: threshold("nodefs.available"),
            block_device_mappings: spec.block_device_mappings.clone(),
            instance_store_policy: spec.instance_store_policy,
            network_interfaces: spec.network_interfaces.clone(),
            public_address: spec.associate_public_ip_address == Some(true),
            nested_virtualization: nested == Some(EnabledOrDisabled::Enabled),
            connection_tracking: spec.connection_tracking.is_some(),
            ..Self::default()
        }
    }
}

/// An eviction threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// Absolute threshold in bytes.
    Amount(i64),
    /// Fraction of the capacity, 0 to 1; 1 disables eviction.
    Part(f64),
}

impl Threshold {
    /// Parses the kubelet's format, such as `100Mi` or `5%`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.parse().ok()?;
                (0.0..=100.0).contains(&percent).then_some(Self::Part(percent / 100.0))
            }
            None => Some(Self::Amount(Quantity::parse(text).ok()?.value_ceil()?)),
        }
    }

    /// Returns the threshold in bytes, rounded up.
    #[must_use]
    pub fn of(self, capacity: i64) -> i64 {
        match self {
            Self::Amount(bytes) => bytes,
            Self::Part(part) if part >= 1.0 => 0,
            Self::Part(part) => scaled_up(capacity, part),
        }
    }
}

/// Multiplies `amount` by `factor`, rounded up.
pub(crate) fn scaled_up(amount: i64, factor: f64) -> i64 {
    #[expect(clippy::cast_precision_loss, reason = "sizes in bytes are far below 2^53")]
    let scaled = (amount as f64 * factor).ceil();
    #[expect(clippy::cast_possible_truncation, reason = "the factor is at most 1")]
    let whole = scaled as i64;
    whole
}

fn amounts(texts: &BTreeMap<String, String>) -> Resources {
    let parsed = texts.iter().filter_map(|(name, text)| Some((name.as_str(), amount(name, text)?)));
    parsed.collect()
}

/// Parses an amount of resource `name`: `cpu` in millicores, others in whole units, rounded up.
pub(crate) fn amount(name: &str, text: &str) -> Option<i64> {
    Quantity::parse(text).ok()?.amount_of(name)
}
