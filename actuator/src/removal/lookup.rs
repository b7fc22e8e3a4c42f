//! Nodes, claims and pods of a removal in the watch cache.

use super::Removals;
use super::facts::RemovalObjects;
use crate::clock::Timestamped;
use crate::{guarded, nodes, pods};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::condition::node_claim::{DRAINED, INITIALIZED};
use plimsoll_api::{NodeClaim, NodePool, Pod};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::annotation;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a node in service is kept for pods that still run on their old node, or that have just left it. A rollout
/// waits a minute for its canary, and the watcher up to half a minute after rejections, until the removal of the old
/// node is planned again. A successor of a pod is created and bound within seconds.
const KEPT_FOR_MOVES: Millis = Millis::from_seconds(120);

/// How far the watcher's clock may be ahead in the expiry of a node. Clocks of synchronized machines differ by less
/// than a second, and expiry is not urgent.
const CLOCK_TOLERANCE: Millis = Millis::from_seconds(60);

/// Whether the claim has expired by this process's own clock. A plan alone may be wrong, since the clock of its watcher
/// may be: nothing else keeps an expired node.
pub(super) fn is_expired(claim: &NodeClaim, pool: Option<&NodePool>, now: Timestamp) -> bool {
    expires(claim, pool).is_some_and(|at| at <= now.plus(CLOCK_TOLERANCE))
}

/// The NodePool that plans have the Node of the claim in. Somebody may have changed the label of the Node.
pub(super) fn pool_of(deps: &Removals, claim: &NodeClaim, node: &Node) -> Option<Arc<NodePool>> {
    deps.stores.pools.get(&plimsoll_snapshot::node_pool(node, claim)?)
}

/// Whether plans remove nodes of the NodePool for this reason only if no pod has come or gone for a while.
pub(super) fn counts_pod_events(pool: &NodePool, reason: DisruptionReason) -> bool {
    matches!(reason, DisruptionReason::Empty | DisruptionReason::Underutilized) && !pool.spec.is_static()
}

/// Whether a pod has come to the claim's node or left it, and plans that arrive now may not know that: the claim did
/// not show it when they were made. An unreadable claim never does.
pub(super) fn has_new_pod_event(deps: &Removals, claim: &NodeClaim) -> bool {
    // Events are written for the node that the claim's status names.
    let hash = pods::hash_of_reschedulable(&deps.stores.pods_of(claim));
    guarded::unreadable(claim).is_none() && deps.pod_events.is_news(claim, hash, deps.clock.now())
}

/// When the node of a claim expires, with the jitter of the NodePool that plans have the node in.
pub(super) fn expires(claim: &NodeClaim, pool: Option<&NodePool>) -> Option<Timestamp> {
    plimsoll_snapshot::expires(Some(claim), pool, plimsoll_snapshot::created(&claim.metadata))
}

/// The Node of a claim.
pub(super) fn node_of(deps: &Removals, claim: &NodeClaim) -> Option<Arc<Node>> {
    deps.stores.nodes_of(claim).into_iter().next()
}

/// The claim of a node, and the Node.
pub(super) fn claim_of(deps: &Removals, name: &NodeName) -> Option<(Arc<NodeClaim>, Arc<Node>)> {
    let node = deps.stores.nodes.get(name.as_str())?;
    let claim = deps.stores.claims_of(&node).into_iter().next()?;
    Some((claim, node))
}

/// Existing pods that the claim is reserved for, and virtual ones of CapacityBuffers. Pods that are gone, or that never
/// came, keep no node.
pub(super) fn expected_pods(deps: &Removals, claim: &str) -> BTreeSet<PodUid> {
    let now = deps.clock.timestamp();
    let (mut expected, reserved): (BTreeSet<PodUid>, BTreeSet<PodUid>) = deps.ledger.read(|ledger| {
        let Some(claim) = ledger.claim(claim) else { return Default::default() };
        claim.pods(now).cloned().partition(|pod| claim.is_virtual(pod))
    });
    expected.extend(reserved.into_iter().filter(|uid| deps.stores.pods.with_uid(uid.as_str()).is_some()));
    expected
}

/// Since when a condition of the claim is true.
fn true_since(claim: &NodeClaim, condition: &str) -> Option<Timestamp> {
    claim.true_condition(condition).map(|it| plimsoll_snapshot::timestamp(&it.last_transition_time))
}

/// Whether nodes are still kept that wait for pods since then. A former leader whose clock was a little ahead keeps
/// them a little longer, and one whose clock was far ahead keeps none.
fn is_recent(since: Timestamp, now: Timestamp) -> bool {
    since <= now.plus(KEPT_FOR_MOVES) && now.since(since) < KEPT_FOR_MOVES
}

/// Pods that ran on other nodes when the claim was created for them, and still run there: the removal of their node was
/// undone, or the leader stopped before it wrote the command. If the claim's node went, another would be launched.
pub(super) fn pods_to_move(deps: &Removals, claim: &NodeClaim) -> Vec<PodUid> {
    if !true_since(claim, INITIALIZED).is_some_and(|since| is_recent(since, deps.clock.timestamp())) {
        return Vec::new();
    }
    let listed = claim.annotations().get(annotation::PODS);
    let listed: Vec<PodUid> = listed.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let pod = |uid: &PodUid| deps.stores.pods.with_uid(uid.as_str());
    listed.into_iter().filter(|uid| pod(uid).is_some_and(|pod| still_runs_elsewhere(&pod, claim))).collect()
}

/// Whether the pod ran on another node when the claim was created, and still runs there. A pod that was bound later was
/// pending, and has another node by now.
fn still_runs_elsewhere(pod: &Pod, claim: &NodeClaim) -> bool {
    let times = pod.status.bound_since().zip(claim.creation_timestamp());
    let ran_before = times.is_some_and(|(bound, created)| bound < created.0);
    ran_before && !pod.is_terminal() && pod.node_name.as_deref() != claim.node_name()
}

/// Claims in removal whose pods have had the time to come to their new nodes, also if `claim` is one of these: their
/// drain ended two minutes ago or more, and the node of `claim` was in service then. Their instance may stay, for
/// example since it is protected from termination.
pub(super) fn long_drained(deps: &Removals, claim: &NodeClaim) -> BTreeSet<String> {
    let names: Vec<String> = deps.ledger.read(|ledger| ledger.removals().map(|(name, _)| name.to_owned()).collect());
    let removed: Vec<Arc<NodeClaim>> = names.iter().filter_map(|name| deps.stores.claims.get(name)).collect();
    drained_long_before(&removed, claim, deps.clock.timestamp())
}

fn drained_long_before(removed: &[Arc<NodeClaim>], claim: &NodeClaim, now: Timestamp) -> BTreeSet<String> {
    if true_since(claim, INITIALIZED).is_some_and(|since| is_recent(since, now)) {
        return BTreeSet::new();
    }
    let is_over = |removed: &&Arc<NodeClaim>| true_since(removed, DRAINED).is_some_and(|since| !is_recent(since, now));
    removed.iter().filter(is_over).map(|removed| removed.name_any()).collect()
}

/// Requests of the existing pods that the claim is reserved for and that are not on its node. Such a pod is pending, or
/// still runs on a node that is being deleted. The destination of a pod on the `removed` node is the plan's, so that a
/// pod whose destination is reserved already does not count twice.
fn requests_of_expected_pods(deps: &Removals, claim: &str, node: &str, removed: &NodeName) -> Resources {
    let expected = expected_pods(deps, claim);
    let existing: Vec<Arc<Pod>> = expected.iter().filter_map(|uid| deps.stores.pods.with_uid(uid.as_str())).collect();
    requests_elsewhere(&existing, [node, removed.as_str()])
}

/// Requests of the pods that are on none of these nodes.
fn requests_elsewhere(pods: &[Arc<Pod>], nodes: [&str; 2]) -> Resources {
    let mut requests = Resources::new();
    let is_elsewhere = |pod: &&Arc<Pod>| pod.node_name.as_deref().is_none_or(|node| !nodes.contains(&node));
    for spec in pods.iter().filter(is_elsewhere).filter_map(|pod| pod.spec.as_ref()) {
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
    let ids: BTreeSet<&str> = nodes.iter().filter_map(nodes::provider_id).collect();
    let claims = ids.iter().flat_map(|id| stores.claims.with_provider_id(id));
    let mut claims: Vec<NodeClaim> = claims.map(Arc::unwrap_or_clone).collect();
    claims.sort_by_key(ResourceExt::name_any);
    let mut expected: BTreeMap<NodeName, Resources> = BTreeMap::new();
    for claim in &claims {
        let id = claim.provider_id();
        let of_claim = |node: &&Node| nodes::provider_id(node) == id;
        if let Some(name) = nodes.iter().find(of_claim).and_then(|node| node.metadata.name.clone()) {
            let requests = requests_of_expected_pods(deps, &claim.name_any(), &name, node);
            expected.insert(NodeName(name), requests);
        }
    }
    RemovalObjects {
        node: node.clone(),
        pods: names.iter().flat_map(|name| stores.pods.on_node(name)).collect(),
        claims,
        budgets: stores.budgets.state(),
        shifted_zones: deps.zonal_shifts.zones(stores, deps.clock.timestamp()),
        now: deps.clock.timestamp(),
        expected,
        nodes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// 2026-01-05T00:00:00Z.
    const NOW: Timestamp = Timestamp(1_767_571_200_000);

    fn ago(seconds: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(NOW.0 - seconds * 1000).unwrap()
    }

    /// The claim of node `new`, created 100 s ago, with conditions that have been true for so many seconds.
    fn claim(name: &str, conditions: &[(&str, i64)]) -> NodeClaim {
        let condition = |(kind, seconds): &(&str, i64)| {
            let since = ago(*seconds);
            json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": since})
        };
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "creationTimestamp": ago(100)},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"nodeName": "new", "conditions": conditions},
        }))
        .unwrap()
    }

    /// A pod that was bound so many seconds ago.
    fn pod(node: Option<&str>, bound: i64, phase: &str) -> Pod {
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(bound)});
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
            "status": {"phase": phase, "conditions": [scheduled]},
        }))
        .unwrap()
    }

    /// A plan says that the node has expired.
    #[test]
    fn the_clock_of_a_watcher_may_be_a_minute_ahead() {
        let expires_in = |seconds: i64, after: &str| {
            let mut claim = claim("c", &[]);
            claim.metadata.creation_timestamp = serde_json::from_value(json!(ago(3600 - seconds))).unwrap();
            claim.spec.expire_after = serde_json::from_value(json!(after)).unwrap();
            is_expired(&claim, None, NOW)
        };
        assert_eq!([-1, 0, 60, 61].map(|seconds| expires_in(seconds, "1h")), [true, true, true, false]);
        assert!(!expires_in(0, "Never"));
        let mut unwritten = claim("c", &[]);
        unwritten.metadata.creation_timestamp = None;
        assert!(!is_expired(&unwritten, None, NOW));
    }

    /// Without it, the actuator would refuse the removals of all plans until the nodes have their full age.
    #[test]
    fn the_jitter_of_the_pool_counts_as_in_plans() {
        let pool: NodePool = serde_json::from_value(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "p", "annotations": {annotation::EXPIRY_JITTER: "50%"}},
            "spec": {"template": {"spec": {"requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}}}))
        .unwrap();
        let mut claim = claim("c", &[]);
        claim.spec.expire_after = Some("1h".parse().unwrap());
        claim.metadata.uid = Some("uid-3".to_owned());
        let created = NOW.0 - 3_599_000 + 60_000;
        claim.metadata.creation_timestamp =
            serde_json::from_value(json!(jiff::Timestamp::from_millisecond(created).unwrap())).unwrap();
        assert!(!is_expired(&claim, None, NOW), "a second is left");
        let expires = plimsoll_snapshot::expires(Some(&claim), Some(&pool), Timestamp(created)).unwrap();
        assert!(expires < NOW);
        assert!(is_expired(&claim, Some(&pool), NOW));
        let before = Timestamp(expires.0 - 60_001);
        assert!(!is_expired(&claim, Some(&pool), before), "the clocks may differ by a minute");
    }

    #[test]
    fn only_consolidation_waits_for_the_time_after_a_pod_event() {
        let counts = |disruption: Value, replicas: Option<u32>, reason| {
            let pool: NodePool = serde_json::from_value(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
                "metadata": {"name": "p"}, "spec": {"disruption": disruption, "replicas": replicas,
                "template": {"spec": {"requirements": [],
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}}}))
            .unwrap();
            counts_pod_events(&pool, reason)
        };
        let after = |after: &str| json!({ "consolidateAfter": after });
        for reason in DisruptionReason::ALL {
            let is_consolidation = matches!(reason, DisruptionReason::Empty | DisruptionReason::Underutilized);
            // `Never`: changed since the plan.
            for time in ["0s", "1s", "Never"] {
                assert_eq!(counts(after(time), None, reason), is_consolidation, "{reason:?}, {time}");
            }
            assert!(!counts(after("1s"), Some(1), reason), "{reason:?}: surplus of a static pool");
        }
    }

    #[test]
    fn nodes_are_kept_for_two_minutes() {
        let is_recent = |milliseconds: i64| is_recent(Timestamp(NOW.0 - milliseconds), NOW);
        assert_eq!([0, 119_999, 120_000].map(is_recent), [true, true, false]);
        assert!(is_recent(-120_000), "the clock of a former leader was a little ahead");
        assert!(!is_recent(-120_001), "it was far ahead");
    }

    #[test]
    fn a_pod_is_still_to_move_if_it_ran_elsewhere_before_its_node_was_launched() {
        let claim = claim("c", &[]);
        let moves = |node, bound, phase| still_runs_elsewhere(&pod(Some(node), bound, phase), &claim);
        assert!(moves("old", 101, "Running"));
        assert!(!moves("old", 99, "Running"), "it was pending");
        assert!(!moves("old", 100, "Running"), "it was bound in the same second, after the plan was made");
        assert!(!moves("new", 101, "Running"), "it is there");
        assert!(!moves("old", 101, "Succeeded"), "it has ended");
    }

    /// Safety rule 9: both the end of the drain and the initialization of the node are two minutes ago.
    #[test]
    fn a_drain_is_over_two_minutes_after_its_end_and_after_the_initialization() {
        // The clock of a former leader was ahead when the last drain ended.
        let removed = [("early", [(DRAINED, 120)]), ("late", [(DRAINED, 119)]), ("last", [(DRAINED, -10)])];
        let removed = removed.map(|(name, conditions)| Arc::new(claim(name, &conditions)));
        let drained = |conditions: &[(&str, i64)]| drained_long_before(&removed, &claim("c", conditions), NOW);
        assert_eq!(drained(&[(INITIALIZED, 120)]), ["early".to_owned()].into());
        assert_eq!(drained(&[(INITIALIZED, 119)]), BTreeSet::new());
    }

    #[test]
    fn room_is_kept_for_pods_that_are_neither_there_nor_on_the_removed_node() {
        let pods = [Some("there"), Some("removed"), Some("other"), None];
        let pods = pods.map(|node| Arc::new(pod(node, 0, "Running")));
        assert_eq!(requests_elsewhere(&pods, ["there", "removed"]).get("cpu"), 1000);
    }
}
