//! Computes the maximum number of pods of a node.

use crate::{InstanceTypeFacts, NodeClassSettings};
use plimsoll_api::AmiFamily;
use plimsoll_api::ec2_node_class::InterfaceType;

/// Default of the kubelet, for families without an address limit.
const DEFAULT_MAX_PODS: i64 = 110;
/// Pods in the host network of every node (CNI plugin and kube-proxy), which need no address.
const HOST_NETWORK_PODS: i64 = 2;

/// Number of pods in the node's capacity.
pub(crate) fn pods(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> i64 {
    let family = settings.ami_family;
    let max_pods = match settings.max_pods {
        Some(max_pods) => max_pods,
        None if family.is_windows() => DEFAULT_MAX_PODS,
        None => eni_limited(facts, settings, settings.reserved_enis),
    };
    // Bottlerocket does not support podsPerCore.
    if settings.pods_per_core > 0 && family != AmiFamily::Bottlerocket {
        return max_pods.min(settings.pods_per_core.saturating_mul(facts.vcpus));
    }
    max_pods
}

/// Number of pods that the memory reserved for Kubernetes is based on.
pub(crate) fn pods_for_memory(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> i64 {
    match settings.ami_family {
        AmiFamily::AL2 | AmiFamily::AL2023 | AmiFamily::Custom => eni_limited(facts, settings, 0),
        _ => pods(facts, settings),
    }
}

/// Number of pods with an address from the interfaces of the default network card.
fn eni_limited(facts: &InstanceTypeFacts, settings: &NodeClassSettings, reserved: i64) -> i64 {
    let network = &facts.network;
    let interfaces = network.cards.get(network.default_card).copied().unwrap_or(0);
    let efa_only = settings
        .network_interfaces
        .iter()
        .filter(|interface| interface.network_card_index == 0 && interface.interface_type == InterfaceType::EfaOnly)
        .count();
    let usable = interfaces.saturating_sub(reserved).saturating_sub(i64::try_from(efa_only).unwrap_or(i64::MAX));
    if usable <= 0 {
        return 0;
    }
    usable * (network.ipv4_per_interface - 1) + HOST_NETWORK_PODS
}
