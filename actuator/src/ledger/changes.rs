//! Tracks when subjects changed (safety rule 18). A plan rests on pods, nodes and pools as they were at its ledger
//! position.

use plimsoll_model::identity::{NodeName, NodePoolName, PodUid};
use plimsoll_model::snapshot::LedgerPosition;
use std::collections::BTreeMap;
use std::fmt;

/// Subjects remembered: more than a cluster of 100,000 pods changes between two plans. When exceeded, older plans are
/// rejected as a whole.
const MAX_SUBJECTS: usize = 200_000;

/// A subject that a plan's action may rest on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A pod.
    Pod(PodUid),
    /// A node, or a claim that will become one.
    Node(NodeName),
    /// A pool.
    Pool(NodePoolName),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(uid) => write!(f, "pod {uid}"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Pool(name) => write!(f, "NodePool {name}"),
        }
    }
}

/// Identifies a plan: the number of its driver in this term, and the snapshot's sequence, which each driver counts on
/// its own.
pub(super) type PlanKey = (u64, u64);

/// The last change of each subject, and the plan that made it.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    last: BTreeMap<Subject, (LedgerPosition, Option<PlanKey>)>,
    floor: LedgerPosition,
}

impl Changes {
    /// Starts at a position. Earlier changes are unknown, so plans from before are rejected.
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

    /// Whether anyone changed `subject` after `known`.
    pub(super) fn changed_since(&self, subject: &Subject, known: LedgerPosition) -> bool {
        self.last.get(subject).is_some_and(|(at, _)| *at > known)
    }

    /// Whether `subject` changed after `known`, other than by the plan itself, which includes its own earlier actions.
    pub(super) fn changed_after(&self, subject: &Subject, known: LedgerPosition, plan: PlanKey) -> bool {
        self.last.get(subject).is_some_and(|(at, by)| *at > known && *by != Some(plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_too_many_changes_older_plans_are_rejected_as_a_whole() {
        let at = |sequence: u64| LedgerPosition { epoch: 1, sequence };
        let node = |number: usize| Subject::Node(number.to_string().as_str().into());
        let mut changes = Changes::starting_at(at(0));
        for number in 0..MAX_SUBJECTS {
            changes.note(node(number), at(1), None);
        }
        assert!(changes.floor() == at(0) && changes.changed_since(&node(0), at(0)));
        changes.note(node(MAX_SUBJECTS), at(2), None);
        assert_eq!(changes.floor(), at(2), "what changed before is not known any more");
    }
}
