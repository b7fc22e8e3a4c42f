//! Which new claims take the pods of an interrupted node.

use crate::ledger::handle::LedgerHandle;
use crate::pods;
use crate::state::launch_group::{claim_name, replacement_action};
use crate::stores::Stores;
use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_model::identity::{NodePoolName, PodUid};
use plimsoll_model::names::{annotation, label};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How a pod of an interrupted node is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coverage {
    /// No new claim is known for the pod.
    None,
    /// A launch was admitted for the pod, and its node is not in service.
    Requested,
    /// The node of such a claim is initialized.
    InService,
}

/// Coverage of pods by claims that are not being deleted.
#[derive(Debug)]
pub(super) struct PodCoverage {
    /// By pod, from the plans of the claims.
    by_pod: BTreeMap<PodUid, Coverage>,
    /// Of all pods, from the like-for-like replacement.
    of_all: Coverage,
}

impl PodCoverage {
    /// Reads the claims that cover pods of `old`, which are `on_node`. The ledger knows the claims that are not written
    /// yet. A claim that is older than a pod's binding was launched for the pod when it was pending: kube-scheduler may
    /// have given that node's room to another pod since.
    pub(super) fn read(stores: &Stores, ledger: &LedgerHandle, old: &NodeClaim, on_node: &[Arc<Pod>]) -> Self {
        let bound: BTreeMap<PodUid, Timestamp> =
            on_node.iter().filter_map(|pod| Some((PodUid(pods::uid(pod)), pod.status.bound_since()?))).collect();
        let uid = old.metadata.uid.as_deref().unwrap_or_default();
        let pool = old.labels().get(label::NODE_POOL).cloned().unwrap_or_default();
        let replacement = claim_name(&NodePoolName(pool), &replacement_action(uid));
        let mut coverage = Self { by_pod: BTreeMap::new(), of_all: Coverage::None };
        for claim in stores.claims.state() {
            if claim.metadata.deletion_timestamp.is_some() || claim.metadata.uid == old.metadata.uid {
                continue;
            }
            let state = if claim.is_initialized() { Coverage::InService } else { Coverage::Requested };
            if claim.name_any() == replacement {
                coverage.of_all = state;
            }
            let covered = claim.annotations().get(annotation::PODS);
            let covered: BTreeSet<PodUid> =
                covered.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            let created = claim.creation_timestamp().map(|created| created.0);
            let is_outdated =
                |pod: &PodUid| bound.get(pod).zip(created).is_some_and(|(bound, created)| created < *bound);
            for pod in covered.into_iter().filter(|pod| !is_outdated(pod)) {
                let known = coverage.by_pod.entry(pod).or_insert(state);
                *known = (*known).max(state);
            }
        }
        ledger.read(|ledger| {
            let is_launching =
                |claim: &str| ledger.claim(claim).is_some_and(|view| !view.initialized && !view.deleting);
            for (pod, _) in ledger.reservations().filter(|(_, claim)| is_launching(claim)) {
                let known = coverage.by_pod.entry(pod.clone()).or_insert(Coverage::Requested);
                *known = (*known).max(Coverage::Requested);
            }
        });
        coverage
    }

    /// Coverage of a pod.
    pub(super) fn of(&self, pod: &PodUid) -> Coverage {
        self.by_pod.get(pod).copied().unwrap_or(Coverage::None).max(self.of_all)
    }
}
