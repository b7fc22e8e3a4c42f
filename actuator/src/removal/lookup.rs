//! Nodes, claims and pods of a removal in the watch cache.

use super::Removals;
use super::facts::Surroundings;
use crate::clock::Timestamped;
use crate::pods;
use crate::stores::provider_id;
use k8s_openapi::api::core::v1::{Node, Taint};
use plimsoll_api::NodeClaim;
use plimsoll_model::identity::{NodeName, PodUid};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// The Node of a claim.
pub(super) fn node_of(deps: &Removals, claim: &NodeClaim) -> Option<Arc<Node>> {
    let id = provider_id(claim)?;
    deps.stores.nodes.find(|node| node.spec.as_ref().is_some_and(|spec| spec.provider_id.as_deref() == Some(id)))
}

/// The claim of a node, and the Node.
pub(super) fn claim_of(deps: &Removals, name: &NodeName) -> Option<(Arc<NodeClaim>, Arc<Node>)> {
    let node = deps.stores.nodes.find(|node| node.metadata.name.as_deref() == Some(name.as_str()))?;
    let id = node.spec.as_ref()?.provider_id.clone()?;
    let claim = deps.stores.claims.find(|claim| provider_id(claim) == Some(id.as_str()))?;
    Some((claim, node))
}

/// Existing pods that the claim is reserved for, and virtual ones of CapacityBuffers. Pods that are gone, or that never
/// came, keep no node.
pub(super) fn expected_pods(deps: &Removals, claim: &str) -> BTreeSet<PodUid> {
    let now = deps.clock.timestamp();
    let (mut expected, reserved): (BTreeSet<PodUid>, BTreeSet<PodUid>) = deps.ledger.read(|ledger| {
        let Some(view) = ledger.claim(claim) else { return Default::default() };
        view.pods(now).cloned().partition(|pod| view.is_virtual(pod))
    });
    if !reserved.is_empty() {
        let pods = deps.stores.pods.state();
        let existing = pods.iter().filter_map(|pod| pod.metadata.uid.clone().map(PodUid));
        expected.extend(existing.filter(|uid| reserved.contains(uid)));
    }
    expected
}

/// A node and the destination nodes of its pods, from the watch cache.
pub(super) fn surroundings<'a>(
    deps: &Removals,
    node: &'a NodeName,
    to: impl Iterator<Item = &'a NodeName>,
) -> Surroundings {
    let names: BTreeSet<&str> = to.chain([node]).map(NodeName::as_str).collect();
    let has = |name: Option<&str>| name.is_some_and(|name| names.contains(name));
    let stores = &deps.stores;
    let nodes = stores.nodes.state();
    let nodes = nodes.iter().filter(|node| has(node.metadata.name.as_deref()));
    let nodes: Vec<Node> = nodes.map(|node| (**node).clone()).collect();
    let ids: BTreeSet<&str> = nodes.iter().filter_map(|node| node.spec.as_ref()?.provider_id.as_deref()).collect();
    let claims = stores.claims.state();
    let claims = claims.iter().filter(|claim| provider_id(claim).is_some_and(|id| ids.contains(id)));
    Surroundings {
        node: node.clone(),
        claims: claims.map(|claim| (**claim).clone()).collect(),
        pods: stores.pods.state().iter().filter(|pod| has(pods::node_name(pod))).map(|pod| (**pod).clone()).collect(),
        budgets: stores.budgets.state().iter().map(|budget| (**budget).clone()).collect(),
        now: deps.clock.timestamp(),
        nodes,
    }
}
