//! The ledger shared by the tasks of a term, with a signal that wakes watchers of the ledger.

use super::Ledger;
use parking_lot::Mutex;
use plimsoll_model::execution::InFlightClaim;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_runtime::signal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ledger of a term. Clones share it. Every step is one synchronous closure, so no lock is held across an await.
#[derive(Debug, Clone)]
pub struct LedgerHandle {
    ledger: Arc<Mutex<Ledger>>,
    launching: Arc<Mutex<BTreeMap<String, Arc<InFlightClaim>>>>,
    changed: signal::Sender,
}

impl LedgerHandle {
    /// Shares a ledger.
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger: Arc::new(Mutex::new(ledger)), launching: Arc::default(), changed: signal::Sender::default() }
    }

    /// Runs a step that may change the ledger, then wakes watchers.
    pub fn with<T>(&self, step: impl FnOnce(&mut Ledger) -> T) -> T {
        let result = step(&mut self.ledger.lock());
        self.wake();
        result
    }

    /// Runs a step that only reads the ledger.
    pub fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger.lock())
    }

    /// The current position.
    #[must_use]
    pub fn position(&self) -> LedgerPosition {
        self.read(Ledger::position)
    }

    /// Subscribes to the signal of each step.
    #[must_use]
    pub fn subscribe(&self) -> signal::Receiver {
        self.changed.subscribe()
    }

    /// Wakes watchers, for changes outside the ledger that they show: claims, offerings without capacity.
    pub fn wake(&self) {
        self.changed.notify();
    }

    /// Stores the view of an admitted claim until the watch cache shows the NodeClaim. Call it in the step that admits
    /// the claim, so that no reader sees the claim without its view.
    pub fn launching(&self, claim: InFlightClaim) {
        self.launching.lock().insert(claim.name.clone(), Arc::new(claim));
    }

    /// Records that a claim is gone, and removes its view.
    pub fn gone(&self, claim: &str) {
        self.with(|ledger| ledger.gone(claim));
        self.not_launching(claim);
    }

    /// Removes the view of a claim that the watch cache shows, or that will never appear.
    pub fn not_launching(&self, claim: &str) {
        self.launching.lock().remove(claim);
    }

    /// Admitted claims that the watch cache does not show yet, by name.
    #[must_use]
    pub fn all_launching(&self) -> BTreeMap<String, Arc<InFlightClaim>> {
        self.launching.lock().clone()
    }
}
