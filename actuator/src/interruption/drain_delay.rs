//! Which pods stay on an interrupted node for now (safety rule 13): each pod runs until the node that takes it is in
//! service, or until the time that is left is needed to stop the pod.

use super::coverage::Coverage;
use super::messages::NoticeKind;
use super::replacements::PendingReplacements;
use super::{Interruption, existing_capacity};
use crate::durable;
use crate::launch::admit::Admission;
use crate::pods;
use crate::state::outcomes::{Outcomes, PlannedPod};
use crate::stores::Stores;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::annotation;
use plimsoll_model::time::{self, Millis};
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::workers::apart;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a plan may take to cover the pods. Beyond it, the actuator decides without a plan.
const PLANNED_WITHIN: Millis = Millis::from_seconds(5);
/// Time that is left when the last pod has stopped, for the API server and the kubelet.
const MARGIN: SignedDuration = SignedDuration::from_secs(10);
/// Maximum delay if it is unknown when the instance stops: a NodeClaim that has not registered by then is deleted.
pub(super) const MAX_WITHOUT_END: Millis = Millis::from_seconds(15 * 60);

/// Dependencies of the drain delay.
#[derive(Clone)]
pub struct DrainDelay {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Outcomes of actions.
    pub outcomes: Outcomes,
    /// Admission of launches.
    pub admission: Admission,
    /// Time.
    pub clock: Clock,
}

/// The pods that are not evicted yet, each with the time at which its eviction starts at the latest. `to_stop` has the
/// pods that have to move, each with the time that is needed to stop it; `on_node` are all pods of the node. Launches a
/// replacement if no plan names any of the pods in time.
pub(crate) async fn delayed_pods(
    deps: &DrainDelay,
    pending: &PendingReplacements,
    claim: &NodeClaim,
    on_node: &[Arc<Pod>],
    to_stop: &BTreeMap<PodUid, SignedDuration>,
    deadline: Option<Timestamp>,
) -> BTreeMap<PodUid, Timestamp> {
    if to_stop.is_empty() {
        return BTreeMap::new();
    }
    let now = deps.clock.now();
    let Some(interruption) = notice_of(claim) else { return BTreeMap::new() };
    if deadline.is_some_and(|deadline| deadline <= now) {
        return BTreeMap::new();
    }
    let latest = latest_evictions(end(claim, &interruption), to_stop);
    let to_move: BTreeSet<PodUid> = latest.keys().cloned().collect();
    let coverage = pending.covering.coverage(&deps.stores, &deps.admission.ledger, claim, on_node, &to_move);
    let covered_until = pending.covered_until(claim, &interruption, &coverage, &to_move, millis(now));
    let is_planned = to_move.iter().any(|pod| deps.outcomes.planned_pod(pod, interruption.heard).is_some());
    let mut delayed = BTreeMap::new();
    for (pod, at) in latest {
        let since = covered_until.get(&pod).copied().unwrap_or(interruption.heard);
        let is_delayed = match coverage.of(&pod) {
            Coverage::InService => false,
            Coverage::Requested => true,
            Coverage::None if millis(now).since(since) < PLANNED_WITHIN => true,
            Coverage::None => match deps.outcomes.planned_pod(&pod, since) {
                Some(PlannedPod::Place(node)) => !is_in_service(&deps.stores, &node),
                // The launch was rejected: the next plan names the pod again.
                Some(PlannedPod::Launch | PlannedPod::Unschedulable) => true,
                None => {
                    let fits = |promised| fits_existing_nodes(deps, to_move.clone(), promised);
                    !pending.needs_none(deps, claim, is_planned, &to_move, fits).await
                }
            },
        };
        if is_delayed && at > now {
            delayed.insert(pod, at);
        }
    }
    delayed
}

/// When the eviction of each pod starts at the latest, if the instance stops at this time.
fn latest_evictions(
    ends: Option<time::Timestamp>,
    to_stop: &BTreeMap<PodUid, SignedDuration>,
) -> BTreeMap<PodUid, Timestamp> {
    let ends = ends.and_then(|ends| Timestamp::from_millisecond(ends.0).ok()).unwrap_or(Timestamp::MAX);
    let latest = |needed: &SignedDuration| ends.saturating_sub(needed.saturating_add(MARGIN)).unwrap_or(Timestamp::MIN);
    to_stop.iter().map(|(pod, needed)| (pod.clone(), latest(needed))).collect()
}

/// When the instance of the claim stops, or is taken to stop. `None` after a recommendation to rebalance: the instance
/// may run on for days, and a Spot notice comes before its end. Pods of a claim without a NodePool might wait for ever:
/// the actuator launches nothing for them, and perhaps no NodePool takes them.
fn end(claim: &NodeClaim, interruption: &Interruption) -> Option<time::Timestamp> {
    let may_wait = is_recommendation(interruption) && !claim.node_pool().is_empty();
    let assumed = (!may_wait).then(|| interruption.heard.plus(MAX_WITHOUT_END));
    interruption.ends.or(assumed)
}

/// Whether the interruption is only a recommendation to rebalance.
pub(super) fn is_recommendation(interruption: &Interruption) -> bool {
    interruption.kind == NoticeKind::RebalanceRecommendation.as_str()
}

/// The notice that is recorded on a claim.
pub(crate) fn notice_of(claim: &NodeClaim) -> Option<Interruption> {
    durable::read(claim.annotations().get(annotation::INTERRUPTED)?).ok()
}

fn millis(at: Timestamp) -> time::Timestamp {
    time::Timestamp(at.as_millisecond())
}

/// Whether a node of a plan is in service, and not on its way out.
fn is_in_service(stores: &Stores, name: &NodeName) -> bool {
    let takes_pods = |claim: &Arc<NodeClaim>| claim.is_initialized() && claim.metadata.deletion_timestamp.is_none();
    let Some(node) = stores.nodes.get(name.as_str()) else {
        return stores.claims.get(name.as_str()).as_ref().is_some_and(takes_pods);
    };
    // A node of others has no claim.
    node.metadata.deletion_timestamp.is_none() && stores.claims_of(&node).iter().all(takes_pods)
}

/// Whether the pods fit on existing nodes. `None` if the check failed.
async fn fits_existing_nodes(deps: &DrainDelay, to_move: BTreeSet<PodUid>, promised: BTreeSet<PodUid>) -> Option<bool> {
    let (stores, ledger, now) = (deps.stores.clone(), deps.admission.ledger.clone(), millis(deps.clock.now()));
    // All nodes and pods of the cluster are read: not in the async runtime.
    let checked = apart(move || {
        let nodes = stores.nodes.state().iter().map(|node| (**node).clone()).collect();
        let mut pods = stores.pods.state();
        let is_waiting = |pod: &&mut Arc<Pod>| pod.node_name.is_none() && pod.nominated_node().is_none();
        // kube-scheduler binds these pods to their new nodes soon.
        ledger.read(|ledger| {
            for pod in pods.iter_mut().filter(is_waiting) {
                let claim = ledger.reserved_by(&PodUid(pods::uid(pod)), now).and_then(|claim| ledger.claim(claim));
                if let Some(node) = claim.and_then(|claim| claim.node.as_ref()) {
                    Arc::make_mut(pod).status.nominated_node_name = Some(node.0.clone());
                }
            }
        });
        existing_capacity::fits_existing_nodes(&to_move, &promised, nodes, pods, now)
    });
    checked.await.inspect_err(|error| tracing::error!(%error, "existing nodes not checked, retrying")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::node_claim::NodeClaimSpec;
    use plimsoll_model::names::label;

    /// Seconds from the notice of this kind to the end of the instance, of a claim with or without a NodePool.
    fn end_after(kind: NoticeKind, ends: Option<i64>, pool: Option<&str>) -> Option<i64> {
        let mut claim = NodeClaim::new("claim", NodeClaimSpec::default());
        claim.labels_mut().extend(pool.map(|pool| (label::NODE_POOL.to_owned(), pool.to_owned())));
        let ends = ends.map(|seconds| time::Timestamp(seconds * 1000));
        let interruption = Interruption { kind: kind.as_str().to_owned(), heard: time::Timestamp(0), ends };
        end(&claim, &interruption).map(|end| end.0 / 1000)
    }

    #[test]
    fn a_pod_is_evicted_while_it_can_stop_ten_seconds_before_the_end() {
        let to_stop = [("a", 5), ("b", 30)].map(|(pod, needed)| (PodUid::from(pod), SignedDuration::from_secs(needed)));
        let latest = latest_evictions(Some(time::Timestamp(120_000)), &to_stop.into());
        assert_eq!(latest.values().map(|at| at.as_second()).collect::<Vec<_>>(), [105, 80]);
    }

    #[test]
    fn an_unknown_end_is_a_quarter_of_an_hour_away_except_after_a_recommendation() {
        let (spot, recommendation) = (NoticeKind::SpotInterrupted, NoticeKind::RebalanceRecommendation);
        assert_eq!(end_after(spot, Some(120), Some("default")), Some(120));
        assert_eq!(end_after(spot, None, Some("default")), Some(900));
        assert_eq!(end_after(recommendation, None, Some("default")), None);
        assert_eq!(end_after(recommendation, Some(120), Some("default")), Some(120), "a Spot notice came later");
        assert_eq!(end_after(recommendation, None, None), Some(900), "perhaps no NodePool takes its pods");
        assert_eq!(end_after(recommendation, None, Some("")), Some(900), "an empty name is no NodePool");
    }
}
