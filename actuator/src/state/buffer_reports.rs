//! The watcher's latest reports on CapacityBuffers.

use parking_lot::Mutex;
use plimsoll_model::execution::BufferReport;
use plimsoll_runtime::signal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Namespace and name.
pub(crate) type BufferKey = (String, String);

/// The latest report of each buffer. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct BufferReports {
    pub(crate) wanted: Arc<Mutex<BTreeMap<BufferKey, BufferReport>>>,
    pub(crate) changed: signal::Sender,
}

impl BufferReports {
    /// Replaces all reports. Does not notify if nothing changed.
    pub fn note(&self, reports: Vec<BufferReport>) {
        if reports.is_empty() {
            return;
        }
        let of = |report: BufferReport| ((report.namespace.clone(), report.name.clone()), report);
        *self.wanted.lock() = reports.into_iter().map(of).collect();
        self.changed.notify();
    }
}
