//! Converts a NodeClaim to the ledger's input.

use crate::ledger::ClaimSeed;
use plimsoll_api::{NodeClaim, condition};
use plimsoll_model::identity::{NodeName, NodePoolName};
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, label};
use plimsoll_model::quantity::parse_resources;

/// Unreadable capacity counts as none; the API server validates it.
#[must_use]
pub fn seed(claim: &NodeClaim) -> ClaimSeed {
    let metadata = &claim.metadata;
    let status = claim.status.clone().unwrap_or_default();
    let launched = status.provider_id.as_deref().is_some_and(|id| !id.is_empty());
    let amounts = status.capacity.iter().map(|(name, amount)| (name.as_str(), amount.0.as_str()));
    let capacity = parse_resources(amounts).ok().filter(|capacity| launched && !capacity.is_empty());
    let pool = metadata.labels.as_ref().and_then(|labels| labels.get(label::NODE_POOL)).cloned().unwrap_or_default();
    ClaimSeed {
        name: metadata.name.clone().unwrap_or_default(),
        pool: NodePoolName(pool),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        node: status.node_name.clone().filter(|node| !node.is_empty()).map(NodeName),
        capacity: capacity.map(|mut capacity| {
            capacity.set(NODES_RESOURCE, 1);
            claim.price().iter().for_each(|price| capacity.set(USD_PER_HOUR_RESOURCE, price.0));
            capacity
        }),
        initialized: condition::is_true(&status.conditions, condition::node_claim::INITIALIZED),
        deleting: metadata.deletion_timestamp.is_some(),
    }
}
