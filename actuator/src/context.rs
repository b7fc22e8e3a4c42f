//! What everything that acts during a term of leadership needs.

use crate::authority::Authority;
use crate::buffer_status::BufferReports;
use crate::catalogs::Catalogs;
use crate::cluster_facts::Current;
use crate::events::Recorder;
use crate::launch::Launches;
use crate::launch_template::Templates;
use crate::leadership::Unexecuted;
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::node_pool_status::Registrations;
use crate::nomination::Placed;
use crate::outcomes::Outcomes;
use crate::pace::Pace;
use crate::ports::{Compute, InstanceProfiles, InterruptionQueue, Parameters, PriceList};
use crate::server::terminations::Job;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::unavailable::Unavailable;
use parking_lot::Mutex;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The cloud behind its ports.
#[derive(Debug, Clone)]
pub struct Cloud {
    /// EC2.
    pub compute: Arc<dyn Compute>,
    /// SSM.
    pub parameters: Arc<dyn Parameters>,
    /// IAM.
    pub profiles: Arc<dyn InstanceProfiles>,
    /// The price list.
    pub prices: Arc<dyn PriceList>,
    /// The queue of interruptions, if there is one.
    pub queue: Option<Arc<dyn InterruptionQueue>>,
}

/// What outlives a term: the process's own. Clones share it.
#[derive(Clone)]
pub struct Shared {
    /// The cluster, for writes and live reads. It must not retry by itself.
    pub client: kube::Client,
    /// The cloud.
    pub cloud: Cloud,
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
    /// How fast EC2 may be called.
    pub pace: Pace,
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
    /// The gate before every side effect.
    pub authority: Authority,
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
