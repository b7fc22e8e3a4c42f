//! Determines whose plans are executed (safety rule 17): the holder of the watcher's Lease, read live if the sender is
//! unknown.

use crate::fencing::CLUSTER_CALL;
use crate::io::Reads;
use crate::ledger::Driver;
use crate::ledger::handle::LedgerHandle;
use crate::settings::Settings;
use k8s_openapi::api::coordination::v1::Lease;
use std::sync::Arc;
use tonic::Status;

/// Dependencies of the driver check.
#[derive(Clone)]
pub struct DriverCheck {
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Live reads of the cluster.
    pub reads: Reads,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Held while the Lease is read and recorded.
    pub driver_reads: Arc<tokio::sync::Mutex<()>>,
}

/// Checks that `driver` is the current driver. Reads the Lease live if the ledger does not know the driver; an older
/// driver is rejected.
pub(crate) async fn check(deps: &DriverCheck, driver: &Driver) -> Result<(), Status> {
    if is_known(deps, driver) {
        return Ok(());
    }
    read(deps).await.map_err(|error| Status::unavailable(format!("the watcher's lease: {error}")))?;
    if is_known(deps, driver) {
        return Ok(());
    }
    let current = deps.ledger.read(|ledger| ledger.driver().clone());
    tracing::warn!(
        sent_by = driver.holder,
        transitions = driver.transitions,
        leads = current.holder,
        "plan rejected: its watcher does not lead"
    );
    let lease = &deps.settings.watcher_lease;
    let message = format!(
        "{} with transition {} does not hold the lease {lease}: {} does, with transition {}",
        driver.holder, driver.transitions, current.holder, current.transitions
    );
    Err(Status::failed_precondition(message))
}

/// Whether `driver` is the current driver, as far as known.
pub(crate) fn is_known(deps: &DriverCheck, driver: &Driver) -> bool {
    deps.ledger.read(|ledger| ledger.driver() == driver)
}

/// Reads the Lease live and records its holder in the ledger. Reads are serialized: a response overtaken by a later
/// read would restore the former holder.
///
/// # Errors
/// The API server times out or returns an error.
pub(crate) async fn read(deps: &DriverCheck) -> Result<(), String> {
    let name = &deps.settings.watcher_lease;
    let read = async {
        let _in_order = deps.driver_reads.lock().await;
        let lease = deps.reads.lease(name).await.map_err(|error| error.to_string())?;
        // A deleted or released Lease names no holder: the driver stays until another process holds the Lease.
        if let Some(driver) = lease.and_then(|lease| of(&lease)) {
            deps.ledger.with(|ledger| ledger.observe_driver(driver));
        }
        Ok(())
    };
    tokio::time::timeout(CLUSTER_CALL, read).await.map_err(|_| format!("no response within {CLUSTER_CALL:?}"))?
}

/// The holder of a Lease, if there is one.
pub(crate) fn of(lease: &Lease) -> Option<Driver> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    let transitions = u64::try_from(spec.lease_transitions.unwrap_or(0)).unwrap_or(0);
    Some(Driver { holder, transitions })
}
