//! Follows the watcher's Lease, so that a new watcher is known before its first plan arrives (safety rule 17).

use crate::pacing::until;
use crate::server::driver;
use crate::server::driver::DriverCheck;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// Reports each holder to the ledger until `stop`.
pub(super) async fn follow(deps: DriverCheck, stop: CancellationToken) {
    let name = &deps.settings.watcher_lease;
    let mut leases = std::pin::pin!(deps.reads.watch_lease(name));
    while let Some(Some(lease)) = until(&stop, leases.next()).await {
        match lease {
            Ok(lease) => {
                let Some(shown) = lease.as_ref().and_then(driver::of) else { continue };
                if driver::is_known(&deps, &shown) {
                    continue;
                }
                tracing::info!(holder = shown.holder, transitions = shown.transitions, "watcher lease observed");
                // The watch may lag behind a live read, even across a deletion. It only triggers the live read.
                if let Err(error) = driver::read(&deps).await {
                    tracing::warn!(lease = %name, error, "watcher lease not read, retrying at its next renewal or plan");
                }
            }
            // Execute reads the Lease anyway if the sender of a plan is unknown.
            Err(error) => tracing::warn!(lease = %name, %error, "watch failed, restarting"),
        }
    }
}
