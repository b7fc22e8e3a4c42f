//! What a node class says about its nodes' capacity.

use plimsoll_api::ec2_node_class::{BlockDeviceMapping, EnabledOrDisabled, InstanceStorePolicy, NetworkInterface};
use plimsoll_api::{AmiFamily, EC2NodeClassSpec};
use plimsoll_model::quantity::Quantity;
use plimsoll_model::resources::Resources;
use std::collections::BTreeMap;

/// Karpenter's default for [`NodeClassSettings::vm_memory_overhead_percent`].
pub const DEFAULT_VM_MEMORY_OVERHEAD_PERCENT: f64 = 0.075;

/// What decides how an instance type looks as a node: the part of a node class that a catalog needs, and the installation's options.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeClassSettings {
    /// Image family.
    pub ami_family: AmiFamily,
    /// Most pods on a node.
    pub max_pods: Option<i64>,
    /// Most pods on a node for each of its vCPUs; 0 means no such limit.
    pub pods_per_core: i64,
    /// Kept for Kubernetes; each entry stands for the computed one.
    pub kube_reserved: Resources,
    /// Kept for the system.
    pub system_reserved: Resources,
    /// Memory below which pods are evicted at once, instead of 100Mi.
    pub eviction_memory: Option<Threshold>,
    /// Storage below which pods are evicted at once, instead of 10%.
    pub eviction_storage: Option<Threshold>,
    /// Volumes; none means the family's own.
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// What is done with disks of the instance type.
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Network interfaces; none means the usual one.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Whether instances must be able to run virtual machines.
    pub nested_virtualization: bool,
    /// Whether timeouts of idle connections are set, which only Nitro knows.
    pub connection_tracking: bool,
    /// Part of the memory that the hypervisor is expected to take, 0 to 1.
    pub vm_memory_overhead_percent: f64,
    /// Network interfaces that pods do not get addresses of.
    pub reserved_enis: i64,
    /// Memory capacity in bytes that nodes of a type were seen to have, by type; stands for the estimate.
    pub discovered_memory: BTreeMap<String, i64>,
}

impl Default for NodeClassSettings {
    /// Amazon Linux 2023 with nothing else set.
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
            nested_virtualization: false,
            connection_tracking: false,
            vm_memory_overhead_percent: DEFAULT_VM_MEMORY_OVERHEAD_PERCENT,
            reserved_enis: 0,
            discovered_memory: BTreeMap::new(),
        }
    }
}

impl From<&EC2NodeClassSpec> for NodeClassSettings {
    /// Kubelet settings that are not valid count as not there: the node class's own check names them.
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
            nested_virtualization: nested == Some(EnabledOrDisabled::Enabled),
            connection_tracking: spec.connection_tracking.is_some(),
            ..Self::default()
        }
    }
}

/// An eviction threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// Bytes.
    Amount(i64),
    /// Part of the capacity, 0 to 1; the whole means that nothing is evicted.
    Part(f64),
}

impl Threshold {
    /// From the kubelet's text, such as `100Mi` or `5%`.
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

    /// In bytes, rounded up.
    #[must_use]
    pub fn of(self, capacity: i64) -> i64 {
        match self {
            Self::Amount(bytes) => bytes,
            Self::Part(part) if part >= 1.0 => 0,
            Self::Part(part) => scaled_up(capacity, part),
        }
    }
}

/// `amount` times `factor`, rounded up.
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

/// The amount of resource `name` that `text` says: `cpu` in millicores, others in whole units, rounded up.
pub(crate) fn amount(name: &str, text: &str) -> Option<i64> {
    Quantity::parse(text).ok()?.amount_of(name)
}
