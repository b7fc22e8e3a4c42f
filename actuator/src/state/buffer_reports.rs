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
    /// Replaces all reports. Without any, those of the last execution stay: launches that are sent before the rest of
    /// their plan have none.
    pub fn note(&self, reports: Vec<BufferReport>) {
        if reports.is_empty() {
            return;
        }
        let of = |report: BufferReport| ((report.namespace.clone(), report.name.clone()), report);
        *self.wanted.lock() = reports.into_iter().map(of).collect();
        self.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use plimsoll_model::execution::BufferReady;

    fn report(name: &str) -> BufferReport {
        BufferReport {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            replicas: 1,
            ready: BufferReady::Resolved,
            ..BufferReport::default()
        }
    }

    #[test]
    fn reports_stay_until_an_execution_has_others() {
        let reports = BufferReports::default();
        let mut changed = reports.changed.subscribe();
        for (noted, known, is_told) in
            [(&["a", "b"][..], &["a", "b"][..], true), (&[], &["a", "b"], false), (&["b"], &["b"], true)]
        {
            changed.mark_unchanged();
            reports.note(noted.iter().map(|name| report(name)).collect());
            let names: Vec<String> = reports.wanted.lock().keys().map(|(_, name)| name.clone()).collect();
            assert_eq!(names, known);
            assert_eq!(changed.changed().now_or_never().is_some(), is_told, "{noted:?}");
        }
    }
}
