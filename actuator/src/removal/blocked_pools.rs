//! Events about NodePools whose budgets allow no disruption now, while nodes could be disrupted.

use super::Removals;
use crate::events::{Note, object, reason};
use crate::pods;
use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::budget::DisruptionReason;
use plimsoll_api::condition::node_claim::{CONSOLIDATABLE, DRIFTED};
use plimsoll_api::node_pool::ConsolidationPolicy;
use plimsoll_api::{NodeClaim, NodePool};
use plimsoll_model::names::annotation;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Publishes the Events.
pub(super) fn publish(deps: &Removals) {
    let claims = deps.stores.claims.state();
    let mut by_pool: BTreeMap<&str, Vec<&NodeClaim>> = BTreeMap::new();
    for claim in &claims {
        by_pool.entry(claim.node_pool()).or_default().push(claim);
    }
    let is_empty = |claim: &NodeClaim| !deps.stores.pods_of(claim).iter().any(|pod| pods::is_reschedulable(pod));
    let pools: Vec<Arc<NodePool>> = deps.stores.pools.state();
    for pool in &pools {
        let claims = by_pool.get(pool.name_any().as_str()).map(Vec::as_slice).unwrap_or_default();
        for (name, nodes) in blocked(pool, claims, &is_empty, deps.clock.now()) {
            let message =
                format!("The budgets allow no disruption for the reason {name} now. Nodes that it applies to: {nodes}");
            let note = Note::normal(object(&**pool), reason::DISRUPTION_BLOCKED, message);
            deps.events.publish(note.with_cause(name).with_long_window());
        }
    }
}

/// The reasons for which the budgets of the pool allow no disruption, each with the number of nodes that it applies to.
/// A reason without such a node is left out.
fn blocked(
    pool: &NodePool,
    claims: &[&NodeClaim],
    is_empty: &dyn Fn(&NodeClaim) -> bool,
    now: Timestamp,
) -> Vec<(&'static str, usize)> {
    let in_service = claims.iter().copied().filter(|claim| claim.is_initialized());
    let total = u32::try_from(in_service.clone().count()).unwrap_or(u32::MAX);
    let mut closed = DisruptionReason::ALL.to_vec();
    closed.retain(|reason| pool.spec.allowed_disruptions(*reason, now, total) == 0);
    // The pods of each node are looked at only if that matters.
    if closed.is_empty() {
        return Vec::new();
    }
    let staying: Vec<&NodeClaim> = in_service.filter(|claim| !is_leaving(claim)).collect();
    let surplus = surplus(pool, staying.len());
    let mut nodes: BTreeMap<DisruptionReason, usize> = BTreeMap::new();
    for claim in staying {
        if let Some(reason) = reason_of(pool, surplus, claim, is_empty) {
            *nodes.entry(reason).or_default() += 1;
        }
    }
    // Of a static NodePool with too many nodes, no others leave.
    let most = surplus.filter(|surplus| *surplus > 0).unwrap_or(usize::MAX);
    closed.into_iter().filter_map(|reason| Some((reason.as_str(), nodes.get(&reason).copied()?.min(most)))).collect()
}

/// By how many of the `staying` nodes a static NodePool exceeds its replicas. `None` if it is not static.
fn surplus(pool: &NodePool, staying: usize) -> Option<usize> {
    let replicas = usize::try_from(pool.spec.replicas?).unwrap_or(0);
    Some(staying.saturating_sub(replicas))
}

/// Whether the node is being removed already.
fn is_leaving(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some() || claim.annotations().contains_key(annotation::REMOVAL)
}

/// The reason for which the node could be disrupted, if there is one. Nodes of a static NodePool leave if it has too
/// many, drifted or not, and else only if they have drifted.
fn reason_of(
    pool: &NodePool,
    surplus: Option<usize>,
    claim: &NodeClaim,
    is_empty: &dyn Fn(&NodeClaim) -> bool,
) -> Option<DisruptionReason> {
    let is_drifted = claim.true_condition(DRIFTED).is_some();
    let only_empty = match surplus {
        Some(0) => return is_drifted.then_some(DisruptionReason::Drifted),
        Some(_) => false,
        None if is_drifted => return Some(DisruptionReason::Drifted),
        None => {
            claim.true_condition(CONSOLIDATABLE)?;
            pool.spec.consolidation_policy() == ConsolidationPolicy::WhenEmpty
        }
    };
    if is_empty(claim) {
        return Some(DisruptionReason::Empty);
    }
    (!only_empty).then_some(DisruptionReason::Underutilized)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(policy: &str, budgets: &Value) -> NodePool {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"disruption": {"consolidateAfter": "0s", "consolidationPolicy": policy, "budgets": budgets},
                "template": {"spec": {"requirements": [],
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}},
        }))
        .unwrap()
    }

    /// A claim with these conditions.
    fn claim(name: &str, conditions: &[&str]) -> NodeClaim {
        let condition = |kind: &&str| {
            json!({"type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// The blocked reasons of a pool with an empty, a used, a drifted, a busy, and a starting node.
    fn blocked_of(policy: &str, budgets: &Value) -> Vec<(&'static str, usize)> {
        let claims = [
            claim("empty", &["Initialized", "Consolidatable"]),
            claim("used", &["Initialized", "Consolidatable"]),
            claim("drifted", &["Initialized", "Consolidatable", "Drifted"]),
            claim("busy", &["Initialized"]),
            claim("starting", &["Drifted"]),
        ];
        let claims: Vec<&NodeClaim> = claims.iter().collect();
        let is_empty = |claim: &NodeClaim| claim.name_any() == "empty";
        blocked(&pool(policy, budgets), &claims, &is_empty, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_pool_whose_budget_is_zero_is_blocked_for_the_reasons_that_its_nodes_have() {
        let both = "WhenEmptyOrUnderutilized";
        let all = vec![("Empty", 1), ("Underutilized", 1), ("Drifted", 1)];
        assert_eq!(blocked_of(both, &json!([{"nodes": "0"}])), all);
        assert_eq!(blocked_of("WhenEmpty", &json!([{"nodes": "0"}])), [("Empty", 1), ("Drifted", 1)]);
        let drift = json!([{"nodes": "50%"}, {"nodes": "0", "reasons": ["Drifted"]}]);
        assert_eq!(blocked_of(both, &drift), [("Drifted", 1)]);
        assert_eq!(blocked_of(both, &json!([{"nodes": "1"}])), []);
    }

    #[test]
    fn a_static_pool_is_blocked_for_as_many_nodes_as_exceed_its_replicas() {
        let claims = [
            claim("empty", &["Initialized"]),
            claim("used", &["Initialized"]),
            claim("busy", &["Initialized", "Consolidatable"]),
            claim("drifted", &["Initialized", "Drifted"]),
            claim("starting", &[]),
        ];
        let claims: Vec<&NodeClaim> = claims.iter().collect();
        let is_empty = |claim: &NodeClaim| claim.name_any() == "empty";
        let blocked_of = |replicas: i64| {
            let mut pool = pool("WhenEmpty", &json!([{"nodes": "0"}]));
            pool.spec.replicas = Some(replicas);
            blocked(&pool, &claims, &is_empty, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(blocked_of(4), [("Drifted", 1)]);
        assert_eq!(blocked_of(3), [("Empty", 1), ("Underutilized", 1)]);
        assert_eq!(blocked_of(0), [("Empty", 1), ("Underutilized", 3)]);
    }

    #[test]
    fn a_node_that_is_being_removed_is_not_blocked() {
        let pool = pool("WhenEmpty", &json!([{"nodes": "0"}]));
        let blocked_with = |claim: &NodeClaim| blocked(&pool, &[claim], &|_| true, Timestamp::UNIX_EPOCH);
        let staying = claim("a", &["Initialized", "Consolidatable"]);
        assert_eq!(blocked_with(&staying), [("Empty", 1)]);
        let mut leaving = staying.clone();
        leaving.annotations_mut().insert(annotation::REMOVAL.to_owned(), String::new());
        assert_eq!(blocked_with(&leaving), []);
        let mut deleted = staying;
        deleted.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(blocked_with(&deleted), []);
    }
}
