//! What is asked of the ledger, and what it answers.

use super::Ledger;
use super::changes::Subject;
use super::outcomes::Outcome;
use super::rejection::Rejection;
use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::PodRef;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, LedgerPosition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    /// Pods of its launches that stand for room alone: what is reserved for them may be launched for again, once the plan knows of it.
    pub virtual_pods: Arc<BTreeSet<PodUid>>,
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

impl Ledger {
    /// A launch that was admitted is not carried out after all, and nothing of it was written: it is as if it had been refused.
    pub fn withdraw(&mut self, claim: &str, rejection: Rejection, plan: &PlanContext) {
        let Some(record) = self.claims.remove(claim) else { return };
        for pod in &record.pods {
            self.reserved.remove(pod);
        }
        self.note(record.pods.into_iter().map(Subject::Pod), Some(self.key(plan)));
        if let Some(action) = record.action {
            self.outcomes.set(&action, Outcome::Rejected(rejection));
        }
    }

    /// Room that a real pod has taken is bought anew, though it is reserved: by a plan that knows of the former launch. Of such a pod, a plan does not
    /// even know its own earlier actions.
    pub(super) fn check_virtual(&self, pod: &PodRef, plan: &PlanContext) -> Result<(), Rejection> {
        let subject = Subject::Pod(pod.uid.clone());
        if self.changes.changed_since(&subject, plan.position) { Err(Rejection::Changed(subject)) } else { Ok(()) }
    }
}
