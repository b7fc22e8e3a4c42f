//! Like-for-like replacements of interrupted nodes whose pods no plan covers in time.

use super::Interruption;
use super::coverage::{Coverage, CoveringClaims, PodCoverage};
use super::drain_delay::{DrainDelay, notice_of};
use crate::clock::Timestamped;
use crate::launch::replacement::{ReplacementError, ReplacementResult, request_replacement};
use crate::stores::Stores;
use kube::ResourceExt;
use parking_lot::Mutex;
use plimsoll_api::{NodeClaim, Pod, needs_claim};
use plimsoll_model::identity::PodUid;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// No like-for-like replacement is started later than this: of a Spot notice, too little time is left for it to boot.
/// A new leader may launch within this time, after the old lease and the longest call.
const REPLACED_WITHIN: Millis = Millis::from_seconds(90);

/// State of an interrupted claim.
#[derive(Debug, Default)]
struct InterruptedClaim {
    /// Whether a replacement is still to be launched: a new leader must wait before it launches.
    is_pending: bool,
    /// Whether pods with volumes move. They may have left the node before the replacement is launched.
    moves_volumes: bool,
    /// Whether existing nodes have room for the pods. The check is expensive and runs once per claim.
    fits_existing_nodes: Option<bool>,
    /// The pods that this room is promised to. They need it until they have moved. While the pod that comes in place of
    /// an evicted one is not bound yet, the room seems to be free.
    promised: BTreeSet<PodUid>,
    /// When each pod was last seen covered. A pod whose claim has failed is covered by the next plan.
    covered: BTreeMap<PodUid, Timestamp>,
}

/// State of interrupted claims, by UID.
#[derive(Debug, Default)]
pub(crate) struct PendingReplacements {
    claims: Mutex<BTreeMap<String, InterruptedClaim>>,
    /// The claims that cover their pods.
    pub(super) covering: CoveringClaims,
    /// Locked during a check of existing nodes, so that two claims are not promised the same room. The check takes long
    /// in a large cluster, so nobody waits for the lock.
    check: tokio::sync::Mutex<()>,
}

impl PendingReplacements {
    /// Records which pods are covered now. Returns when each pod was last seen covered.
    pub(super) fn covered_until(
        &self,
        claim: &NodeClaim,
        interruption: &Interruption,
        coverage: &PodCoverage,
        pods: &BTreeSet<PodUid>,
        now: Timestamp,
    ) -> BTreeMap<PodUid, Timestamp> {
        let mut claims = self.claims.lock();
        let state = claims.entry(claim.uid().unwrap_or_default()).or_default();
        state.covered.retain(|pod, _| pods.contains(pod));
        for pod in pods {
            let known = state.covered.entry(pod.clone()).or_insert(interruption.heard);
            if coverage.of(pod) != Coverage::None {
                *known = now;
            }
        }
        state.covered.clone()
    }

    /// Whether pods that no plan names fit on existing nodes, beside the pods that other claims were promised room for.
    /// If they do not, a replacement is requested, unless a plan names other pods of the claim (`is_planned`): then its
    /// planner knows of the interruption. While another claim is checked, returns false. The pods then stay, and are
    /// checked again within a second.
    pub(super) async fn needs_none<Fits>(
        &self,
        deps: &DrainDelay,
        claim: &NodeClaim,
        is_planned: bool,
        pods: &BTreeSet<PodUid>,
        fits_existing_nodes: impl FnOnce(BTreeSet<PodUid>) -> Fits,
    ) -> bool
    where
        Fits: Future<Output = Option<bool>>,
    {
        let moves_volumes = || moves_volumes(&deps.stores, claim);
        let uid = claim.uid().unwrap_or_default();
        let checked = self.check_once(uid, pods, fits_existing_nodes, moves_volumes).await;
        self.launch_pending(deps, claim, is_planned);
        checked.unwrap_or(false)
    }

    /// Whether existing nodes have room for the pods. If they do not, a replacement is pending. `None` while another
    /// claim is checked, and if the check failed.
    async fn check_once<Fits>(
        &self,
        uid: String,
        pods: &BTreeSet<PodUid>,
        fits_existing_nodes: impl FnOnce(BTreeSet<PodUid>) -> Fits,
        moves_volumes: impl FnOnce() -> bool,
    ) -> Option<bool>
    where
        Fits: Future<Output = Option<bool>>,
    {
        let known = self.claims.lock().get(&uid).and_then(|state| state.fits_existing_nodes);
        if known.is_some() {
            return known;
        }
        let _check = self.check.try_lock().ok()?;
        let promised: BTreeSet<PodUid> =
            self.claims.lock().values().flat_map(|state| &state.promised).cloned().collect();
        let fits = fits_existing_nodes(promised).await?;
        let moves_volumes = moves_volumes();
        let mut claims = self.claims.lock();
        let state = claims.entry(uid).or_default();
        state.fits_existing_nodes = Some(fits);
        if fits {
            state.promised.clone_from(pods);
        }
        (state.is_pending, state.moves_volumes) = (!fits, moves_volumes);
        Some(fits)
    }

    /// Retries the pending replacement of a claim without pods. Returns whether it is still pending; then the claim
    /// must not be removed yet.
    pub(crate) fn retry(&self, deps: &DrainDelay, claim: &NodeClaim) -> bool {
        // Plans name the pods that came in place of the claim's pods.
        self.launch_pending(deps, claim, deps.outcomes.planned_since(heard(claim)))
    }

    fn launch_pending(&self, deps: &DrainDelay, claim: &NodeClaim, is_planned: bool) -> bool {
        let uid = claim.uid().unwrap_or_default();
        let pending = self.claims.lock().get(&uid).filter(|state| state.is_pending).map(|state| state.moves_volumes);
        let Some(moves_volumes) = pending else { return false };
        let is_late = deps.clock.timestamp().since(heard(claim)) > REPLACED_WITHIN;
        let is_pending = !is_late && !is_planned && !launch_replacement(deps, claim, moves_volumes);
        self.claims.lock().entry(uid).or_default().is_pending = is_pending;
        is_pending
    }

    /// Forgets a claim that is gone.
    pub(crate) fn forget(&self, claim: &NodeClaim) {
        self.claims.lock().remove(&claim.uid().unwrap_or_default());
    }
}

fn heard(claim: &NodeClaim) -> Timestamp {
    notice_of(claim).map(|notice| notice.heard).unwrap_or_default()
}

/// Whether a pod that leaves the node of the claim has a volume with a claim.
fn moves_volumes(stores: &Stores, claim: &NodeClaim) -> bool {
    let has_claims = |pod: &Pod| pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(needs_claim);
    let moves = |pod: &Pod| !pod.is_terminal() && !pod.is_static() && !pod.is_daemon() && has_claims(pod);
    stores.pods_of(claim).iter().any(|pod| moves(pod))
}

/// Launches the replacement of a claim. Returns whether this is done for good.
fn launch_replacement(deps: &DrainDelay, claim: &NodeClaim, moves_volumes: bool) -> bool {
    let name = claim.name_any();
    match request_replacement(&deps.admission, claim, moves_volumes) {
        Ok(ReplacementResult::Launching { claim }) => {
            tracing::warn!(
                node_claim = name,
                replacement = claim,
                "no plan received in time, launching a like-for-like replacement"
            );
            true
        }
        Ok(ReplacementResult::AlreadyRequested) => true,
        Err(error @ (ReplacementError::NotAllowed(_) | ReplacementError::Busy)) => {
            tracing::debug!(node_claim = name, %error, "replacement delayed");
            false
        }
        Err(error) => {
            tracing::warn!(node_claim = name, %error, "no plan received in time, like-for-like replacement rejected");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::node_claim::NodeClaimSpec;

    #[tokio::test]
    async fn existing_nodes_are_checked_for_one_claim_at_a_time_and_nobody_waits() {
        let (pending, pods) = (PendingReplacements::default(), BTreeSet::from([PodUid::from("p")]));
        let fits = |promised: BTreeSet<PodUid>| std::future::ready(Some(promised.is_empty()));
        let check = |uid: &str| pending.check_once(uid.to_owned(), &pods, fits, || false);
        let other = pending.check.lock().await;
        assert_eq!(check("a").await, None);
        drop(other);
        let failed = pending.check_once("a".to_owned(), &pods, |_| std::future::ready(None), || false);
        assert_eq!(failed.await, None, "it is checked again");
        assert_eq!([check("a").await, check("a").await], [Some(true); 2]);
        assert_eq!(check("b").await, Some(false), "the room is promised to the pods of the first claim");
        let mut gone = NodeClaim::new("gone", NodeClaimSpec::default());
        gone.metadata.uid = Some("a".to_owned());
        pending.forget(&gone);
        assert_eq!(check("c").await, Some(true), "its pods need no room any more");
    }
}
