//! When what changed (safety rule 18): a plan rests on pods, nodes and pools as they were at its ledger position.

use plimsoll_model::identity::{NodeName, NodePoolName, PodUid};
use plimsoll_model::snapshot::LedgerPosition;
use std::collections::BTreeMap;

/// More subjects than a cluster of 100,000 pods touches between two plans; beyond it, older plans are refused as a whole.
const MAX_SUBJECTS: usize = 200_000;

/// What a plan's action may rest on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A pod.
    Pod(PodUid),
    /// A node, or a claim on its way to one.
    Node(NodeName),
    /// A pool.
    Pool(NodePoolName),
}

/// A plan: the number of its driver in this term, and its snapshot's sequence, which each driver counts by itself.
pub(super) type PlanKey = (u64, u64);

/// The last change of each subject, and the plan that made it.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    last: BTreeMap<Subject, (LedgerPosition, Option<PlanKey>)>,
    floor: LedgerPosition,
}

impl Changes {
    /// Starts at a position: what happened before is not known, so plans from before are refused.
    pub(super) fn starting_at(floor: LedgerPosition) -> Self {
        Self { last: BTreeMap::new(), floor }
    }

    pub(super) fn floor(&self) -> LedgerPosition {
        self.floor
    }

    pub(super) fn note(&mut self, subject: Subject, at: LedgerPosition, plan: Option<PlanKey>) {
        self.last.insert(subject, (at, plan));
        if self.last.len() > MAX_SUBJECTS {
            self.last.clear();
            self.floor = at;
        }
    }

    /// Whether `subject` changed after `known`, by whomever.
    pub(super) fn changed_since(&self, subject: &Subject, known: LedgerPosition) -> bool {
        self.last.get(subject).is_some_and(|(at, _)| *at > known)
    }

    /// Whether `subject` changed after `known`, other than by the plan itself: a plan knows its own earlier actions.
    pub(super) fn changed_after(&self, subject: &Subject, known: LedgerPosition, plan: PlanKey) -> bool {
        self.last.get(subject).is_some_and(|(at, by)| *at > known && *by != Some(plan))
    }
}
