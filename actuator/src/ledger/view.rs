//! The ledger as its watchers see it: claims in flight, and claims being deleted.

use crate::clock::Timestamped;
use crate::ledger::ClaimRecord;
use crate::ledger::handle::LedgerHandle;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::stores::Stores;
use parking_lot::Mutex;
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_model::execution::{ClaimState, InFlightClaim};
use plimsoll_model::identity::{ActionId, NodePoolName, PodUid};
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
    // Only the copy is made under the lock, since every admission waits for it.
    let open: Vec<OpenClaim> = deps.ledger.read(|ledger| {
        let claims = ledger.claims();
        claims.filter_map(|(name, record)| OpenClaim::of(name, record, now)).collect()
    });
    let names = pod_names(deps, &launching);
    let claims = open.into_iter().map(|open| {
        let (object, admitted) = (deps.stores.claims.get(&open.name), launching.get(&open.name).map(Arc::as_ref));
        (open.name.clone(), open.in_flight(object.as_deref(), admitted, &names))
    });
    claims.collect()
}

/// What the ledger has of a claim in flight.
struct OpenClaim {
    name: String,
    pool: NodePoolName,
    action: Option<ActionId>,
    pods: Vec<PodUid>,
    counted: Resources,
    state: ClaimState,
    launched: bool,
}

impl OpenClaim {
    /// `None` if the claim is not in flight, or has no pool: then it is not managed by us.
    fn of(name: &str, record: &ClaimRecord, now: Timestamp) -> Option<Self> {
        let is_open = !record.initialized || record.deleting || record.pods(now).next().is_some();
        (is_open && !record.pool.as_str().is_empty()).then(|| Self {
            name: name.to_owned(),
            pool: record.pool.clone(),
            action: record.action.clone(),
            pods: record.pods(now).cloned().collect(),
            counted: record.counted.clone(),
            state: match (record.deleting, record.node.is_some(), record.launched) {
                (true, _, _) => ClaimState::Terminating,
                (_, true, _) => ClaimState::Registered,
                (_, _, true) => ClaimState::Launched,
                _ => ClaimState::Launching,
            },
            launched: record.launched,
        })
    }

    /// The claim with what its object says, or its admission. `names` has pods that the admission does not name.
    fn in_flight(
        self,
        object: Option<&NodeClaim>,
        admitted: Option<&InFlightClaim>,
        names: &BTreeMap<String, String>,
    ) -> InFlightClaim {
        let of_plan: BTreeMap<&PodUid, &String> =
            admitted.into_iter().flat_map(|admitted| &admitted.pods).map(|pod| (&pod.uid, &pod.name)).collect();
        let named = |uid: PodUid| {
            let name = of_plan.get(&uid).copied().or_else(|| names.get(uid.as_str()));
            PodRef { name: name.cloned().unwrap_or_default(), uid }
        };
        InFlightClaim {
            name: self.name,
            uid: object.and_then(|claim| claim.metadata.uid.clone()).unwrap_or_default(),
            node_pool: self.pool,
            action_id: self.action,
            pods: self.pods.into_iter().map(named).collect(),
            limit_usage: self.counted,
            labels: labels(object, admitted),
            taints: taints(object, admitted),
            allocatable: allocatable(object, admitted),
            state: self.state,
            launched: object.filter(|_| self.launched).and_then(launched_at),
        }
    }
}

/// Names of reserved pods that no recorded launch provides, as after a change of leader.
fn pod_names(deps: &LedgerView, launching: &BTreeMap<String, Arc<InFlightClaim>>) -> BTreeMap<String, String> {
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
    use crate::ledger::{ClaimSeed, Ledger};
    use crate::state::insufficient_capacity::Key;
    use plimsoll_model::catalog::CapacityType;
    use plimsoll_model::names::annotation;
    use plimsoll_model::taints::TaintEffect;
    use serde_json::json;
    use std::time::Duration;

    fn view_of(seeds: &[ClaimSeed]) -> LedgerView {
        LedgerView {
            stores: Stores::default(),
            ledger: LedgerHandle::new(Ledger::from_claims(1, seeds).0),
            insufficient_capacity: Arc::default(),
            clock: Clock::starting_at(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    /// A claim that pod p is reserved for.
    fn seed(name: &str) -> ClaimSeed {
        let annotations = [(annotation::PODS.to_owned(), r#"["p"]"#.to_owned())].into();
        ClaimSeed { name: name.to_owned(), pool: "pool".into(), annotations, ..ClaimSeed::default() }
    }

    fn states(deps: &LedgerView) -> Vec<(String, ClaimState, usize)> {
        in_flight(deps).into_values().map(|claim| (claim.name, claim.state, claim.pods.len())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn claims_are_in_flight_until_their_node_is_in_service_and_its_pods_had_time_to_come() {
        let capacity = || Some(Resources::from([("cpu", 1000)]));
        let no_pods = |name: &str| ClaimSeed { annotations: BTreeMap::new(), ..seed(name) };
        let launched = |name: &str| ClaimSeed { capacity: capacity(), ..no_pods(name) };
        let in_service = |name: &str| ClaimSeed { initialized: true, node: Some("n".into()), ..launched(name) };
        let deps = view_of(&[
            seed("a-launching"),
            launched("b-launched"),
            ClaimSeed { node: Some("n".into()), ..launched("c-registered") },
            in_service("d-in-service"),
            ClaimSeed { deleting: true, ..in_service("e-leaving") },
            ClaimSeed { pool: "".into(), ..launched("f-foreign") },
        ]);
        let [a, b, c, e] = [
            ("a-launching", ClaimState::Launching, 1),
            ("b-launched", ClaimState::Launched, 0),
            ("c-registered", ClaimState::Registered, 0),
            ("e-leaving", ClaimState::Terminating, 0),
        ]
        .map(|(name, state, pods)| (name.to_owned(), state, pods));
        assert_eq!(states(&deps), [a.clone(), b.clone(), c.clone(), e.clone()]);
        for name in ["a-launching", "c-registered"] {
            deps.ledger.with(|ledger| ledger.initialized(name, Timestamp(0)));
        }
        tokio::time::advance(Duration::from_millis(29_999)).await;
        assert_eq!(states(&deps), [a, b.clone(), e.clone()], "a pod is reserved for it");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(states(&deps), [b, e]);
    }

    /// The claim as it was admitted.
    fn admitted() -> InFlightClaim {
        let taint = Taint { key: "admitted".to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
        InFlightClaim {
            name: "c".to_owned(),
            node_pool: "pool".into(),
            pods: vec![PodRef { name: "shop/of-plan".to_owned(), uid: "p".into() }],
            labels: ["both", "admitted"].map(|key| (key.to_owned(), "admitted".to_owned())).into(),
            taints: vec![taint],
            allocatable: Resources::from([("cpu", 1000)]),
            state: ClaimState::Launching,
            ..InFlightClaim::default()
        }
    }

    /// The claim as it is in the cluster.
    fn object() -> NodeClaim {
        let launched = json!({"type": "Launched", "status": "True", "reason": "", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:07Z"});
        let claim = json!({
            "metadata": {"name": "c", "uid": "uid", "labels": {"both": "object"}},
            "status": {"allocatable": {"cpu": "2"}, "conditions": [launched]},
            "spec": {"requirements": [], "taints": [{"key": "object", "effect": "NoExecute"}],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}});
        serde_json::from_value(claim).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_shown_as_admitted_until_its_object_is_there() {
        let action = [(annotation::ACTION_ID.to_owned(), "one".to_owned())];
        let reserved = [(annotation::RESERVED.to_owned(), r#"{"cpu":"4"}"#.to_owned())];
        let annotations = seed("c").annotations.into_iter().chain(action).chain(reserved).collect();
        let mut shown = ClaimSeed { annotations, ..seed("c") };
        let deps = view_of(std::slice::from_ref(&shown));
        deps.ledger.launching(admitted());
        let view = |deps: &LedgerView| in_flight(deps).remove("c").unwrap();
        let usage = Resources::from([("cpu", 4000)]);
        let expected = InFlightClaim { action_id: Some("one".into()), limit_usage: usage.clone(), ..admitted() };
        assert_eq!(view(&deps), expected);
        deps.stores.claims.show(object());
        let pairs = [("both", "object"), ("admitted", "admitted"), (label::EC2_NODE_CLASS, "default")];
        let labels = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let taint = Taint { key: "object".to_owned(), value: String::new(), effect: TaintEffect::NoExecute };
        let with_object = InFlightClaim {
            uid: "uid".to_owned(),
            labels: labels.into(),
            taints: vec![taint],
            allocatable: Resources::from([("cpu", 2000)]),
            ..expected
        };
        assert_eq!(view(&deps), with_object, "the ledger does not know of its instance");

        // A new leader knows no admissions of its predecessor.
        shown.capacity = Some(usage);
        let deps = view_of(&[shown]);
        assert_eq!((view(&deps).pods[0].name.as_str(), view(&deps).launched), ("", None), "neither pod nor object");
        deps.stores.claims.show(object());
        let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "p"}});
        deps.stores.pods.show(serde_json::from_value(pod).unwrap());
        let shown = view(&deps);
        let facts = (shown.pods[0].name.as_str(), shown.launched, shown.state, shown.taints.len());
        assert_eq!(facts, ("shop/web", Some(Timestamp(7_000)), ClaimState::Launched, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn offerings_without_capacity_are_shown_with_the_time_that_they_are_skipped() {
        let deps = view_of(&[]);
        let (instance_type, zone, capacity_type) = (Some("m5.large".to_owned()), None, CapacityType::Spot);
        let key = Key { capacity_type, instance_type: instance_type.clone(), zone: None, placement_group: None };
        deps.insufficient_capacity.lock().mark(key, deps.clock.timestamp());
        tokio::time::advance(Duration::from_secs(60)).await;
        let remaining = plimsoll_model::time::Millis::from_seconds(120);
        assert_eq!(unavailable(&deps), [UnavailableOffering { instance_type, zone, capacity_type, remaining }]);
    }

    #[test]
    fn what_is_gone_is_not_launching() {
        let handle = view_of(&[seed("c")]).ledger;
        handle.launching(admitted());
        assert_eq!(handle.all_launching().len(), 1);
        handle.gone("c");
        assert!(handle.all_launching().is_empty() && !handle.read(|ledger| ledger.knows("c")));
    }

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
