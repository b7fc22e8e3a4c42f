//! Whose plans are carried out (safety rule 17): the holder of the watcher's Lease, read live where it is not known.

use crate::authority::CLUSTER_CALL;
use crate::context::Context;
use crate::ledger::Driver;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tonic::Status;

/// The driver as the ledger knows it by now; an older one is refused.
pub(crate) async fn check(context: &Context, driver: &Driver) -> Result<(), Status> {
    if is_known(context, driver) {
        return Ok(());
    }
    let read = read(context).await.map_err(|error| Status::unavailable(format!("the watcher's lease: {error}")))?;
    if let Some(read) = read {
        context.ledger.with(|ledger| ledger.observe_driver(read));
    }
    if is_known(context, driver) {
        return Ok(());
    }
    let known = context.ledger.read(|ledger| ledger.driver().clone());
    tracing::warn!(
        sent_by = driver.holder,
        transitions = driver.transitions,
        leads = known.holder,
        "a plan of a watcher that does not lead"
    );
    let lease = &context.settings.watcher_lease;
    let message = format!(
        "{} with transition {} does not hold the lease {lease}: {} does, with transition {}",
        driver.holder, driver.transitions, known.holder, known.transitions
    );
    Err(Status::failed_precondition(message))
}

/// Whether it is the one that leads, as far as is known.
pub(crate) fn is_known(context: &Context, driver: &Driver) -> bool {
    context.ledger.read(|ledger| ledger.driver() == driver)
}

async fn read(context: &Context) -> Result<Option<Driver>, String> {
    let name = &context.settings.watcher_lease;
    let api: Api<Lease> = Api::namespaced(context.client.clone(), &name.namespace);
    let lease = tokio::time::timeout(CLUSTER_CALL, api.get_opt(&name.name))
        .await
        .map_err(|_| format!("no answer within {CLUSTER_CALL:?}"))?
        .map_err(|error| error.to_string())?;
    Ok(lease.and_then(|lease| of(&lease)))
}

/// Who holds a Lease; `None` if nobody does.
pub(crate) fn of(lease: &Lease) -> Option<Driver> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    let transitions = u64::try_from(spec.lease_transitions.unwrap_or(0)).unwrap_or(0);
    Some(Driver { holder, transitions })
}
