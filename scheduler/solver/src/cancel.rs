//! Cancels a solve whose caller no longer waits for the plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a solve early. The plan of a cancelled solve is valid, but may place fewer pods and cost more.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends the solve soon. A cancellation cannot be undone.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the solve must end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
