//! Status of NodePools (hash, conditions, resources), and the conditions, last pod event time and price of their
//! claims.

mod claims;
mod consistency;
mod drift;
mod hash;
mod pools;
mod prices;
mod reserved_labels;

use crate::events::Recorder;
use crate::fencing::Fence;
use crate::io::{CloudReads, Writes};
use crate::metrics::ActuatorMetrics;
use crate::state::catalogs::Catalogs;
use crate::state::instances::ListedInstances;
use crate::state::pod_events::PodEvents;
use crate::state::registrations::Registrations;
use crate::stores::Stores;
use plimsoll_runtime::clock::Clock;
use tokio_util::sync::CancellationToken;

/// Dependencies of the controller.
#[derive(Clone)]
pub struct NodePoolStatus {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Catalogs of the node classes.
    pub catalogs: Catalogs,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Instances as EC2 listed them.
    pub instances: ListedInstances,
    /// Pod events that plans may not know.
    pub pod_events: PodEvents,
    /// Recent registration results by pool.
    pub registrations: Registrations,
    /// Events on objects.
    pub events: Recorder,
    /// Fence of the term.
    pub fence: Fence,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Time.
    pub clock: Clock,
}

/// Updates the status until `stop`.
pub async fn run(deps: NodePoolStatus, stop: CancellationToken) {
    deps.stores.wait_ready().await;
    tokio::join!(
        pools::run(&deps, &stop),
        claims::run(&deps, &stop),
        reserved_labels::run(&deps, &stop),
        prices::run(&deps, &stop)
    );
}
