//! What pools show of themselves: hash, conditions, what they have (spec: core sections 1.1 and 6.2), and what claims show of
//! their drift and their last pod.

mod claims;
mod pools;

use crate::fencing::Fence;
use crate::io::Writes;
use crate::state::registrations::Registrations;
use crate::stores::Stores;
use plimsoll_runtime::clock::Clock;
use tokio_util::sync::CancellationToken;

/// Keeps the status of NodePools and of their claims.
#[derive(Clone)]
pub struct NodePoolStatus {
    /// Cluster as the watches show it.
    pub stores: Stores,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Whether instances became nodes of late.
    pub registrations: Registrations,
    /// The right to act.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// Keeps it up to date until `stop`.
pub async fn run(deps: NodePoolStatus, stop: CancellationToken) {
    deps.stores.wait_ready().await;
    tokio::join!(pools::run(&deps, &stop), claims::run(&deps, &stop));
}
