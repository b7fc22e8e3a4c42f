//! Interruption handling (safety rule 13): on a notice that capacity is about to be reclaimed, the claim is annotated
//! and deleted at once, so that the next snapshot reschedules its pods. Each pod runs until its new node is in service,
//! or until the time that is left is needed to stop it.

mod capacity_blocks;
mod coverage;
mod drain_delay;
mod existing_capacity;
mod health;
mod mark;
pub mod messages;
mod node_conditions;
mod queue;
mod repair_limit;
mod replacements;

pub use drain_delay::DrainDelay;
pub(crate) use drain_delay::{delayed_pods, notice_of};
pub(crate) use replacements::PendingReplacements;

use crate::events::Recorder;
use crate::fencing::Fence;
use crate::io::{CloudCalls, CloudReads, Writes};
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::settings::Settings;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::stores::Stores;
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
    /// Kind of the notice, as used in metrics.
    pub kind: String,
    /// When the notice was received.
    pub heard: Timestamp,
    /// When the instance stops, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Timestamp>,
}

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Interruptions {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Fence of the term.
    pub fence: Fence,
    /// Offerings known to lack capacity.
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

/// Processes notices and checks the health of instances and nodes until `stop`.
pub async fn run(deps: Interruptions, stop: CancellationToken) {
    deps.stores.wait_ready().await;
    tokio::join!(
        queue::run(&deps, &stop),
        health::run(&deps, &stop),
        node_conditions::run(&deps, &stop),
        capacity_blocks::run(&deps, &stop),
    );
}

/// Claims by instance id.
fn claims_by_instance(deps: &Interruptions) -> BTreeMap<String, Arc<NodeClaim>> {
    let claims = deps.stores.claims.state();
    let with_instance = claims.into_iter().filter_map(|claim| {
        let id = claim.instance_id().map(str::to_owned)?;
        Some((id, claim))
    });
    with_instance.collect()
}
