//! Drain delay: the drain of an interrupted node starts when its replacement is launched, at most five seconds after
//! the notice (safety rule 13).

use super::{Interruption, existing_capacity};
use crate::clock::Timestamped;
use crate::durable;
use crate::launch::admit::Admission;
use crate::launch::replacement::{ReplacementError, ReplacementResult, request_replacement};
use crate::pods;
use crate::state::outcomes::Outcomes;
use crate::stores::Stores;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::{
    self,
    node_claim::{INITIALIZED, LAUNCHED},
};
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::annotation;
use plimsoll_model::time::Millis;
use plimsoll_runtime::clock::Clock;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Maximum delay. Most of the two minutes of a Spot notice must be left to the pods.
const MAX_DELAY: Millis = Millis::from_seconds(5);
/// No like-for-like replacement is started later than this: the drained pods are pending by then, and plans cover them.
/// A new leader may launch sooner, after the old lease and the longest call.
const REPLACED_WITHIN: Millis = Millis::from_seconds(90);
/// Notices after which the instance no longer runs, so the drain need not wait.
const STOPPED_KINDS: [&str; 2] = ["instance_stopped", "instance_terminated"];
/// Polling interval during the delay.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

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

/// How the pods of an interrupted node are covered by new claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coverage {
    /// No new claim is known for them.
    None,
    /// Some of the new claims are not launched yet.
    Requested,
    /// All new claims are launched.
    Launched,
}

/// The remaining drain delay; `None` if the drain may start. At the end of the delay, a replacement is launched unless
/// one was requested.
pub(crate) fn remaining_delay(
    deps: &DrainDelay,
    pending: &PendingReplacements,
    claim: &NodeClaim,
    all_pods: &[Arc<Pod>],
    deadline: Option<Timestamp>,
) -> Option<Duration> {
    let interruption = interruption(claim)?;
    let now = deps.clock.timestamp();
    let is_late = deadline.is_some_and(|deadline| deadline <= deps.clock.now());
    if is_late || STOPPED_KINDS.contains(&interruption.kind.as_str()) {
        return None;
    }
    let to_move: BTreeSet<PodUid> =
        all_pods.iter().filter(|pod| pods::is_reschedulable(pod)).map(|pod| PodUid(pods::uid(pod))).collect();
    if to_move.is_empty() {
        return None;
    }
    let coverage = coverage(deps, claim, &to_move);
    if coverage == Coverage::Launched {
        return None;
    }
    let remaining = MAX_DELAY.0.saturating_sub(now.since(interruption.heard).0);
    if remaining > 0 {
        return Some(Duration::from_millis(remaining).min(POLL_INTERVAL));
    }
    let is_first = now.since(interruption.heard) <= REPLACED_WITHIN && pending.is_new(claim);
    if is_first
        && coverage == Coverage::None
        && !deps.outcomes.planned_since(interruption.heard)
        && !fits_existing_nodes(deps, &to_move)
    {
        pending.add(claim);
        pending.retry(deps, claim);
    }
    None
}

fn interruption(claim: &NodeClaim) -> Option<Interruption> {
    durable::read(claim.annotations().get(annotation::INTERRUPTED)?).ok()
}

fn fits_existing_nodes(deps: &DrainDelay, to_move: &BTreeSet<PodUid>) -> bool {
    let nodes = deps.stores.nodes.state().iter().map(|node| (**node).clone()).collect();
    let bound = |pod: &&Arc<Pod>| pods::node_name(pod).is_some();
    let pods = deps.stores.pods.state().iter().filter(bound).map(|pod| (**pod).clone()).collect();
    existing_capacity::fits_existing_nodes(to_move, nodes, pods, deps.clock.timestamp())
}

fn coverage(deps: &DrainDelay, old: &NodeClaim, to_move: &BTreeSet<PodUid>) -> Coverage {
    let mut coverage = Coverage::None;
    for claim in deps.stores.claims.state() {
        if claim.metadata.deletion_timestamp.is_some() || claim.metadata.uid == old.metadata.uid {
            continue;
        }
        let text = claim.annotations().get(annotation::PODS);
        let is_for =
            |text: &String| serde_json::from_str::<BTreeSet<PodUid>>(text).is_ok_and(|uids| !uids.is_disjoint(to_move));
        if !text.is_some_and(is_for) {
            continue;
        }
        let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        // The reservations of an initialized node have ended; kube-scheduler may have bound the pods elsewhere.
        if condition::is_true(conditions, INITIALIZED) {
            continue;
        }
        if !condition::is_true(conditions, LAUNCHED) {
            return Coverage::Requested;
        }
        coverage = Coverage::Launched;
    }
    coverage
}

/// Replacements that are still to be launched, by UID of the old claim. No plan covers the pods, and the replacement
/// could not be launched at once (a new leader must wait before it launches).
#[derive(Debug, Default)]
pub(crate) struct PendingReplacements {
    claims: Mutex<BTreeSet<String>>,
    /// Claims already checked. The check is expensive and runs only once per claim.
    checked: Mutex<BTreeSet<String>>,
}

impl PendingReplacements {
    /// Retries the pending replacement of a claim. Returns whether it is still pending; then the claim must not be
    /// removed yet.
    pub(crate) fn retry(&self, deps: &DrainDelay, claim: &NodeClaim) -> bool {
        let uid = claim.uid().unwrap_or_default();
        if !self.claims.lock().contains(&uid) {
            return false;
        }
        let heard = interruption(claim).map(|notice| notice.heard).unwrap_or_default();
        let late = deps.clock.timestamp().since(heard) > REPLACED_WITHIN;
        if late || deps.outcomes.planned_since(heard) || launch_replacement(deps, claim) {
            self.claims.lock().remove(&uid);
            return false;
        }
        true
    }

    /// Forgets a claim that is gone.
    pub(crate) fn forget(&self, claim: &NodeClaim) {
        let uid = claim.uid().unwrap_or_default();
        self.claims.lock().remove(&uid);
        self.checked.lock().remove(&uid);
    }

    fn is_new(&self, claim: &NodeClaim) -> bool {
        self.checked.lock().insert(claim.uid().unwrap_or_default())
    }

    fn add(&self, claim: &NodeClaim) {
        self.claims.lock().insert(claim.uid().unwrap_or_default());
    }
}

/// Launches the replacement of a claim. Returns whether this is done for good.
fn launch_replacement(deps: &DrainDelay, claim: &NodeClaim) -> bool {
    let name = claim.name_any();
    match request_replacement(&deps.admission, claim) {
        Ok(ReplacementResult::Launching { claim }) => {
            tracing::warn!(
                node_claim = name,
                replacement = claim,
                "no plan came in time, the node is replaced by its like"
            );
            true
        }
        Ok(ReplacementResult::AlreadyRequested) => true,
        Err(error @ (ReplacementError::NotAllowed(_) | ReplacementError::Busy)) => {
            tracing::debug!(node_claim = name, %error, "the replacement has to wait");
            false
        }
        Err(error) => {
            tracing::warn!(node_claim = name, %error, "no plan came in time, and the node cannot be replaced by its like");
            true
        }
    }
}
