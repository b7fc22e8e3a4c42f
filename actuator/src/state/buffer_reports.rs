//! What CapacityBuffers are to show, as the watcher last reported it.

use parking_lot::Mutex;
use plimsoll_model::execution::BufferReport;
use plimsoll_runtime::signal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Namespace and name.
pub(crate) type Key = (String, String);

/// What was said last of all buffers. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct BufferReports {
    pub(crate) wanted: Arc<Mutex<BTreeMap<Key, BufferReport>>>,
    pub(crate) changed: signal::Sender,
}

impl BufferReports {
    /// Takes in what is said of all buffers; nothing, if that is as before.
    pub fn note(&self, reports: Vec<BufferReport>) {
        if reports.is_empty() {
            return;
        }
        let of = |report: BufferReport| ((report.namespace.clone(), report.name.clone()), report);
        *self.wanted.lock() = reports.into_iter().map(of).collect();
        self.changed.tell();
    }
}
