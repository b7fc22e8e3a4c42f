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
