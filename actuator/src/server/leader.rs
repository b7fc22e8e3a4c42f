//! What the leader answers calls with.

use super::driver;
use super::terminations::Job;
use crate::catalogs::Catalogs;
use crate::events::Recorder;
use crate::fencing::Fence;
use crate::launch::admit::Admission;
use crate::ledger::feed::Sources;
use crate::ledger::handle::LedgerHandle;
use crate::ledger::view::LedgerView;
use crate::metrics::ActuatorMetrics;
use crate::removal::Removals;
use crate::state::buffer_reports::BufferReports;
use crate::state::nominations::Placed;
use crate::state::outcomes::Outcomes;
use crate::state::unexecuted::Unexecuted;
use crate::stores::Stores;
use plimsoll_runtime::clock::Clock;

/// Serves calls during a term of leadership.
#[derive(Clone)]
pub struct Leader {
    /// Admission of launches.
    pub admission: Admission,
    /// Removals of nodes.
    pub removals: Removals,
    /// Whose plans are carried out.
    pub drivers: driver::Drivers,
    /// What the ledger is fed from.
    pub sources: Sources,
    /// Ledger as its watchers see it.
    pub view: LedgerView,
    /// Cluster as the watches show it.
    pub stores: Stores,
    /// What each node class can buy.
    pub catalogs: Catalogs,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Outcomes of actions.
    pub outcomes: Outcomes,
    /// Where plans place pods, besides launches.
    pub placed: Placed,
    /// What CapacityBuffers are to show.
    pub buffers: BufferReports,
    /// What plans would have done while paused.
    pub unexecuted: Unexecuted,
    /// Queue of removals.
    pub terminations: tokio::sync::mpsc::Sender<Vec<Job>>,
    /// Events on objects.
    pub events: Recorder,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// The right to act.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}
