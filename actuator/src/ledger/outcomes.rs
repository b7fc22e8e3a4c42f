//! What became of actions, kept so that it can be asked for again (safety rule 17).

use super::rejection::Rejection;
use plimsoll_model::identity::ActionId;
use std::collections::{BTreeMap, VecDeque};

/// Outcomes kept: some plans' worth; a watcher asks again within seconds.
const MAX_OUTCOMES: usize = 20_000;

/// What became of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted and under way.
    Admitted,
    /// Refused.
    Rejected(Rejection),
    /// Came through.
    Done,
    /// Admitted, but failed, for this cause.
    Failed(String),
}

/// Outcomes by action, the oldest forgotten first.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcomes {
    by_action: BTreeMap<ActionId, Outcome>,
    order: VecDeque<ActionId>,
}

impl Outcomes {
    pub(super) fn get(&self, action: &ActionId) -> Option<&Outcome> {
        self.by_action.get(action)
    }

    pub(super) fn set(&mut self, action: &ActionId, outcome: Outcome) {
        if self.by_action.insert(action.clone(), outcome).is_none() {
            self.order.push_back(action.clone());
        }
        while self.order.len() > MAX_OUTCOMES {
            if let Some(oldest) = self.order.pop_front() {
                self.by_action.remove(&oldest);
            }
        }
    }
}
