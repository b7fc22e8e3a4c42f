//! Nodes, claims and pods of a removal in the watch cache.

use super::Removals;
use super::facts::RemovalObjects;
use crate::clock::Timestamped;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::condition::node_claim::{DRAINED, INITIALIZED};
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::annotation;
use plimsoll_model::resources::Resources;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a node in service is kept for pods that still run on their old node, or that have just left it. A rollout
/// waits a minute for its canary, and the watcher up to half a minute after rejections, until the removal of the old
/// node is planned again. A successor of a pod is created and bound within seconds.
const KEPT_FOR_MOVES: Millis = Millis::from_seconds(120);

/// The Node of a claim.
pub(super) fn node_of(deps: &Removals, claim: &NodeClaim) -> Option<Arc<Node>> {
    deps.stores.nodes_of(claim).into_iter().next()
}

/// The claim of a node, and the Node.
pub(super) fn claim_of(deps: &Removals, name: &NodeName) -> Option<(Arc<NodeClaim>, Arc<Node>)> {
    let node = deps.stores.nodes.get(name.as_str())?;
    let claim = deps.stores.claims.with_provider_id(node.spec.as_ref()?.provider_id.as_deref()?).into_iter().next()?;
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
    expected.extend(reserved.into_iter().filter(|uid| deps.stores.pods.with_uid(uid.as_str()).is_some()));
    expected
}

/// Since when a condition of the claim is true.
fn true_since(claim: &NodeClaim, condition: &str) -> Option<Timestamp> {
    claim.true_condition(condition).map(|it| plimsoll_snapshot::timestamp(&it.last_transition_time))
}

/// Whether nodes are still kept that wait for pods since then. A former leader whose clock was ahead keeps none.
fn is_recent(since: Timestamp, now: Timestamp) -> bool {
    since <= now && now.since(since) < KEPT_FOR_MOVES
}

/// Pods that ran on other nodes when the claim was created for them, and still run there: the removal of their node was
/// undone, or the leader stopped before it wrote the command. If the claim's node went, another would be launched.
pub(super) fn pods_to_move(deps: &Removals, claim: &NodeClaim) -> Vec<PodUid> {
    let is_recent = true_since(claim, INITIALIZED).is_some_and(|since| is_recent(since, deps.clock.timestamp()));
    let Some(created) = claim.creation_timestamp().filter(|_| is_recent) else { return Vec::new() };
    let listed = claim.annotations().get(annotation::PODS);
    let listed: Vec<PodUid> = listed.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    // A pod that was bound later was pending, and has another node by now.
    let still_runs = |uid: &PodUid| {
        let pod = deps.stores.pods.with_uid(uid.as_str()).filter(|pod| !pod.is_terminal());
        let pod = pod.filter(|pod| pod.node_name.as_deref() != claim.node_name());
        pod.and_then(|pod| pod.status.bound_since()).is_some_and(|bound| bound < created.0)
    };
    listed.into_iter().filter(still_runs).collect()
}

/// Claims in removal whose pods have had the time to come to their new nodes, also if `claim` is one of these: their
/// drain ended two minutes ago or more, and the node of `claim` was in service then. Their instance may stay, for
/// example since it is protected from termination.
pub(super) fn long_drained(deps: &Removals, claim: &NodeClaim) -> BTreeSet<String> {
    let now = deps.clock.timestamp();
    if true_since(claim, INITIALIZED).is_some_and(|since| is_recent(since, now)) {
        return BTreeSet::new();
    }
    let mut claims: BTreeSet<String> =
        deps.ledger.read(|ledger| ledger.removals().map(|(name, _)| name.to_owned()).collect());
    claims.retain(|name| {
        let removed = deps.stores.claims.get(name);
        removed.and_then(|removed| true_since(&removed, DRAINED)).is_some_and(|since| !is_recent(since, now))
    });
    claims
}

/// Requests of the existing pods that the claim is reserved for and that are not on its node. Such a pod is pending, or
/// still runs on a node that is being deleted. The destination of a pod on the `removed` node is the plan's, so that a
/// pod whose destination is reserved already does not count twice.
fn requests_of_expected_pods(deps: &Removals, claim: &str, node: &str, removed: &NodeName) -> Resources {
    let mut requests = Resources::new();
    let expected = expected_pods(deps, claim);
    let existing = expected.iter().filter_map(|uid| deps.stores.pods.with_uid(uid.as_str()));
    let is_elsewhere = |pod: &Arc<Pod>| ![Some(node), Some(removed.as_str())].contains(&pod.node_name.as_deref());
    let coming: Vec<Arc<Pod>> = existing.filter(is_elsewhere).collect();
    for spec in coming.iter().filter_map(|pod| pod.spec.as_ref()) {
        // A pod that cannot be read is never bound by a plan.
        requests.add(&plimsoll_snapshot::effective_requests(spec).unwrap_or_default());
    }
    requests
}

/// A node and the destination nodes of its pods, from the watch cache.
pub(super) fn removal_objects<'a>(
    deps: &Removals,
    node: &'a NodeName,
    to: impl Iterator<Item = &'a NodeName>,
) -> RemovalObjects {
    let names: BTreeSet<&str> = to.chain([node]).map(NodeName::as_str).collect();
    let stores = &deps.stores;
    let nodes: Vec<Node> = names.iter().filter_map(|name| stores.nodes.get(name)).map(Arc::unwrap_or_clone).collect();
    let ids: BTreeSet<&str> = nodes.iter().filter_map(|node| node.spec.as_ref()?.provider_id.as_deref()).collect();
    let claims = ids.iter().flat_map(|id| stores.claims.with_provider_id(id));
    let mut claims: Vec<NodeClaim> = claims.map(Arc::unwrap_or_clone).collect();
    claims.sort_by_key(ResourceExt::name_any);
    let mut expected: BTreeMap<NodeName, Resources> = BTreeMap::new();
    for claim in &claims {
        let id = claim.provider_id();
        let of_claim = |node: &&Node| node.spec.as_ref().is_some_and(|spec| spec.provider_id.as_deref() == id);
        if let Some(name) = nodes.iter().find(of_claim).and_then(|node| node.metadata.name.clone()) {
            let requests = requests_of_expected_pods(deps, &claim.name_any(), &name, node);
            expected.insert(NodeName(name), requests);
        }
    }
    RemovalObjects {
        node: node.clone(),
        pods: names.iter().flat_map(|name| stores.pods.on_node(name)).map(Arc::unwrap_or_clone).collect(),
        claims,
        budgets: stores.budgets.state(),
        shifted_zones: deps.zonal_shifts.zones(stores, deps.clock.timestamp()),
        now: deps.clock.timestamp(),
        expected,
        nodes,
    }
}
