//! Actions of plans that were not executed because writes are paused.

use super::catalogs::Entries;
use super::proposals::Proposals;
use parking_lot::Mutex;
use plimsoll_model::identity::NodeName;
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
#[derive(Debug, Clone, Default)]
pub struct Unexecuted {
    /// Those of the latest plan.
    pub(crate) latest: watch::Sender<Option<Intent>>,
    /// Those of all plans of the period of the shadow report.
    pub(crate) proposals: Arc<Mutex<Proposals>>,
}

impl Unexecuted {
    /// Records a plan that is not executed. `catalogs` have the list prices of launches. `pool_of` tells the NodePool
    /// of a node.
    pub fn note(&self, plan: &Plan, catalogs: &Entries, pool_of: impl Fn(&NodeName) -> Option<String>) {
        self.proposals.lock().note(plan, catalogs, pool_of);
        let mut intent = Intent { removals: plan.terminations.len(), ..Intent::default() };
        for launch in &plan.launches {
            *intent.launches.entry(launch.node_pool.0.clone()).or_default() += 1;
        }
        self.latest.send_if_modified(|current| {
            let differs = current.as_ref() != Some(&intent);
            *current = Some(intent);
            differs
        });
    }
}
