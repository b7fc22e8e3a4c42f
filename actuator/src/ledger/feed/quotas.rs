//! CapacityQuotas, and the Nodes without NodeClaim that they count.

use super::Sources;
use crate::ledger::{ClaimSeed, UnmanagedNode};
use crate::stores::provider_id;
use k8s_openapi::api::core::v1::Node;
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::{NODES_RESOURCE, label, taint};
use plimsoll_model::quantity::parse_resources;
use plimsoll_model::snapshot::CapacityQuota;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Updates the quotas of the ledger. Must run again before each admission.
pub fn refresh(deps: &Sources) {
    let quotas: Vec<CapacityQuota> = deps
        .stores
        .quotas
        .state()
        .iter()
        .filter_map(|quota| {
            let read = plimsoll_snapshot::capacity_quotas::read(quota);
            read.inspect_err(|fault| {
                let quota = quota.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(
                    quota,
                    field = fault.field,
                    message = fault.message,
                    "CapacityQuota is invalid, ignored"
                );
            })
            .ok()
        })
        .collect();
    // Most clusters have no quota, but many nodes.
    let nodes = if quotas.is_empty() { BTreeMap::new() } else { unmanaged_nodes(deps) };
    let is_known = deps.ledger.read(|ledger| ledger.quotas() == quotas && *ledger.unmanaged_nodes() == nodes);
    if !is_known {
        deps.ledger.with(|ledger| {
            ledger.set_quotas(quotas);
            ledger.set_unmanaged_nodes(nodes);
        });
    }
}

/// Nodes that no NodeClaim is for. A Node that will get its claim is counted by the claim.
fn unmanaged_nodes(deps: &Sources) -> BTreeMap<NodeName, UnmanagedNode> {
    let claims = deps.stores.claims.state();
    let names: BTreeSet<&str> = claims.iter().filter_map(|claim| claim.status.as_ref()?.node_name.as_deref()).collect();
    let providers: BTreeSet<&str> = claims.iter().filter_map(|claim| provider_id(claim)).collect();
    let is_unmanaged = |node: &Arc<Node>| {
        let spec = node.spec.as_ref();
        let provider = spec.and_then(|spec| spec.provider_id.as_deref());
        let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let labels = node.metadata.labels.as_ref();
        let has = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
        let starts = has(label::NODE_POOL) && !has(label::REGISTERED);
        !names.contains(node.metadata.name.as_deref().unwrap_or_default())
            && !provider.is_some_and(|id| providers.contains(id))
            && !taints.any(|one| one.key == taint::UNREGISTERED)
            && !starts
    };
    let nodes = deps.stores.nodes.state();
    let unmanaged = nodes.iter().filter(|node| is_unmanaged(node)).map(|node| {
        let listed = node.status.as_ref().and_then(|status| status.capacity.as_ref());
        let amounts = listed.into_iter().flatten().map(|(name, amount)| (name.as_str(), amount.0.as_str()));
        let mut capacity = parse_resources(amounts).unwrap_or_default();
        capacity.set(NODES_RESOURCE, 1);
        let labels = node.metadata.labels.clone().unwrap_or_default();
        (NodeName(node.metadata.name.clone().unwrap_or_default()), UnmanagedNode { labels, capacity })
    });
    unmanaged.collect()
}

/// The claim with the labels of its Node, once the Node is registered. Users may change them.
pub(super) fn with_labels_of_node(deps: &Sources, mut seed: ClaimSeed) -> ClaimSeed {
    let node = seed.node.as_ref().and_then(|node| deps.stores.nodes.get(node.as_str()));
    let labels = node.and_then(|node| node.metadata.labels.clone());
    if let Some(labels) = labels.filter(|labels| labels.contains_key(label::REGISTERED)) {
        seed.labels = labels;
    }
    seed
}
