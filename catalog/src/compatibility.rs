//! Checks whether an instance type can satisfy a node class.

use crate::{InstanceTypeFacts, NodeClassSettings};
use plimsoll_api::AmiFamily;
use plimsoll_api::ec2_node_class::InterfaceType;
use std::collections::BTreeMap;

pub(crate) fn is_compatible(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> bool {
    let nested = "nested-virtualization";
    // Amazon Linux 2023 does not support the first Graviton generation.
    let excluded = settings.ami_family == AmiFamily::AL2023 && facts.family() == "a1";
    !excluded
        && (!settings.nested_virtualization || facts.processor_features.iter().any(|feature| feature == nested))
        && (!settings.connection_tracking || facts.hypervisor == "nitro")
        && interfaces_fit(facts, settings)
        && supports_placement(facts, settings)
}

/// Without facts, EC2 refuses the launches of a type that does not support the strategy.
fn supports_placement(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> bool {
    let Some(group) = &settings.placement_group else { return true };
    let known = &facts.placement_strategies;
    known.is_empty() || known.iter().any(|strategy| strategy == group.strategy.as_str())
}

fn interfaces_fit(facts: &InstanceTypeFacts, settings: &NodeClassSettings) -> bool {
    let network = &facts.network;
    let mut by_card: BTreeMap<i32, i64> = BTreeMap::new();
    let mut efa = 0;
    for interface in &settings.network_interfaces {
        *by_card.entry(interface.network_card_index).or_default() += 1;
        efa += i64::from(interface.interface_type == InterfaceType::EfaOnly);
    }
    let fits = |card: i32, wanted: i64| {
        let max = usize::try_from(card).ok().and_then(|card| network.cards.get(card));
        max.is_some_and(|max| wanted <= *max)
    };
    by_card.is_empty()
        || (network.ena_supported
            && efa <= network.efa_interfaces
            && by_card.into_iter().all(|(card, wanted)| fits(card, wanted)))
}
