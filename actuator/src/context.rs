//! What everything that acts during a term of leadership needs.

use crate::buffer_status::BufferReports;
use crate::catalogs::Catalogs;
use crate::cluster_facts::Current;
use crate::events::Recorder;
use crate::fencing::Fence;
use crate::io::{CloudCalls, CloudReads, Connections, Reads, Writes};
use crate::launch::Launches;
use crate::launch_template::Templates;
use crate::leadership::Unexecuted;
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::node_pool_status::Registrations;
use crate::nomination::Placed;
use crate::outcomes::Outcomes;
use crate::server::terminations::Job;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::unavailable::Unavailable;
use parking_lot::Mutex;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What outlives a term: the process's own. Clones share it.
#[derive(Clone)]
pub struct Shared {
    /// Where each term gets its writes and calls from.
    pub connections: Connections,
    /// Live reads of the cluster.
    pub reads: Reads,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Time.
    pub clock: Clock,
    /// What the installation says; facts of the cluster as at the start.
    pub settings: Arc<Settings>,
    /// The settings with the facts of the cluster as they are now.
    pub current: Current,
    /// The cluster as our watch shows it.
    pub stores: Stores,
    /// Offerings known to have no capacity.
    pub unavailable: Arc<Mutex<Unavailable>>,
    /// What each node class can buy.
    pub catalogs: Catalogs,
    /// Launch templates that exist.
    pub templates: Templates,
    /// Whether instances became nodes of late.
    pub registrations: Registrations,
    /// Counters.
    pub metrics: ActuatorMetrics,
    /// Events on objects.
    pub events: Recorder,
}

/// What a term has. Clones share it.
#[derive(Clone)]
pub struct Context {
    /// What outlives the term.
    pub shared: Shared,
    /// What is under way.
    pub ledger: LedgerHandle,
    /// Held while the watcher's Lease is read and taken in.
    pub driver_reads: Arc<tokio::sync::Mutex<()>>,
    /// The right to act, which effects are checked against.
    pub fence: Fence,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// What plans would have done while nothing is written.
    pub unexecuted: Unexecuted,
    /// What became of actions.
    pub outcomes: Outcomes,
    /// Where groups that were admitted go.
    pub launches: Launches,
    /// Where plans place pods, besides launches.
    pub placed: Placed,
    /// What CapacityBuffers are to show.
    pub buffers: BufferReports,
    /// Where removals go before they are admitted.
    pub terminations: mpsc::Sender<Vec<Job>>,
}

impl std::ops::Deref for Context {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(self.clock.now_millis())
    }
}
