//! Dependencies of the gRPC handlers while this process leads.

use super::driver;
use super::terminations::Job;
use crate::events::Recorder;
use crate::fencing::Fence;
use crate::launch::admit::Admission;
use crate::ledger::feed::Sources;
use crate::ledger::handle::LedgerHandle;
use crate::ledger::view::LedgerView;
use crate::metrics::ActuatorMetrics;
use crate::removal::Removals;
use crate::state::buffer_reports::BufferReports;
use crate::state::catalogs::Catalogs;
use crate::state::nominations::Placements;
use crate::state::outcomes::Outcomes;
use crate::state::postponed_removals::PostponedRemovals;
use crate::state::unexecuted::Unexecuted;
use crate::state::zonal_shifts::ZonalShifts;
use crate::stores::Stores;
use plimsoll_runtime::clock::Clock;

/// Serves calls during a term of leadership.
#[derive(Clone)]
pub struct Leader {
    /// Admission of launches.
    pub admission: Admission,
    /// Removals of nodes.
    pub removals: Removals,
    /// Check of the plan's driver.
    pub drivers: driver::DriverCheck,
    /// Sources of the ledger's feed.
    pub sources: Sources,
    /// Ledger as its watchers see it.
    pub view: LedgerView,
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Catalog of each node class.
    pub catalogs: Catalogs,
    /// Zones that the cluster is shifted away from.
    pub zonal_shifts: ZonalShifts,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Outcomes of actions.
    pub outcomes: Outcomes,
    /// Planned placements of pods on existing and starting nodes.
    pub placements: Placements,
    /// Reports on CapacityBuffers.
    pub buffers: BufferReports,
    /// Nodes whose removal the latest plan postponed.
    pub postponed: PostponedRemovals,
    /// Actions of plans that were not executed while paused.
    pub unexecuted: Unexecuted,
    /// Queue of removals.
    pub terminations: tokio::sync::mpsc::Sender<Vec<Job>>,
    /// Events on objects.
    pub events: Recorder,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}
