//! Actions of plans that were not executed because writes are paused.

use plimsoll_model::plan::Plan;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The actions of the latest plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) launches: BTreeMap<String, usize>,
    pub(crate) removals: usize,
}

/// Actions of plans that were not executed while paused. Clones share them.
#[derive(Debug, Clone)]
pub struct Unexecuted(pub(crate) Arc<watch::Sender<Option<Intent>>>);

impl Default for Unexecuted {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Unexecuted {
    /// Records a plan that is not executed.
    pub fn note(&self, plan: &Plan) {
        let mut intent = Intent { removals: plan.terminations.len(), ..Intent::default() };
        for launch in &plan.launches {
            *intent.launches.entry(launch.node_pool.0.clone()).or_default() += 1;
        }
        self.0.send_if_modified(|current| {
            let differs = current.as_ref() != Some(&intent);
            *current = Some(intent);
            differs
        });
    }
}
