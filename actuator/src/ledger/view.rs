//! The ledger as its watchers see it: claims in flight, and claims being deleted.

use crate::clock::Timestamped;
use crate::ledger::ClaimView;
use crate::ledger::handle::LedgerHandle;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::stores::Stores;
use parking_lot::Mutex;
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_model::execution::{ClaimState, InFlightClaim};
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::label;
use plimsoll_model::plan::PodRef;
use plimsoll_model::quantity::parse_resources;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::UnavailableOffering;
use plimsoll_model::taints::Taint;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Dependencies of the view.
#[derive(Clone)]
pub struct LedgerView {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Offerings known to lack capacity.
    pub insufficient_capacity: Arc<Mutex<InsufficientCapacity>>,
    /// Time.
    pub clock: Clock,
}

/// Claims in flight, by name. An initialized claim is included as long as pods are reserved for it.
#[must_use]
pub fn in_flight(deps: &LedgerView) -> BTreeMap<String, InFlightClaim> {
    let now = deps.clock.timestamp();
    let launching = deps.ledger.all_launching();
    let is_open = |view: &ClaimView<'_>| !view.initialized || view.deleting || view.pods(now).next().is_some();
    let open: Vec<String> =
        deps.ledger.read(|ledger| ledger.claims().filter(is_open).map(|view| view.name.to_owned()).collect());
    let shown: BTreeMap<String, Arc<NodeClaim>> =
        open.into_iter().filter_map(|name| Some((name.clone(), deps.stores.claims.get(&name)?))).collect();
    let names = pod_names(deps, &launching);
    deps.ledger.read(|ledger| {
        let open = ledger.claims().filter(is_open);
        open.map(|view| {
            let admitted = launching.get(view.name);
            let object = shown.get(view.name);
            let named = |uid: &PodUid| {
                let of_plan = admitted.and_then(|admitted| admitted.pods.iter().find(|pod| pod.uid == *uid));
                let name = of_plan.map(|pod| pod.name.clone()).or_else(|| names.get(uid.as_str()).cloned());
                PodRef { name: name.unwrap_or_default(), uid: uid.clone() }
            };
            let claim = InFlightClaim {
                name: view.name.to_owned(),
                uid: object.and_then(|claim| claim.metadata.uid.clone()).unwrap_or_default(),
                node_pool: view.pool.clone(),
                action_id: view.action.cloned(),
                pods: view.pods(now).map(named).collect(),
                limit_usage: view.counted.clone(),
                labels: labels(object.map(AsRef::as_ref), admitted),
                taints: taints(object.map(AsRef::as_ref), admitted),
                allocatable: allocatable(object.map(AsRef::as_ref), admitted),
                state: match (view.deleting, view.node.is_some(), view.launched) {
                    (true, _, _) => ClaimState::Terminating,
                    (_, true, _) => ClaimState::Registered,
                    (_, _, true) => ClaimState::Launched,
                    _ => ClaimState::Launching,
                },
                launched: object.filter(|_| view.launched).and_then(|claim| launched_at(claim)),
            };
            (view.name.to_owned(), claim)
        })
        // A claim without a pool is not managed by us.
        .filter(|(_, claim)| !claim.node_pool.as_str().is_empty())
        .collect()
    })
}

/// Names of reserved pods that no recorded launch provides, as after a change of leader.
fn pod_names(deps: &LedgerView, launching: &BTreeMap<String, InFlightClaim>) -> BTreeMap<String, String> {
    let named: BTreeSet<&PodUid> = launching.values().flat_map(|claim| &claim.pods).map(|pod| &pod.uid).collect();
    let nameless: Vec<PodUid> =
        deps.ledger.read(|ledger| ledger.reserved_pods().filter(|uid| !named.contains(uid)).cloned().collect());
    let name = |pod: &Pod| {
        let (namespace, name) = (pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?);
        Some((pod.metadata.uid.clone()?, format!("{namespace}/{name}")))
    };
    nameless.iter().filter_map(|uid| name(&*deps.stores.pods.with_uid(uid.as_str())?)).collect()
}

fn labels(claim: Option<&NodeClaim>, admitted: Option<&InFlightClaim>) -> BTreeMap<String, String> {
    let mut labels = admitted.map(|admitted| admitted.labels.clone()).unwrap_or_default();
    labels.extend(claim.and_then(|claim| claim.metadata.labels.clone()).unwrap_or_default());
    if let Some(claim) = claim {
        labels.insert(label::EC2_NODE_CLASS.to_owned(), claim.spec.node_class_ref.name.clone());
    }
    labels
}

fn taints(claim: Option<&NodeClaim>, admitted: Option<&InFlightClaim>) -> Vec<Taint> {
    match (claim, admitted) {
        (Some(claim), _) => claim.spec.taints.iter().map(Taint::from).collect(),
        (None, admitted) => admitted.map(|admitted| admitted.taints.clone()).unwrap_or_default(),
    }
}

/// Allocatable resources of the instance; before there is one, the minimum over all accepted types. Amounts that cannot
/// be read or are negative count as none: the wire has no such amounts, and one would fail all of a message.
fn allocatable(claim: Option<&NodeClaim>, admitted: Option<&InFlightClaim>) -> Resources {
    let status = claim.and_then(|claim| claim.status.as_ref());
    let amounts = status.into_iter().flat_map(|status| &status.allocatable);
    let read = parse_resources(amounts.map(|(name, amount)| (name.as_str(), amount.0.as_str())));
    let read = read.ok().filter(|read| read.iter().all(|(_, amount)| amount >= 0)).unwrap_or_default();
    if read.is_empty() { admitted.map(|admitted| admitted.allocatable.clone()).unwrap_or_default() } else { read }
}

fn launched_at(claim: &NodeClaim) -> Option<Timestamp> {
    let conditions = &claim.status.as_ref()?.conditions;
    let launched = plimsoll_api::condition::get(conditions, plimsoll_api::condition::node_claim::LAUNCHED)?;
    Some(Timestamp(launched.last_transition_time.0.as_millisecond()))
}

/// Offerings to skip, with the remaining time.
#[must_use]
pub fn unavailable(deps: &LedgerView) -> Vec<UnavailableOffering> {
    let memory = deps.insufficient_capacity.lock();
    memory
        .remaining(deps.clock.timestamp())
        .map(|(key, remaining)| UnavailableOffering {
            instance_type: key.instance_type.clone(),
            zone: key.zone.clone(),
            capacity_type: key.capacity_type,
            remaining,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_that_no_message_may_have_count_as_none() {
        let read = |amounts: serde_json::Value| {
            let claim = json!({"metadata": {"name": "c"}, "status": {"allocatable": amounts}, "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}});
            allocatable(Some(&serde_json::from_value(claim).unwrap()), None)
        };
        assert_eq!(read(json!({"cpu": "2"})), Resources::from([("cpu", 2000)]));
        for amounts in [json!({"cpu": "2", "": "1"}), json!({"cpu": "-1"}), json!({"cpu": "lots"})] {
            assert_eq!(read(amounts.clone()), Resources::new(), "{amounts}");
        }
    }
}
