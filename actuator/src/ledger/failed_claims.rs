//! Claims that do not come into service, or not for long: their pods can be planned again.

use super::Ledger;
use super::changes::Subject;
use super::failures::NOT_INITIALIZED;
use super::outcomes::Outcome;
use plimsoll_model::time::Timestamp;

impl Ledger {
    /// Records that a claim failed: its pods can be planned again, on a snapshot that includes the failure. The claim
    /// counts towards limits until [`Ledger::gone`].
    pub fn failed(&mut self, claim: &str, cause: &str, now: Timestamp) {
        if let Some(record) = self.claims.get_mut(claim) {
            record.deleting = true;
            self.end_reservations(claim, cause, now);
        }
    }

    /// Records that a claim that is not being deleted has an instance. Its launch may have been given up before, and
    /// its deletion may have got lost.
    pub fn found(&mut self, claim: &str) {
        if let Some(record) = self.claims.get_mut(claim) {
            record.deleting = false;
        }
    }

    /// Records that a claim's node is not initialized in time. Its pods can be planned again, as if the claim had
    /// failed, but the claim stays: the node may still be initialized.
    pub fn not_initialized(&mut self, claim: &str, now: Timestamp) {
        if let Some(record) = self.claims.get_mut(claim).filter(|record| !record.overdue) {
            record.overdue = true;
            if !record.initialized && !record.deleting {
                self.end_reservations(claim, NOT_INITIALIZED, now);
            }
        }
    }

    /// Ends the reservations of a claim's pods, and returns these.
    pub(super) fn free_pods(&mut self, claim: &str) -> Vec<Subject> {
        let pods = self.claims.get_mut(claim).map(|record| std::mem::take(&mut record.pods)).unwrap_or_default();
        for pod in &pods {
            self.reserved.remove(pod);
        }
        pods.into_iter().map(Subject::Pod).collect()
    }

    fn end_reservations(&mut self, claim: &str, cause: &str, now: Timestamp) {
        let mut changed = self.free_pods(claim);
        let Some(record) = self.claims.get(claim) else { return };
        let (pool, action) = (record.pool.clone(), record.action.clone());
        self.failures.failed(&pool, cause, now);
        changed.push(Subject::Pool(pool));
        self.note(changed, None);
        if let Some(action) = action {
            self.outcomes.set(&action, Outcome::Failed);
        }
    }
}
