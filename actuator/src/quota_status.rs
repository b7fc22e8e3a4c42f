//! Status of CapacityQuotas: what the ledger counts against each one, and whether its fields are valid.

use crate::io::{ObjectPart, WriteError, Writes};
use crate::ledger::handle::LedgerHandle;
use crate::pacing::until;
use crate::stores::{Stores, WatchedKind};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use plimsoll_api::CapacityQuota;
use plimsoll_api::capacity_quota::{CapacityQuotaStatus, CapacityQuotaUsage};
use plimsoll_api::condition::capacity_quota::{CONDITIONS, VALID};
use plimsoll_api::condition::{Moment, Status};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use plimsoll_runtime::clock::Clock;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Minimum interval between passes. A burst of launches changes the ledger many times per second.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before a failed write is retried, if nothing changes.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct QuotaStatus {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// The ledger.
    pub ledger: LedgerHandle,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Time.
    pub clock: Clock,
}

/// Writes changed statuses until `stop`.
pub(crate) async fn run(deps: QuotaStatus, stop: CancellationToken) {
    let write = async {
        deps.stores.wait_ready().await;
        let mut quotas = deps.stores.changes(&[WatchedKind::CapacityQuota]);
        let mut ledger = deps.ledger.subscribe();
        loop {
            ledger.mark_unchanged();
            let failed = write_all(&deps).await;
            tokio::time::sleep(MIN_INTERVAL).await;
            tokio::select! {
                biased;
                () = quotas.next() => {}
                // Most clusters have no quota, but a ledger that changes all the time.
                () = ledger.changed(), if !deps.stores.quotas.state().is_empty() => {}
                () = tokio::time::sleep(RETRY_DELAY), if failed => {}
            }
        }
    };
    until::<()>(&stop, write).await;
}

/// Writes the statuses that differ. Returns whether a write failed.
async fn write_all(deps: &QuotaStatus) -> bool {
    let mut failed = false;
    for quota in deps.stores.quotas.state() {
        if let Err(error) = show(deps, &quota).await {
            failed = true;
            tracing::debug!(quota = quota.metadata.name, %error, "status not written");
        }
    }
    failed
}

async fn show(deps: &QuotaStatus, quota: &CapacityQuota) -> Result<(), WriteError> {
    let used = match plimsoll_snapshot::capacity_quotas::read(quota) {
        Ok(quota) => Ok(deps.ledger.read(|ledger| ledger.usage_of_quota(&quota))),
        Err(fault) => Err(fault.to_string()),
    };
    let now = deps.clock.now();
    let change = |quota: &mut CapacityQuota| {
        let moment = Moment::of(&quota.metadata, now);
        apply(quota.status.get_or_insert_default(), &used, moment);
    };
    deps.writes.update(quota, ObjectPart::Status, change).await.map(drop)
}

/// `used` has the usage of each limited resource, or the problem of an invalid quota, which limits nothing.
fn apply(status: &mut CapacityQuotaStatus, used: &Result<Resources, String>, moment: Moment) {
    let resources = used.as_ref().ok().map(|used| {
        used.iter().map(|(name, amount)| (name.to_owned(), Quantity(format_amount(name, amount)))).collect()
    });
    status.used = resources.map(|resources| CapacityQuotaUsage { resources });
    status.observed_generation = Some(moment.generation);
    let (state, reason, message) = match used {
        Ok(_) => (Status::True, VALID, ""),
        Err(problem) => (Status::False, "Invalid", problem.as_str()),
    };
    CONDITIONS.set_alone(&mut status.conditions, moment, VALID, state, reason, message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn an_invalid_quota_has_no_usage_but_a_message() {
        let time = Timestamp::UNIX_EPOCH;
        let moment = Moment { generation: 4, created: time, deleting: false, now: time };
        let mut status = CapacityQuotaStatus::default();
        let shown = |status: &CapacityQuotaStatus| {
            let used = status.used.clone().map(|used| used.resources.into_iter().map(|(k, v)| (k, v.0)).collect());
            let [valid] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
            let used: Option<Vec<(String, String)>> = used;
            (used, valid.type_.clone(), valid.status.clone(), valid.message.clone(), status.observed_generation)
        };
        apply(&mut status, &Ok(Resources::from([("cpu", 2500), ("nodes", 0), ("memory", 4 << 30)])), moment);
        let used = [("cpu", "2500m"), ("memory", "4Gi"), ("nodes", "0")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(shown(&status), (Some(used.into()), "Valid".into(), "True".into(), String::new(), Some(4)));
        apply(&mut status, &Err("spec.selector: is wrong".to_owned()), moment);
        let message = "spec.selector: is wrong".to_owned();
        assert_eq!(shown(&status), (None, "Valid".into(), "False".into(), message, Some(4)));
    }
}
