//! Which new claims take the pods of an interrupted node.

use crate::ledger::handle::LedgerHandle;
use crate::state::launch_group::{claim_name, replacement_action};
use crate::stores::Stores;
use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::{self, node_claim::INITIALIZED};
use plimsoll_model::identity::{NodePoolName, PodUid};
use plimsoll_model::names::{annotation, label};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Reads the claims that cover pods of `old`. The ledger knows the claims that are not written yet.
    pub(super) fn read(stores: &Stores, ledger: &LedgerHandle, old: &NodeClaim) -> Self {
        let uid = old.metadata.uid.as_deref().unwrap_or_default();
        let pool = old.labels().get(label::NODE_POOL).cloned().unwrap_or_default();
        let replacement = claim_name(&NodePoolName(pool), &replacement_action(uid));
        let mut coverage = Self { by_pod: BTreeMap::new(), of_all: Coverage::None };
        for claim in stores.claims.state() {
            if claim.metadata.deletion_timestamp.is_some() || claim.metadata.uid == old.metadata.uid {
                continue;
            }
            let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let is_initialized = condition::is_true(conditions, INITIALIZED);
            let state = if is_initialized { Coverage::InService } else { Coverage::Requested };
            if claim.name_any() == replacement {
                coverage.of_all = state;
            }
            let pods = claim.annotations().get(annotation::PODS);
            let pods: BTreeSet<PodUid> = pods.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            for pod in pods {
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
