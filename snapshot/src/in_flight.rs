//! Nodes for NodeClaims that have no Node yet: from the cluster, the ledger, or both.

use crate::expiry::expires;
use crate::nodes::{
    amounts, claim_labels, claim_taints, drifted, fill_gaps, grace_period, has_timed_out, idle_since, is_leaving,
    pool_label, sorted,
};
use crate::problems::Fault;
use crate::{annotations, kube_time, problems::Problem, requests};
use plimsoll_api::NodeClaim;
use plimsoll_model::execution::{ClaimState, InFlightClaim};
use plimsoll_model::identity::{NodeName, NodePoolName};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, annotation, label};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodeState};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// Returns the node of a claim that exists in the cluster. Values of the ledger take precedence over the claim's
/// requests, but not over its status.
pub(crate) fn from_claim(claim: &NodeClaim, ledger: Option<&InFlightClaim>) -> Result<Node, Problem> {
    read(claim, ledger).map_err(|fault| Problem::of("NodeClaim", &claim.metadata, fault))
}

fn read(claim: &NodeClaim, ledger: Option<&InFlightClaim>) -> Result<Node, Fault> {
    let name = claim.metadata.name.clone().unwrap_or_default();
    let mut labels = claim_labels(claim);
    labels.entry(label::HOSTNAME.to_owned()).or_insert_with(|| name.clone());
    let requested = requested(claim)?;
    let status = claim.status.as_ref();
    let mut allocatable = requests::amounts(status.map(|status| &status.allocatable), "status.allocatable")?;
    if let Some(ledger) = ledger {
        fill_gaps(&mut allocatable, &ledger.allocatable);
    }
    fill_gaps(&mut allocatable, &requested);
    let mut limit_usage = requests::amounts(status.map(|status| &status.capacity), "status.capacity")?;
    if limit_usage.is_empty() {
        limit_usage = match (ledger, reserved(claim)?) {
            (Some(ledger), _) if !ledger.limit_usage.is_empty() => ledger.limit_usage.clone(),
            (_, Some(reserved)) => reserved,
            _ => requested,
        };
    }
    limit_usage.set(NODES_RESOURCE, 1);
    if claim.provider_id().is_some() {
        count_price(claim, &mut limit_usage);
    }
    let created = kube_time::created(&claim.metadata);
    Ok(Node {
        node_claim: Some(name.clone()),
        name: NodeName(name),
        node_pool: pool_label(&labels).cloned().map(NodePoolName),
        state: NodeState::InFlight,
        labels,
        taints: sorted(claim_taints(claim)),
        allocatable,
        limit_usage,
        ready: false,
        // An initialized claim had a Node, which is gone.
        cordoned: has_timed_out(claim) || claim.is_initialized(),
        deleting: is_leaving(claim) || ledger.is_some_and(|ledger| ledger.state == ClaimState::Terminating),
        do_not_disrupt: false,
        created,
        // Only nodes that have a Node are removed as expired, so that the jitter of the pool does not matter.
        expires: expires(Some(claim), None, created),
        idle_since: idle_since(claim),
        drifted: drifted(claim),
        termination_grace_period: grace_period(Some(claim), None),
    })
}

/// What the claim requests.
pub(crate) fn requested(claim: &NodeClaim) -> Result<Resources, Fault> {
    let resources = claim.spec.resources.as_ref();
    resources.map_or_else(|| Ok(Resources::new()), |it| amounts(&it.requests, "spec.resources.requests"))
}

/// Returns the node of a claim that only the ledger has: the claim was just admitted, or was deleted from the cluster
/// while its instance still exists.
pub(crate) fn from_ledger(claim: &InFlightClaim, now: Timestamp) -> Node {
    let mut labels = claim.labels.clone();
    labels.entry(label::HOSTNAME.to_owned()).or_insert_with(|| claim.name.clone());
    labels.insert(label::NODE_POOL.to_owned(), claim.node_pool.0.clone());
    let mut limit_usage = claim.limit_usage.clone();
    limit_usage.set(NODES_RESOURCE, 1);
    let deleting = claim.state == ClaimState::Terminating;
    Node {
        name: NodeName(claim.name.clone()),
        node_claim: Some(claim.name.clone()),
        node_pool: Some(claim.node_pool.clone()),
        state: NodeState::InFlight,
        labels,
        taints: sorted(claim.taints.clone()),
        allocatable: if deleting { Resources::new() } else { claim.allocatable.clone() },
        limit_usage,
        ready: false,
        cordoned: false,
        deleting,
        do_not_disrupt: false,
        created: claim.launched.unwrap_or(now),
        expires: None,
        idle_since: None,
        drifted: None,
        termination_grace_period: None,
    }
}

/// Counts the recorded price of a launched claim or, until one is recorded, the reserved one, as the ledger does.
pub(crate) fn count_price(claim: &NodeClaim, usage: &mut Resources) {
    let of_reserved = || {
        let reserved = reserved(claim).ok().flatten()?;
        reserved.contains(USD_PER_HOUR_RESOURCE).then(|| MicroUsdPerHour(reserved.get(USD_PER_HOUR_RESOURCE)))
    };
    if let Some(price) = claim.price().or_else(of_reserved) {
        usage.set(USD_PER_HOUR_RESOURCE, price.0);
    }
}

/// Usage of the pool's limits that a claim reserves before its launch, from a JSON annotation.
fn reserved(claim: &NodeClaim) -> Result<Option<Resources>, Fault> {
    let field = format!("metadata.annotations.{}", annotation::RESERVED);
    let Some(text) = annotations::text(&claim.metadata, annotation::RESERVED) else { return Ok(None) };
    let list: BTreeMap<String, String> =
        serde_json::from_str(text).map_err(|error| Fault::new(field.as_str(), error))?;
    requests::parsed(&list, &field).map(Some)
}

#[cfg(test)]
pub(crate) mod tests;
