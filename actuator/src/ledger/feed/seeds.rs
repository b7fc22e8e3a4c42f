//! Converts a NodeClaim to the ledger's input.

use crate::ledger::ClaimSeed;
use plimsoll_api::{NodeClaim, Operator, condition};
use plimsoll_model::identity::{NodeName, NodePoolName};
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, label};
use plimsoll_model::quantity::parse_resources;
use std::collections::BTreeMap;

/// Labels that the node of a claim is certain to get.
#[must_use]
pub fn labels(claim: &NodeClaim) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for requirement in &claim.spec.requirements {
        if let (Operator::In, [value]) = (requirement.operator, requirement.values.as_slice()) {
            labels.insert(requirement.key.clone(), value.clone());
        }
    }
    labels.extend(claim.metadata.labels.clone().unwrap_or_default());
    labels.insert(label::EC2_NODE_CLASS.to_owned(), claim.spec.node_class_ref.name.clone());
    labels
}

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
        labels: labels(claim),
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
