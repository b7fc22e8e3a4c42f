//! Outcomes of actions. Execute streams them, and a repeated plan reads them again (safety rule 17). Also what the last
//! plans have for pods.

use parking_lot::Mutex;
use plimsoll_model::execution::{Outcome, OutcomeStatus};
use plimsoll_model::identity::{ActionId, NodeName, PodUid};
use plimsoll_model::plan::Plan;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::signal;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Actions remembered, enough for several plans; as many as in the ledger.
const MAX_ACTIONS: usize = 20_000;
/// Pods remembered, as many as placements are remembered for. Beyond it, only those of the last plan are.
const MAX_PODS: usize = 50_000;

/// What a plan has for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedPod {
    /// A launch, admitted or not.
    Launch,
    /// A place on an existing node. A node that has not registered has the name of its claim.
    Place(NodeName),
    /// Nothing.
    Unschedulable,
}

#[derive(Debug, Default)]
struct OutcomeLog {
    by_action: BTreeMap<ActionId, Vec<Outcome>>,
    order: VecDeque<ActionId>,
    planned: Option<Timestamp>,
    /// What the last plan that names a pod has for it, and when that plan was received.
    pods: BTreeMap<PodUid, (Timestamp, PlannedPod)>,
}

/// Outcomes by action. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Outcomes {
    log: Arc<Mutex<OutcomeLog>>,
    changed: signal::Sender,
}

impl Outcomes {
    /// Records the progress of an action. If the action starts over (accepted or rejected), earlier outcomes are
    /// discarded.
    pub fn post(&self, outcome: Outcome) {
        let action = outcome.action_id.clone();
        let anew = matches!(outcome.status, OutcomeStatus::Accepted | OutcomeStatus::Rejected);
        let mut state = self.log.lock();
        let OutcomeLog { by_action, order, .. } = &mut *state;
        let list = by_action.entry(action.clone()).or_insert_with(|| {
            order.push_back(action);
            Vec::new()
        });
        if anew {
            list.clear();
        }
        list.push(outcome);
        while order.len() > MAX_ACTIONS {
            if let Some(oldest) = order.pop_front() {
                by_action.remove(&oldest);
            }
        }
        drop(state);
        self.changed.notify();
    }

    /// The outcomes of an action, oldest first.
    #[must_use]
    pub fn of(&self, action: &ActionId) -> Vec<Outcome> {
        self.log.lock().by_action.get(action).cloned().unwrap_or_default()
    }

    /// Whether the action has outcomes, and none is final.
    #[must_use]
    pub fn is_open(&self, action: &ActionId) -> bool {
        let state = self.log.lock();
        let last = state.by_action.get(action).and_then(|list| list.last());
        last.is_some_and(|last| !last.status.is_final())
    }

    /// Forgets the rejection of an action that is decided on again. Its caller would take it for the new decision.
    pub fn decided_again(&self, action: &ActionId) {
        let mut state = self.log.lock();
        let of_action = state.by_action.get_mut(action);
        if let Some(list) = of_action.filter(|list| list.last().is_some_and(|it| it.status == OutcomeStatus::Rejected))
        {
            list.clear();
        }
    }

    /// Records that a plan was received, and what it has for the pods that it names. It says nothing about other pods:
    /// it may be a part of a plan, or have been made before they had to move.
    pub fn planned(&self, plan: &Plan, now: Timestamp) {
        let launched = plan.launched_pods().map(|pod| (pod, PlannedPod::Launch));
        let placed = plan.placements.iter().flat_map(|to| {
            let place = PlannedPod::Place(to.node.clone());
            to.pods.iter().map(move |pod| (pod, place.clone()))
        });
        let unschedulable = plan.unschedulable.iter().map(|it| (&it.pod, PlannedPod::Unschedulable));
        let named = launched.chain(placed).chain(unschedulable);
        let mut log = self.log.lock();
        log.planned = Some(now);
        log.pods.extend(named.map(|(pod, planned)| (pod.uid.clone(), (now, planned))));
        if log.pods.len() > MAX_PODS {
            log.pods.retain(|_, (received, _)| *received == now);
        }
    }

    /// Whether a plan was received since then.
    #[must_use]
    pub fn planned_since(&self, since: Timestamp) -> bool {
        self.log.lock().planned.is_some_and(|planned| planned > since)
    }

    /// What the last plan that names the pod has for it, if it was received since then.
    #[must_use]
    pub fn planned_pod(&self, pod: &PodUid, since: Timestamp) -> Option<PlannedPod> {
        let log = self.log.lock();
        log.pods.get(pod).filter(|(received, _)| *received > since).map(|(_, planned)| planned.clone())
    }

    /// Subscribes to the signal of each change.
    #[must_use]
    pub fn subscribe(&self) -> signal::Receiver {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::plan::{Placement, PodRef, Unschedulable};
    use plimsoll_model::snapshot::LedgerPosition;

    fn outcome(number: usize, status: OutcomeStatus) -> Outcome {
        Outcome {
            action_id: number.to_string().as_str().into(),
            status,
            reason: None,
            message: String::new(),
            node_claim: None,
            ledger: LedgerPosition::default(),
        }
    }

    #[test]
    fn of_too_many_actions_the_oldest_is_forgotten() {
        let outcomes = Outcomes::default();
        (0..=MAX_ACTIONS).for_each(|number| outcomes.post(outcome(number, OutcomeStatus::Accepted)));
        assert_eq!(outcomes.of(&"0".into()), []);
        outcomes.post(outcome(1, OutcomeStatus::Launched));
        let known = [outcome(1, OutcomeStatus::Accepted), outcome(1, OutcomeStatus::Launched)];
        assert_eq!(outcomes.of(&"1".into()), known);
        assert_eq!(outcomes.of(&"2".into()).len(), 1, "a known action replaces none");
    }

    #[test]
    fn a_rejection_is_forgotten_once_the_action_is_decided_on_again() {
        let outcomes = Outcomes::default();
        for (number, status) in [(1, OutcomeStatus::Rejected), (2, OutcomeStatus::Accepted)] {
            outcomes.post(outcome(number, status));
            outcomes.decided_again(&number.to_string().as_str().into());
        }
        assert_eq!(outcomes.of(&"1".into()), []);
        assert_eq!(outcomes.of(&"2".into()), [outcome(2, OutcomeStatus::Accepted)]);
    }

    fn pod(uid: &str) -> PodRef {
        PodRef { name: format!("shop/{uid}"), uid: uid.into() }
    }

    fn without_room(pods: &[&str]) -> Plan {
        let unschedulable = pods.iter().map(|uid| Unschedulable { pod: pod(uid), reasons: Default::default() });
        Plan { unschedulable: unschedulable.collect(), ..Plan::default() }
    }

    fn with_place(uid: &str) -> Plan {
        Plan { placements: vec![Placement { node: "n".into(), pods: vec![pod(uid)] }], ..Plan::default() }
    }

    #[test]
    fn a_plan_changes_only_what_is_known_of_the_pods_that_it_names() {
        let outcomes = Outcomes::default();
        let known = |uid: &str| outcomes.planned_pod(&uid.into(), Timestamp(1));
        assert!(!outcomes.planned_since(Timestamp(0)), "no plan was received");
        outcomes.planned(&with_place("a"), Timestamp(1));
        assert_eq!(known("a"), None, "it was received before");
        outcomes.planned(&without_room(&["a", "b"]), Timestamp(2));
        outcomes.planned(&Plan::default(), Timestamp(3));
        outcomes.planned(&with_place("a"), Timestamp(4));
        assert_eq!(known("a"), Some(PlannedPod::Place("n".into())));
        assert_eq!(known("b"), Some(PlannedPod::Unschedulable));
        assert_eq!(known("c"), None);
        assert!(outcomes.planned_since(Timestamp(3)) && !outcomes.planned_since(Timestamp(4)));
    }

    #[test]
    fn of_too_many_pods_those_of_the_last_plan_are_known() {
        let outcomes = Outcomes::default();
        let many: Vec<String> = (0..MAX_PODS).map(|number| number.to_string()).collect();
        outcomes.planned(&without_room(&many.iter().map(String::as_str).collect::<Vec<_>>()), Timestamp(1));
        let is_known = |uid: &str| outcomes.planned_pod(&uid.into(), Timestamp(0)).is_some();
        assert!(is_known("0"));
        outcomes.planned(&with_place("one-more"), Timestamp(2));
        assert!(is_known("one-more") && !is_known("0"));
    }
}
