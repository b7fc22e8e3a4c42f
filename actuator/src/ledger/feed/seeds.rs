//! Converts a NodeClaim and its Node to the ledger's input.

use crate::guarded;
use crate::ledger::{ClaimRecord, ClaimSeed};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::condition::node_claim::INITIALIZATION_TIMED_OUT;
use plimsoll_api::{NodeClaim, Operator, ResourceList};
use plimsoll_model::identity::{NodeName, NodePoolName};
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, annotation, label};
use plimsoll_model::quantity::parse_resources;
use plimsoll_model::resources::Resources;
use plimsoll_snapshot::rollout;
use std::collections::BTreeMap;

/// Labels of the claim's Node once it is registered, since users may change them, or those that it is certain to get.
fn borrowed_labels<'a>(claim: &'a NodeClaim, node: Option<&'a Node>) -> BTreeMap<&'a str, &'a str> {
    let pairs = |labels: &'a BTreeMap<String, String>| labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let of_node = node.and_then(|node| node.metadata.labels.as_ref());
    if let Some(labels) = of_node.filter(|labels| labels.contains_key(label::REGISTERED)) {
        return pairs(labels).collect();
    }
    let decided = claim.spec.requirements.iter().filter_map(|requirement| {
        let (Operator::In, [value]) = (requirement.operator, requirement.values.as_slice()) else { return None };
        Some((requirement.key.as_str(), value.as_str()))
    });
    let own = claim.metadata.labels.iter().flat_map(pairs);
    let class = (label::EC2_NODE_CLASS, claim.spec.node_class_ref.name.as_str());
    decided.chain(own).chain([class]).collect()
}

/// Labels that the node of a claim is certain to get.
#[must_use]
pub fn labels(claim: &NodeClaim) -> BTreeMap<String, String> {
    owned(&borrowed_labels(claim, None))
}

fn owned(labels: &BTreeMap<&str, &str>) -> BTreeMap<String, String> {
    labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Unreadable capacity counts as none; the API server validates it.
#[must_use]
pub fn seed(claim: &NodeClaim, node: Option<&Node>) -> ClaimSeed {
    let (metadata, capacity) = (&claim.metadata, capacity(claim, node));
    let has = |key: &str| metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(key));
    let may_have_instance = claim.provider_id().is_some() || has(annotation::LAUNCH_GROUP);
    ClaimSeed {
        name: metadata.name.clone().unwrap_or_default(),
        pool: NodePoolName::from(claim.node_pool()),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        labels: owned(&borrowed_labels(claim, node)),
        node: claim.node_name().map(|name| NodeName(name.to_owned())),
        unknown_usage: capacity.is_none() && may_have_instance && guarded::unreadable(claim).is_some(),
        capacity,
        initialized: claim.is_initialized(),
        overdue: is_overdue(claim),
        deleting: metadata.deletion_timestamp.is_some(),
        terminating: claim.is_instance_terminating(),
        drifted: rollout::is_drifted(claim),
    }
}

fn is_overdue(claim: &NodeClaim) -> bool {
    !claim.is_initialized() && claim.true_condition(INITIALIZATION_TIMED_OUT).is_some()
}

/// Whether the claim or its Node says something that the ledger has not recorded. Runs for each claim at each pass, so
/// it copies nothing.
pub(super) fn has_changed(record: &ClaimRecord, claim: &NodeClaim, node: Option<&Node>) -> bool {
    let name = claim.node_name();
    let labels = borrowed_labels(claim, node);
    let recorded = record.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    (name.is_some() && record.node.as_ref().map(|node| node.as_str()) != name)
        || (!record.initialized && claim.is_initialized())
        || (!record.overdue && is_overdue(claim))
        || (!record.deleting && claim.metadata.deletion_timestamp.is_some())
        || (!record.terminating && claim.is_instance_terminating())
        || record.drifted != rollout::is_drifted(claim)
        || !recorded.eq(labels)
        || (!record.launched && capacity(claim, node).is_some())
        || (record.launched && claim.price().is_some_and(|price| record.price() != Some(price)))
}

/// Capacity and price of a launched claim, and `nodes: 1`. The status lacks the capacity if the catalog lacked the
/// instance type at the launch. Then that of the Node counts, which is complete once the Node is in service.
fn capacity(claim: &NodeClaim, node: Option<&Node>) -> Option<Resources> {
    claim.provider_id()?;
    let of_claim = claim.status.as_ref().and_then(|status| read(&status.capacity));
    let of_node = || read(node.filter(|_| claim.is_initialized())?.status.as_ref()?.capacity.as_ref()?);
    let mut capacity = of_claim.or_else(of_node)?;
    capacity.set(NODES_RESOURCE, 1);
    claim.price().iter().for_each(|price| capacity.set(USD_PER_HOUR_RESOURCE, price.0));
    Some(capacity)
}

/// Readable amounts; `None` if there are none.
fn read(amounts: &ResourceList) -> Option<Resources> {
    let amounts = amounts.iter().map(|(name, amount)| (name.as_str(), amount.0.as_str()));
    let is_capacity = |amounts: &Resources| !amounts.is_empty() && amounts.iter().all(|(_, amount)| amount >= 0);
    parse_resources(amounts).ok().filter(is_capacity)
}

#[cfg(test)]
mod tests;
