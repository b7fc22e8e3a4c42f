//! Notices that capacity is about to be taken back (safety rule 13): the claim is marked and deleted at once, so that the next
//! snapshot has its pods to place; the drain waits for the replacement, but not for long.

mod drain_delay;
mod health;
mod mark;
pub mod messages;
mod queue;
mod room;

pub use drain_delay::DrainDelay;
pub(crate) use drain_delay::{PendingReplacements, remaining_delay};

use crate::events::Recorder;
use crate::fencing::Fence;
use crate::io::{CloudCalls, CloudReads, Writes};
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::settings::Settings;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::stores::{Stores, instance_id, provider_id};
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The value of [`plimsoll_model::names::annotation::INTERRUPTED`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// What was said, as in metrics.
    pub kind: String,
    /// When it was heard.
    pub heard: Timestamp,
}

/// Acts on notices that capacity is about to be taken back.
#[derive(Clone)]
pub struct Interruptions {
    /// Cluster as the watches show it.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// The right to act.
    pub fence: Fence,
    /// Offerings without capacity.
    pub insufficient_capacity: Arc<Mutex<InsufficientCapacity>>,
    /// Events on objects.
    pub events: Recorder,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Time.
    pub clock: Clock,
}

/// Listens for notices, and looks at the health of instances, until `stop`.
pub async fn run(deps: Interruptions, stop: CancellationToken) {
    deps.stores.wait_ready().await;
    tokio::join!(queue::run(&deps, &stop), health::run(&deps, &stop));
}

/// Claims by their instance.
fn claims_by_instance(deps: &Interruptions) -> BTreeMap<String, Arc<NodeClaim>> {
    let claims = deps.stores.claims.state();
    let with_instance = claims.into_iter().filter_map(|claim| {
        let id = provider_id(&claim).and_then(instance_id).map(str::to_owned)?;
        Some((id, claim))
    });
    with_instance.collect()
}
