//! Which new claims take the pods of an interrupted node.

use crate::ledger::handle::LedgerHandle;
use crate::pods;
use crate::state::launch_group::{claim_name, replacement_action};
use crate::stores::{CachedObjects, Cursor, Delta, Stores};
use jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;
use plimsoll_api::condition::node_claim::INITIALIZATION_TIMED_OUT;
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_model::identity::{NodePoolName, PodUid};
use plimsoll_model::names::annotation;
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
    /// Coverage of a pod.
    pub(super) fn of(&self, pod: &PodUid) -> Coverage {
        self.by_pod.get(pod).copied().unwrap_or(Coverage::None).max(self.of_all)
    }
}

/// Claims by the pods of their plans. All interrupted claims share it: a thousand may ask each second, and each would
/// otherwise read the pods of all claims.
#[derive(Debug, Default)]
pub(super) struct CoveringClaims {
    index: Mutex<Index>,
}

impl CoveringClaims {
    /// Coverage of `pods` of `old`, on which `on_node` run. The ledger knows the claims that are not written yet. A
    /// claim that is older than a pod's binding was launched for the pod when it was pending: kube-scheduler may have
    /// given that node's room to another pod since.
    pub(super) fn coverage(
        &self,
        stores: &Stores,
        ledger: &LedgerHandle,
        old: &NodeClaim,
        on_node: &[Arc<Pod>],
        pods: &BTreeSet<PodUid>,
    ) -> PodCoverage {
        let bound: BTreeMap<PodUid, Timestamp> =
            on_node.iter().filter_map(|pod| Some((PodUid(pods::uid(pod)), pod.status.bound_since()?))).collect();
        let uid = old.metadata.uid.as_deref().unwrap_or_default();
        let replacement = claim_name(&NodePoolName::from(old.node_pool()), &replacement_action(uid));
        let is_other = |claim: &NodeClaim| claim.metadata.uid != old.metadata.uid;
        let is_outdated = |claim: &NodeClaim, pod: &PodUid| {
            let created = claim.creation_timestamp();
            bound.get(pod).zip(created).is_some_and(|(bound, created)| created.0 < *bound)
        };
        let (mut by_pod, of_all) = {
            let mut index = self.index.lock();
            index.refresh(&stores.claims);
            let of_pod = |pod: &PodUid| {
                let claims = index.of(pod).filter(|claim| is_other(claim) && !is_outdated(claim, pod));
                claims.map(state).max().unwrap_or(Coverage::None)
            };
            let by_pod: BTreeMap<PodUid, Coverage> = pods.iter().map(|pod| (pod.clone(), of_pod(pod))).collect();
            let replacement = index.claims.get(&replacement).filter(|known| is_other(&known.claim));
            (by_pod, replacement.map_or(Coverage::None, |known| state(&known.claim)))
        };
        ledger.read(|ledger| {
            let is_launching =
                |claim: &str| ledger.claim(claim).is_some_and(|claim| !claim.initialized && !claim.deleting);
            for (pod, known) in &mut by_pod {
                if ledger.reservation_of(pod).is_some_and(is_launching) {
                    *known = (*known).max(Coverage::Requested);
                }
            }
        });
        PodCoverage { by_pod, of_all }
    }
}

/// Coverage of the pods that a claim was launched for. Nobody waits for a node that was not initialized in time.
fn state(claim: &NodeClaim) -> Coverage {
    match () {
        () if claim.is_initialized() => Coverage::InService,
        () if claim.true_condition(INITIALIZATION_TIMED_OUT).is_some() => Coverage::None,
        () => Coverage::Requested,
    }
}

/// The list of the pods that a claim was launched for.
fn planned_pods(claim: &NodeClaim) -> Option<&String> {
    claim.annotations().get(annotation::PODS)
}

/// A claim with the pods that it was launched for.
#[derive(Debug)]
struct CoveringClaim {
    claim: Arc<NodeClaim>,
    pods: BTreeSet<PodUid>,
}

/// Claims that are not being deleted. Follows the changes of the watch cache, so that a list of pods is parsed only if
/// it is new.
#[derive(Debug, Default)]
struct Index {
    read: Cursor,
    claims: BTreeMap<String, CoveringClaim>,
    by_pod: BTreeMap<PodUid, BTreeSet<String>>,
    #[cfg(test)]
    parsed: usize,
}

impl Index {
    fn refresh(&mut self, claims: &CachedObjects<NodeClaim>) {
        match claims.changes(&mut self.read) {
            Delta::All(claims) => {
                let present: BTreeSet<String> = claims.iter().map(|claim| claim.name_any()).collect();
                let gone: Vec<String> = self.claims.keys().filter(|name| !present.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.forget(name));
                claims.into_iter().for_each(|claim| self.show(claim));
            }
            Delta::Changed(changed) => {
                for (key, claim) in changed {
                    match claim {
                        Some(claim) => self.show(claim),
                        None => self.forget(&key.1),
                    }
                }
            }
        }
    }

    fn show(&mut self, claim: Arc<NodeClaim>) {
        let name = claim.name_any();
        if let Some(known) = self.claims.get_mut(&name)
            && claim.metadata.deletion_timestamp.is_none()
            && planned_pods(&known.claim) == planned_pods(&claim)
        {
            known.claim = claim;
            return;
        }
        self.forget(&name);
        if claim.metadata.deletion_timestamp.is_some() {
            return;
        }
        #[cfg(test)]
        {
            self.parsed += 1;
        }
        let pods: BTreeSet<PodUid> =
            planned_pods(&claim).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        for pod in &pods {
            self.by_pod.entry(pod.clone()).or_default().insert(name.clone());
        }
        self.claims.insert(name, CoveringClaim { claim, pods });
    }

    fn forget(&mut self, name: &str) {
        let Some(known) = self.claims.remove(name) else { return };
        for pod in &known.pods {
            if let Some(names) = self.by_pod.get_mut(pod) {
                names.remove(name);
                if names.is_empty() {
                    self.by_pod.remove(pod);
                }
            }
        }
    }

    /// The claims that were launched for a pod.
    fn of(&self, pod: &PodUid) -> impl Iterator<Item = &NodeClaim> {
        let names = self.by_pod.get(pod).into_iter().flatten();
        names.filter_map(move |name| self.claims.get(name)).map(|known| &*known.claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{ClaimSeed, Ledger};
    use serde_json::{Value, json};

    /// A claim that was launched for these pods.
    fn claim(name: &str, pods: &str, metadata: &Value) -> NodeClaim {
        let mut whole = json!({"name": name, "uid": name, "annotations": {annotation::PODS: pods}});
        for (key, value) in metadata.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        let claim = json!({"metadata": whole, "spec": {"nodeClassRef": class, "requirements": []}});
        serde_json::from_value(claim).unwrap()
    }

    fn with_condition(mut claim: NodeClaim, name: &str) -> NodeClaim {
        let condition = json!({"type": name, "status": "True", "reason": name, "message": "",
            "lastTransitionTime": "2026-01-05T00:00:00Z"});
        claim.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
        claim
    }

    #[test]
    fn the_pods_of_each_claim_are_parsed_once_and_changes_are_followed() {
        let one_of = |number: usize| claim(&format!("c{number}"), &format!(r#"["p{number}"]"#), &json!({}));
        let (stores, covering) = (Stores::of_claims((0..20).map(one_of)), CoveringClaims::default());
        let ledger = LedgerHandle::new(Ledger::default());
        let of = |pod: &str, old: &str| {
            let (pod, old) = (PodUid::from(pod), claim(old, "[]", &json!({})));
            covering.coverage(&stores, &ledger, &old, &[], &[pod.clone()].into()).of(&pod)
        };
        for number in 0..20 {
            assert_eq!(of(&format!("p{number}"), "old"), Coverage::Requested);
        }
        assert_eq!((of("p1", "c1"), of("unknown", "old")), (Coverage::None, Coverage::None), "its own claim");
        let parsed = || covering.index.lock().parsed;
        assert_eq!(parsed(), 20);

        stores.claims.show(with_condition(one_of(1), "Initialized"));
        assert_eq!((of("p1", "old"), parsed()), (Coverage::InService, 20));
        stores.claims.show(claim("c1", r#"["p1"]"#, &json!({"deletionTimestamp": "2026-01-05T00:00:00Z"})));
        assert_eq!((of("p1", "old"), parsed()), (Coverage::None, 20));
        stores.claims.show(claim("c2", r#"["p1", "p3"]"#, &json!({})));
        let three = [of("p1", "old"), of("p2", "old"), of("p3", "old")];
        assert_eq!((three, parsed()), ([Coverage::Requested, Coverage::None, Coverage::Requested], 21));
        stores.claims.show_gone(one_of(2));
        assert_eq!([of("p1", "old"), of("p3", "old")], [Coverage::None, Coverage::Requested], "c3 is still there");
        stores.claims.show(with_condition(one_of(3), INITIALIZATION_TIMED_OUT));
        assert_eq!(of("p3", "old"), Coverage::None, "its node was not initialized in time");
    }

    /// The watch cache does not show its claim. Later, the room for the pod on the node may be another pod's.
    #[test]
    fn a_launch_that_only_the_ledger_knows_covers_its_pods_until_its_node_is_in_service() {
        let annotations = [(annotation::PODS.to_owned(), r#"["p"]"#.to_owned())].into();
        let seed = ClaimSeed { name: "new".to_owned(), annotations, ..ClaimSeed::default() };
        let ledger = LedgerHandle::new(Ledger::from_claims(1, &[seed]).0);
        let (stores, covering) = (Stores::default(), CoveringClaims::default());
        let (pod, old) = (PodUid::from("p"), claim("old", "[]", &json!({})));
        let of_pod = || covering.coverage(&stores, &ledger, &old, &[], &[pod.clone()].into()).of(&pod);
        assert_eq!(of_pod(), Coverage::Requested);
        ledger.with(|ledger| ledger.initialized("new", plimsoll_model::time::Timestamp(0)));
        assert_eq!(of_pod(), Coverage::None);
    }
}
