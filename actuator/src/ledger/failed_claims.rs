//! Claims that do not come into service: their pods can be planned again.

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

    fn end_reservations(&mut self, claim: &str, cause: &str, now: Timestamp) {
        let Some(record) = self.claims.get_mut(claim) else { return };
        let pods = std::mem::take(&mut record.pods);
        let (pool, action) = (record.pool.clone(), record.action.clone());
        for pod in &pods {
            self.reserved.remove(pod);
        }
        self.failures.failed(&pool, cause, now);
        self.note(pods.into_iter().map(Subject::Pod).chain([Subject::Pool(pool)]), None);
        if let Some(action) = action {
            self.outcomes.set(&action, Outcome::Failed(cause.to_owned()));
        }
    }
}
