//! CapacityQuotas, and the Nodes without NodeClaim that they count.

use super::Sources;
use crate::ledger::UnmanagedNode;
use crate::nodes::{provider_id, taints};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::{CapacityQuota as ApiQuota, NodeClaim};
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::{NODES_RESOURCE, label, taint};
use plimsoll_model::quantity::parse_resources;
use plimsoll_model::snapshot::CapacityQuota;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Updates the quotas of the ledger. Must run again before each admission. Returns the problem of each invalid quota.
pub fn refresh(deps: &Sources) -> BTreeMap<String, String> {
    let (quotas, invalid) = read(&deps.stores.quotas.state());
    // Most clusters have no quota, but many nodes.
    let nodes = if quotas.is_empty() {
        BTreeMap::new()
    } else {
        unmanaged_nodes(&deps.stores.claims.state(), &deps.stores.nodes.state())
    };
    let is_known = deps.ledger.read(|ledger| ledger.quotas() == quotas && *ledger.unmanaged_nodes() == nodes);
    if !is_known {
        deps.ledger.with(|ledger| {
            ledger.set_quotas(quotas);
            ledger.set_unmanaged_nodes(nodes);
        });
    }
    invalid
}

/// The valid quotas, and the problem of each other one by name.
fn read(quotas: &[Arc<ApiQuota>]) -> (Vec<CapacityQuota>, BTreeMap<String, String>) {
    let (mut valid, mut invalid) = (Vec::new(), BTreeMap::new());
    for quota in quotas {
        match plimsoll_snapshot::capacity_quotas::read(quota) {
            Ok(quota) => valid.push(quota),
            Err(fault) => drop(invalid.insert(quota.metadata.name.clone().unwrap_or_default(), fault.to_string())),
        }
    }
    (valid, invalid)
}

/// The invalid quotas that were reported, each with its problem.
#[derive(Debug, Default)]
pub(super) struct InvalidQuotas(BTreeMap<String, String>);

impl InvalidQuotas {
    /// Logs each invalid quota once, and again when its problem changes. Returns the names of those logged.
    pub(super) fn report(&mut self, invalid: BTreeMap<String, String>) -> Vec<String> {
        let new = invalid.iter().filter(|(name, problem)| self.0.get(*name) != Some(*problem));
        let reported = new.map(|(quota, problem)| {
            tracing::warn!(quota, problem, "CapacityQuota is invalid, ignored");
            quota.clone()
        });
        let reported = reported.collect();
        self.0 = invalid;
        reported
    }
}

/// Nodes that no NodeClaim is for. A Node that will get its claim is counted by the claim.
fn unmanaged_nodes(claims: &[Arc<NodeClaim>], nodes: &[Arc<Node>]) -> BTreeMap<NodeName, UnmanagedNode> {
    let names: BTreeSet<&str> = claims.iter().filter_map(|claim| claim.node_name()).collect();
    let providers: BTreeSet<&str> = claims.iter().filter_map(|claim| claim.provider_id()).collect();
    let is_unmanaged = |node: &Arc<Node>| {
        let labels = node.metadata.labels.as_ref();
        let has = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
        let starts = has(label::NODE_POOL) && !has(label::REGISTERED);
        !names.contains(node.metadata.name.as_deref().unwrap_or_default())
            && !provider_id(node).is_some_and(|id| providers.contains(id))
            && !taints(node).iter().any(|one| one.key == taint::UNREGISTERED)
            && !starts
    };
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

#[cfg(test)]
mod tests;
