//! Nodes whose removal the latest plan with removals postponed.

use parking_lot::Mutex;
use plimsoll_model::identity::NodeName;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of postponed removals: as many as a plan of the scheduler has.
const MAX: usize = 500;

/// The postponed removals of the latest plan that consolidates. Clones share them. They are not stored: the next plan
/// that consolidates names them again.
#[derive(Debug, Clone, Default)]
pub struct PostponedRemovals {
    latest: Arc<Mutex<Option<Postponed>>>,
}

/// The postponed removals of one plan.
#[derive(Debug, Clone)]
pub(crate) struct Postponed {
    /// When the plan was received.
    pub(crate) at: Timestamp,
    pub(crate) nodes: Arc<BTreeSet<NodeName>>,
}

impl PostponedRemovals {
    /// Records the postponed removals of a plan that consolidates.
    pub fn note(&self, plan: &Plan, now: Timestamp) {
        if plan.terminations.iter().any(|one| one.reason == DisruptionReason::Underutilized) {
            let nodes = plan.postponed_removals.iter().take(MAX).cloned().collect();
            *self.latest.lock() = Some(Postponed { at: now, nodes: Arc::new(nodes) });
        }
    }

    /// The latest postponed removals.
    pub(crate) fn latest(&self) -> Option<Postponed> {
        self.latest.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::plan::Termination;

    /// A plan with a removal for this reason.
    fn plan(reason: DisruptionReason, postponed: &[&str]) -> Plan {
        let removal = Termination { action_id: "r".into(), node: "n".into(), reason, ..Termination::default() };
        let postponed_removals = postponed.iter().map(|node| (*node).into()).collect();
        Plan { terminations: vec![removal], postponed_removals, ..Plan::default() }
    }

    /// Another plan has looked for no further removals.
    #[test]
    fn the_last_plan_that_consolidates_says_which_removals_are_postponed() {
        let removals = PostponedRemovals::default();
        let noted = |plan: &Plan, at: i64| {
            removals.note(plan, Timestamp(at));
            removals.latest().map(|latest| (latest.at.0, latest.nodes.iter().map(|node| node.0.clone()).collect()))
        };
        let expected = |at: i64, nodes: &[&str]| Some((at, nodes.iter().map(|node| (*node).to_owned()).collect()));
        let underutilized = |postponed: &[&str]| plan(DisruptionReason::Underutilized, postponed);
        assert_eq!(noted(&plan(DisruptionReason::Drifted, &["a"]), 1), None::<(i64, Vec<String>)>);
        assert_eq!(noted(&underutilized(&["b", "c"]), 2), expected(2, &["b", "c"]));
        assert_eq!(noted(&plan(DisruptionReason::Empty, &[]), 3), expected(2, &["b", "c"]));
        assert_eq!(noted(&Plan::default(), 4), expected(2, &["b", "c"]));
        assert_eq!(noted(&underutilized(&[]), 5), expected(5, &[]));
    }

    #[test]
    fn the_number_of_postponed_removals_is_bounded() {
        let removals = PostponedRemovals::default();
        let nodes: Vec<String> = (0..=MAX).map(|number| number.to_string()).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        removals.note(&plan(DisruptionReason::Underutilized, &nodes), Timestamp(1));
        assert_eq!(removals.latest().map(|latest| latest.nodes.len()), Some(MAX));
    }
}
