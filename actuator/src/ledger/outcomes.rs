//! Outcomes of admitted actions, remembered so that a repeated request gets the same answer (safety rule 17).

use plimsoll_model::identity::ActionId;
use std::collections::{BTreeMap, VecDeque};

/// Outcomes remembered, enough for several plans. A watcher asks again within seconds.
const MAX_OUTCOMES: usize = 20_000;

/// Outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted and in progress.
    Admitted,
    /// Succeeded.
    Done,
    /// Admitted, but failed. The action may be asked for again.
    Failed,
}

/// Outcomes by action. The oldest are evicted first.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_outcomes_the_oldest_is_forgotten() {
        let mut outcomes = Outcomes::default();
        let action = |number: usize| ActionId::from(number.to_string().as_str());
        (0..=MAX_OUTCOMES).for_each(|number| outcomes.set(&action(number), Outcome::Admitted));
        assert_eq!(outcomes.get(&action(0)), None);
        assert_eq!(outcomes.get(&action(1)), Some(&Outcome::Admitted));
        outcomes.set(&action(1), Outcome::Done);
        assert_eq!(outcomes.get(&action(2)), Some(&Outcome::Admitted), "a known action replaces none");
    }
}
