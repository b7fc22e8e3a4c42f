//! Disruption budgets: how many removals are in progress when another one begins.

use super::{Observer, command, is_forced, is_late};
use plimsoll_sim::apiserver::store::Event;
use plimsoll_sim::apiserver::{Audit, object};
use serde_json::Value;

/// The budget of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Budget {
    /// This many nodes.
    Nodes(usize),
    /// Of the nodes, rounded up.
    Percent(usize),
}

impl Budget {
    /// Parses a budget such as `1` or `50%`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Self::Percent),
            None => text.parse().ok().map(Self::Nodes),
        }
    }

    fn allows(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(count) => count,
            Self::Percent(percent) => (nodes * percent).div_ceil(100),
        }
    }
}

impl Observer {
    /// When a command of a removal appears, all commands together are within the budget. NodeClaims that users delete
    /// are not counted, since a budget limits only when removals begin, nor those whose instance was being terminated,
    /// nor late commands. A percentage is of the largest number of NodeClaims so far, since nodes may go between the
    /// admission and the command.
    pub(super) fn check_budget(&mut self, event: &Event, by: &Audit) -> Result<(), String> {
        let (claim, before) = (&event.object, event.previous.as_deref());
        let Some(begun) = command(claim).filter(|_| before.and_then(command).is_none()) else { return Ok(()) };
        if is_late(by) {
            self.late.insert(object::uid(claim).to_owned());
        }
        let Some(budget) = self.budget.filter(|_| !is_late(by) && !is_forced(&begun)) else { return Ok(()) };
        let counts = |claim: &Value| {
            command(claim).is_some()
                && !self.ended.contains(object::uid(claim))
                && !self.late.contains(object::uid(claim))
        };
        let count = self.claims.values().filter(|claim| counts(claim)).count();
        let allowed = budget.allows(self.most_claims);
        if count > allowed {
            return Err(format!("{count} removals are in progress, the budget allows {allowed}: {by:?}"));
        }
        Ok(())
    }
}
