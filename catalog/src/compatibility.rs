//! Checks whether an instance type can satisfy a node class.

use crate::capacity::efa_interfaces;
use crate::{InstanceTypeFacts, NodeClassSettings};
use plimsoll_api::AmiFamily;
use plimsoll_api::ec2_node_class::NetworkInterface;

pub(crate) fn is_compatible(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> bool {
    let nested = "nested-virtualization";
    // Amazon Linux 2023 does not support the first Graviton generation.
    let excluded = settings.ami_family == AmiFamily::AL2023 && facts.family() == "a1";
    // There are no images of Windows for other architectures.
    let runs = !settings.ami_family.is_windows() || facts.architecture() == Some("amd64");
    !excluded
        && runs
        && (!settings.nested_virtualization || facts.processor_features.iter().any(|feature| feature == nested))
        && (!settings.connection_tracking || facts.hypervisor == "nitro")
        && (!settings.ipv6 || supports_ipv6(facts, settings))
        && interfaces_fit(facts, settings)
        && supports_placement(facts, settings)
}

/// Whether nodes of the type can join a cluster that uses IPv6. The CNI plugin gives pods addresses of a prefix, which
/// instances on Xen do not get. Bare metal, which has no hypervisor, belongs to Nitro. See
/// <https://docs.aws.amazon.com/eks/latest/userguide/cni-ipv6.html>.
fn supports_ipv6(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> bool {
    facts.hypervisor != "xen" && !settings.ami_family.is_windows()
}

/// Without facts, EC2 refuses the launches of a type that does not support the strategy.
fn supports_placement(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> bool {
    let Some(group) = &settings.placement_group else { return true };
    let known = &facts.placement_strategies;
    known.is_empty() || known.iter().any(|strategy| strategy == group.strategy.as_str())
}

/// Whether the type has the card and the device index of each interface. A card that has all these indices also has as
/// many interfaces, since no two have the same place.
fn interfaces_fit(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> bool {
    let (network, interfaces) = (&facts.network, &settings.network_interfaces);
    let has_place = |interface: &NetworkInterface| {
        let card = usize::try_from(interface.network_card_index).ok();
        let max = card.and_then(|card| network.cards.get(card)).copied().unwrap_or(0);
        i64::from(interface.device_index) < max
    };
    interfaces.is_empty()
        || (network.ena_supported
            && efa_interfaces(facts, settings) <= network.efa_interfaces
            && interfaces.iter().all(has_place))
}
