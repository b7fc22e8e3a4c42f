//! Drift hashes: objects that specify the same nodes have the same hash.
//!
//! The hashes equal those of Karpenter, so that Karpenter and Plimsoll can replace each other without replacing every
//! node. A hash is computed with FNV-1 (64 bits) over the structure of the object. Names of types and fields are
//! included, the order of lists and maps is not, and unset fields are omitted.

use crate::{
    EC2NodeClassSpec, GoDuration, NillableDuration, NodeClassRef, Taint,
    ec2_node_class::{
        BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, MetadataOptions, NetworkInterface,
        PlacementGroupSelector,
    },
    node_pool::NodeClaimTemplate,
};
use std::{collections::BTreeMap, time::Duration};

/// Version of [`node_pool`]: the value of annotation `karpenter.sh/nodepool-hash-version`.
pub const NODE_POOL_VERSION: &str = "v3";
/// Version of [`ec2_node_class`]: the value of annotation `karpenter.k8s.aws/ec2nodeclass-hash-version`.
pub const EC2_NODE_CLASS_VERSION: &str = "v6";

/// Hash of a pool's template, in decimal. Includes labels, annotations, taints, node class, grace period and expiry,
/// but not requirements. The template must have its defaults, as stored by the API server.
#[must_use]
pub fn node_pool(template: &NodeClaimTemplate) -> String {
    let labels: BTreeMap<&str, &str> = template.labels().collect();
    let annotations: BTreeMap<&str, &str> = template.annotations().collect();
    let mut metadata = Struct::new("ObjectMeta");
    metadata.field("Labels", map(&labels));
    metadata.field("Annotations", map(&annotations));
    let metadata_is_set = !labels.is_empty() || !annotations.is_empty();

    let mut spec = Struct::new("NodeClaimTemplateSpec");
    spec.field("Taints", list(&template.spec.taints, taint));
    spec.field("StartupTaints", list(&template.spec.startup_taints, taint));
    spec.field("NodeClassRef", Some(node_class_ref(&template.spec.node_class_ref)));
    spec.field("TerminationGracePeriod", template.spec.termination_grace_period.as_ref().map(go_duration));
    spec.field("ExpireAfter", template.spec.expire_after.as_ref().and_then(nillable_duration));

    let mut template_hash = Struct::new("NodeClaimTemplate");
    template_hash.field("ObjectMeta", metadata_is_set.then_some(metadata.0));
    template_hash.field("Spec", Some(spec.0));
    template_hash.0.to_string()
}

/// `timeAdded` is not part of the hash.
fn taint(taint: &Taint) -> u64 {
    let mut hash = Struct::new("Taint");
    hash.field("Key", plain_text(&taint.key));
    hash.field("Value", taint.value.as_deref().and_then(plain_text));
    hash.field("Effect", Some(text(plimsoll_model::taints::TaintEffect::from(taint.effect).as_str())));
    hash.0
}

fn node_class_ref(node_class: &NodeClassRef) -> u64 {
    let mut hash = Struct::new("NodeClassReference");
    hash.field("Kind", plain_text(&node_class.kind));
    hash.field("Name", plain_text(&node_class.name));
    hash.field("Group", plain_text(&node_class.group));
    hash.0
}

fn go_duration(duration: &GoDuration) -> u64 {
    let mut hash = Struct::new("Duration");
    let is_set = !duration.value().is_zero();
    hash.field("Duration", is_set.then(|| nanoseconds(duration.value())));
    hash.0
}

/// `Never` counts as unset.
fn nillable_duration(duration: &NillableDuration) -> Option<u64> {
    let mut hash = Struct::new("NillableDuration");
    hash.field("Duration", Some(nanoseconds(duration.value()?)));
    Some(hash.0)
}

fn nanoseconds(duration: Duration) -> u64 {
    // Durations are parsed as signed 64-bit nanoseconds, so the conversion cannot fail.
    int64(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// Hash of a node class, in decimal. Includes the launch settings of instances, but not the selectors of subnets,
/// security groups, images and reservations. `ca_bundle` is the cluster's CA in base64, or empty if unknown.
#[must_use]
pub fn ec2_node_class(spec: &EC2NodeClassSpec, ca_bundle: &str) -> String {
    let kubelet = spec.kubelet.clone().unwrap_or_default().canonical_json();
    let parts = [ec2_spec(spec), text(spec.effective_ami_family().as_str()), text(ca_bundle), text(&kubelet)];
    parts.into_iter().fold(0, |hash, part| hash ^ part).to_string()
}

fn ec2_spec(spec: &EC2NodeClassSpec) -> u64 {
    let mut hash = Struct::new("EC2NodeClassSpec");
    hash.field("PlacementGroupSelector", spec.placement_group_selector.as_ref().map(placement_group));
    hash.field("AssociatePublicIPAddress", spec.associate_public_ip_address.map(boolean));
    hash.field("UserData", optional_text(&spec.user_data));
    hash.field("Role", spec.role.as_deref().and_then(plain_text));
    hash.field("InstanceProfile", optional_text(&spec.instance_profile));
    hash.field("Tags", map(&spec.tags));
    hash.field("BlockDeviceMappings", list(&spec.block_device_mappings, block_device_mapping));
    hash.field("InstanceStorePolicy", spec.instance_store_policy.map(|_| text("RAID0")));
    hash.field("NetworkInterfaces", list(&spec.network_interfaces, network_interface));
    hash.field("DetailedMonitoring", spec.detailed_monitoring.map(boolean));
    hash.field("MetadataOptions", spec.metadata_options.as_ref().map(metadata_options));
    hash.field("ConnectionTracking", spec.connection_tracking.as_ref().map(connection_tracking));
    hash.field("Context", optional_text(&spec.context));
    hash.field("CPUOptions", spec.cpu_options.as_ref().map(cpu_options));
    hash.0
}

fn placement_group(selector: &PlacementGroupSelector) -> u64 {
    let mut hash = Struct::new("PlacementGroupSelector");
    hash.field("Name", optional_text(&selector.name));
    hash.field("ID", optional_text(&selector.id));
    hash.0
}

fn block_device_mapping(mapping: &BlockDeviceMapping) -> u64 {
    let mut hash = Struct::new("BlockDeviceMapping");
    hash.field("DeviceName", optional_text(&mapping.device_name));
    hash.field("EBS", mapping.ebs.as_ref().map(block_device));
    hash.field("RootVolume", mapping.root_volume.filter(|is_root| *is_root).map(boolean));
    hash.0
}

fn block_device(device: &BlockDevice) -> u64 {
    let mut hash = Struct::new("BlockDevice");
    hash.field("DeleteOnTermination", device.delete_on_termination.map(boolean));
    hash.field("Encrypted", device.encrypted.map(boolean));
    hash.field("IOPS", device.iops.map(int64));
    hash.field("KMSKeyID", optional_text(&device.kms_key_id));
    hash.field("SnapshotID", optional_text(&device.snapshot_id));
    hash.field("Throughput", device.throughput.map(int64));
    hash.field("VolumeInitializationRate", device.volume_initialization_rate.map(int32));
    hash.field("VolumeSize", device.volume_size.as_ref().map(|size| text(&canonical_size(&size.0))));
    hash.field("VolumeType", device.volume_type.map(|kind| text(kind.as_str())));
    hash.0
}

/// The size with the largest unit that keeps the number whole, as Kubernetes prints quantities: `1Ti` for `1024Gi`.
fn canonical_size(size: &str) -> String {
    let (number, mut unit) = size.split_at(size.find(|one: char| !one.is_ascii_digit()).unwrap_or(size.len()));
    let Ok(mut number) = number.parse::<u64>() else { return size.to_owned() };
    let larger = |unit: &str| match unit {
        "Gi" => Some((1024, "Ti")),
        "Ti" => Some((1024, "Pi")),
        "G" => Some((1000, "T")),
        "T" => Some((1000, "P")),
        _ => None,
    };
    while let Some((step, next)) = larger(unit).filter(|(step, _)| number > 0 && number.is_multiple_of(*step)) {
        (number, unit) = (number / step, next);
    }
    format!("{number}{unit}")
}

fn network_interface(interface: &NetworkInterface) -> u64 {
    let mut hash = Struct::new("NetworkInterface");
    let plain_int32 = |number: i32| (number != 0).then(|| int32(number));
    hash.field("NetworkCardIndex", plain_int32(interface.network_card_index));
    hash.field("DeviceIndex", plain_int32(interface.device_index));
    hash.field("InterfaceType", Some(text(interface.interface_type.as_str())));
    hash.0
}

fn metadata_options(options: &MetadataOptions) -> u64 {
    let mut hash = Struct::new("MetadataOptions");
    hash.field("HTTPEndpoint", options.http_endpoint.map(|value| text(value.as_str())));
    hash.field("HTTPProtocolIPv6", options.http_protocol_ipv6.map(|value| text(value.as_str())));
    hash.field("HTTPPutResponseHopLimit", options.http_put_response_hop_limit.map(int64));
    hash.field("HTTPTokens", options.http_tokens.map(|value| text(value.as_str())));
    hash.0
}

fn connection_tracking(tracking: &ConnectionTracking) -> u64 {
    let mut hash = Struct::new("ConnectionTracking");
    hash.field("TCPEstablishedTimeout", tracking.tcp_established_timeout.map(int32));
    hash.field("UDPStreamTimeout", tracking.udp_stream_timeout.map(int32));
    hash.field("UDPTimeout", tracking.udp_timeout.map(int32));
    hash.0
}

fn cpu_options(options: &CpuOptions) -> u64 {
    let mut hash = Struct::new("CPUOptions");
    hash.field("NestedVirtualization", options.nested_virtualization.map(|value| text(value.as_str())));
    hash.0
}

/// Suffix of the name of an instance profile: a hash of the concatenated `parts`.
#[must_use]
pub fn instance_profile_suffix(parts: &[&str]) -> u64 {
    text(&parts.concat())
}

// === Primitives ===

/// FNV-1: multiplies, then xors (FNV-1a in the opposite order).
fn fnv1(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte))
}

fn text(text: &str) -> u64 {
    fnv1(text.as_bytes())
}

fn int32(number: i32) -> u64 {
    fnv1(&number.to_le_bytes())
}

fn int64(number: i64) -> u64 {
    fnv1(&number.to_le_bytes())
}

fn boolean(value: bool) -> u64 {
    fnv1(&[u8::from(value)])
}

fn pair(first: u64, second: u64) -> u64 {
    let mut bytes = first.to_le_bytes().to_vec();
    bytes.extend(second.to_le_bytes());
    fnv1(&bytes)
}

/// Finalizes a hash whose parts were combined by xor.
fn seal(hash: u64) -> u64 {
    fnv1(&hash.to_le_bytes())
}

/// Hash of a string; an empty string counts as unset.
fn plain_text(value: &str) -> Option<u64> {
    (!value.is_empty()).then(|| text(value))
}

/// Hash of an optional string; an empty string counts as set.
fn optional_text(value: &Option<String>) -> Option<u64> {
    value.as_deref().map(text)
}

fn list<T>(items: &[T], hash: impl Fn(&T) -> u64) -> Option<u64> {
    (!items.is_empty()).then(|| items.iter().fold(0, |sum, item| sum ^ hash(item)))
}

fn map<T: AsRef<str>>(entries: &BTreeMap<T, T>) -> Option<u64> {
    let sum = entries.iter().fold(0, |sum, (key, value)| sum ^ pair(text(key.as_ref()), text(value.as_ref())));
    (!entries.is_empty()).then(|| seal(sum))
}

/// Hash of a struct: its name, then its fields in order of declaration.
struct Struct(u64);

impl Struct {
    fn new(name: &str) -> Self {
        Self(text(name))
    }

    fn field(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.0 = seal(self.0 ^ pair(text(name), value));
        }
    }
}

#[cfg(test)]
mod tests;
