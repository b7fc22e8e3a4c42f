//! The ledger as the tasks of a term share it, and the signal by which watchers of it wake.

use super::Ledger;
use parking_lot::Mutex;
use plimsoll_model::execution::InFlightClaim;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_runtime::signal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ledger of a term. Clones share it. No lock is held across an await: every step is one synchronous closure.
#[derive(Debug, Clone)]
pub struct LedgerHandle {
    ledger: Arc<Mutex<Ledger>>,
    launching: Arc<Mutex<BTreeMap<String, InFlightClaim>>>,
    changed: signal::Sender,
}

impl LedgerHandle {
    /// Shares a ledger.
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger: Arc::new(Mutex::new(ledger)), launching: Arc::default(), changed: signal::Sender::default() }
    }

    /// One step that may change it; watchers look afterwards.
    pub fn with<T>(&self, step: impl FnOnce(&mut Ledger) -> T) -> T {
        let result = step(&mut self.ledger.lock());
        self.wake();
        result
    }

    /// Reads it.
    pub fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger.lock())
    }

    /// Where it stands.
    #[must_use]
    pub fn position(&self) -> LedgerPosition {
        self.read(Ledger::position)
    }

    /// Tells of every step.
    #[must_use]
    pub fn subscribe(&self) -> signal::Receiver {
        self.changed.subscribe()
    }

    /// Makes watchers look again, for what they show besides the ledger: claims, offerings without capacity.
    pub fn wake(&self) {
        self.changed.tell();
    }

    /// What watchers are to be shown of a claim that was admitted, until the cluster's own shows in our watch.
    pub fn launching(&self, claim: InFlightClaim) {
        self.launching.lock().insert(claim.name.clone(), claim);
    }

    /// A claim that was admitted is seen in our watch, or will never be.
    pub fn not_launching(&self, claim: &str) {
        self.launching.lock().remove(claim);
    }

    /// Claims that were admitted and are not seen in our watch yet, by name.
    #[must_use]
    pub fn all_launching(&self) -> BTreeMap<String, InFlightClaim> {
        self.launching.lock().clone()
    }
}
