//! Outcomes of actions. Execute streams them, and a repeated plan reads them again (safety rule 17).

use parking_lot::Mutex;
use plimsoll_model::execution::{Outcome, OutcomeStatus};
use plimsoll_model::identity::{ActionId, PodUid};
use plimsoll_model::plan::Plan;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::signal;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Actions remembered, enough for several plans; as many as in the ledger.
const MAX_ACTIONS: usize = 20_000;

#[derive(Debug, Default)]
struct OutcomeLog {
    by_action: BTreeMap<ActionId, Vec<Outcome>>,
    order: VecDeque<ActionId>,
    planned: Option<Timestamp>,
    /// The pods that the last plan has no room for.
    unschedulable: BTreeSet<PodUid>,
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
        self.changed.tell();
    }

    /// The outcomes of an action, oldest first.
    #[must_use]
    pub fn of(&self, action: &ActionId) -> Vec<Outcome> {
        self.log.lock().by_action.get(action).cloned().unwrap_or_default()
    }

    /// Records that a plan was received.
    pub fn planned(&self, plan: &Plan, now: Timestamp) {
        let mut log = self.log.lock();
        log.planned = Some(now);
        log.unschedulable = plan.unschedulable.iter().map(|unschedulable| unschedulable.pod.uid.clone()).collect();
    }

    /// Whether a plan was received since then.
    #[must_use]
    pub fn planned_since(&self, since: Timestamp) -> bool {
        self.log.lock().planned.is_some_and(|planned| planned > since)
    }

    /// Whether a plan was received since then, and the last one has no room for the pod.
    #[must_use]
    pub fn lacks_room(&self, pod: &PodUid, since: Timestamp) -> bool {
        let log = self.log.lock();
        log.planned.is_some_and(|planned| planned > since) && log.unschedulable.contains(pod)
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
}
