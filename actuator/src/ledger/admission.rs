//! What is asked of the ledger, and what it answers.

use super::outcomes::Outcome;
use super::rejection::Rejection;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, LedgerPosition};
use std::collections::BTreeMap;

/// The watcher that drives (rule 17): read from its Lease, and sent with each plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// Holder of the watcher's lease.
    pub holder: String,
    /// Transitions of that lease.
    pub transitions: u64,
}

/// What a plan says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanContext {
    /// Who sends it.
    pub driver: Driver,
    /// The ledger position that its snapshot knows.
    pub position: LedgerPosition,
    /// Its snapshot's sequence; names the plan among those of a driver.
    pub snapshot_sequence: u64,
}

/// What a pool allows, by the actuator's own watch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolFacts {
    /// Limits; `nodes` counts nodes.
    pub limits: Resources,
    /// How many nodes may be on their way out at once, by reason, evaluated now; a reason that is missing has no limit.
    pub allowed: BTreeMap<DisruptionReason, u32>,
    /// How many nodes a static pool has.
    pub replicas: Option<u64>,
}

/// What came of asking for admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Admitted: the claim (the candidate's, for a removal), and the position from which snapshots know of it.
    Admitted {
        /// The claim's name.
        claim: String,
        /// Position after the admission.
        position: LedgerPosition,
    },
    /// The same action is under way or done already: nothing changed.
    Repeated(Outcome),
    /// Refused: nothing changed.
    Rejected(Rejection),
}

impl PlanContext {
    pub(super) fn key(&self) -> (u64, u64) {
        (self.driver.transitions, self.snapshot_sequence)
    }
}
