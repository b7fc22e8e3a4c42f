//! How many pods a node takes.

use crate::{InstanceTypeFacts, NodeClassSettings};
use plimsoll_api::AmiFamily;
use plimsoll_api::ec2_node_class::InterfaceType;

/// The kubelet's own default, where the family does not count addresses.
const DEFAULT_MAX_PODS: i64 = 110;
/// Pods that are on the host's network on every node (the CNI plugin and kube-proxy) and so need no address.
const HOST_NETWORK_PODS: i64 = 2;

/// Pods that the node says it takes.
pub(crate) fn pods(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> i64 {
    let family = settings.ami_family;
    let most = match settings.max_pods {
        Some(most) => most,
        None if family.is_windows() => DEFAULT_MAX_PODS,
        None => eni_limited(facts, settings, settings.reserved_enis),
    };
    // Bottlerocket has no such setting.
    if settings.pods_per_core > 0 && family != AmiFamily::Bottlerocket {
        return most.min(settings.pods_per_core.saturating_mul(facts.vcpus));
    }
    most
}

/// Pods that the memory kept for Kubernetes is counted for.
pub(crate) fn pods_for_memory(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> i64 {
    match settings.ami_family {
        AmiFamily::AL2 | AmiFamily::AL2023 | AmiFamily::Custom => eni_limited(facts, settings, 0),
        _ => pods(facts, settings),
    }
}

/// Pods that get an address of their own from the interfaces of the default card.
fn eni_limited(facts: &InstanceTypeFacts, settings: &NodeClassSettings, reserved: i64) -> i64 {
    let network = &facts.network;
    let on_card = network.cards.get(network.default_card).copied().unwrap_or(0);
    let without_addresses = settings
        .network_interfaces
        .iter()
        .filter(|interface| interface.network_card_index == 0 && interface.interface_type == InterfaceType::EfaOnly)
        .count();
    let usable = on_card.saturating_sub(reserved).saturating_sub(i64::try_from(without_addresses).unwrap_or(i64::MAX));
    if usable <= 0 {
        return 0;
    }
    usable * (network.ipv4_per_interface - 1) + HOST_NETWORK_PODS
}
