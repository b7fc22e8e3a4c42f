//! Leadership: take over, lead, and lose the lease (safety rule 16).

mod drivers;
mod pause;
mod process;
mod shadow_report;
mod term;

pub use pause::{UNKNOWN, watch_karpenter};
pub use process::Process;
use term::Term;

use crate::fencing::Fence;
use crate::io::Reads;
use crate::launch::record::epoch_of;
use crate::ledger::Ledger;
use crate::ledger::feed::seed;
use crate::ledger::handle::LedgerHandle;
use crate::server::LeaderRole;
use plimsoll_api::NodeClaim;
use plimsoll_runtime::lease::{LeaseGuard, LeaseState};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Pause before a failed list of claims is retried.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// How long controllers may take to finish on shutdown. When the lease is lost, they are aborted at once.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A controller panicked. A leader without one of its controllers is worse than none, so the process releases the lease
/// and exits.
#[derive(Debug, thiserror::Error)]
#[error("controller failed: {0}")]
pub struct ControllerPanicked(String);

impl From<&JoinError> for ControllerPanicked {
    fn from(error: &JoinError) -> Self {
        Self(error.to_string())
    }
}

/// Leads whenever this process holds the lease, until `stop`.
///
/// # Errors
/// A controller panicked.
pub async fn run(
    process: Process,
    mut states: watch::Receiver<LeaseState>,
    role: watch::Sender<LeaderRole>,
    pause: watch::Receiver<Option<String>>,
    stop: CancellationToken,
) -> Result<(), ControllerPanicked> {
    loop {
        let guard = {
            let state = states.borrow_and_update();
            if let LeaseState::Following { holder, .. } = &*state {
                let leader = holder.as_deref().and_then(address_of).map(str::to_owned);
                role.send_replace(LeaderRole::Following { leader });
            }
            state.guard().cloned()
        };
        if let Some(guard) = guard.filter(|guard| !guard.lost().is_cancelled()) {
            let result = lead(&process, guard, &role, pause.clone(), &stop).await;
            role.send_replace(LeaderRole::Following { leader: None });
            process.metrics.end_term();
            result?;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            changed = states.changed() => if changed.is_err() { return Ok(()) },
        }
    }
}

/// Runs one term, until the lease is lost or the process stops.
async fn lead(
    process: &Process,
    guard: LeaseGuard,
    role: &watch::Sender<LeaderRole>,
    pause: watch::Receiver<Option<String>>,
    stop: &CancellationToken,
) -> Result<(), ControllerPanicked> {
    let lost = guard.lost();
    let ending = stop.child_token();
    let mut tasks = JoinSet::new();
    let term = async {
        process.stores.wait_ready().await;
        let term = take_over(process, guard, pause).await;
        process.metrics.begin_term();
        role.send_replace(LeaderRole::Leading(Box::new(term.leader.clone())));
        term.start(&ending, &mut tasks);
        let (fence, ledger) = (term.leader.fence.clone(), term.leader.ledger.clone());
        // Garbage collection and resumed launches must not start before the former leader's last call is over.
        fence.quarantine().await;
        adopt_late_claims(&process.connections.reads(), &ledger).await;
        ledger.with(Ledger::begin_admitting);
        term.start_admitted(&ending, &mut tasks);
        tracing::info!(epoch = fence.epoch(), "admitting actions");
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| ControllerPanicked::from(&error))?;
        }
        Ok(())
    };
    let result = tokio::select! {
        biased;
        () = lost.cancelled() => {
            tracing::warn!("lease lost, stopping");
            Ok(())
        }
        () = stop.cancelled() => Ok(()),
        result = term => result,
    };
    if !lost.is_cancelled() {
        let drained = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, drained).await.is_err() {
            tracing::warn!("controllers did not stop in time");
        }
    }
    tasks.shutdown().await;
    result
}

/// Builds the ledger from a live list: the watch cache may lag behind a former leader's writes.
async fn take_over(process: &Process, guard: LeaseGuard, pause: watch::Receiver<Option<String>>) -> Term {
    let reads = process.connections.reads();
    let mut claims = list_claims(&reads).await;
    let fence = Fence::new(guard, claims.iter().filter_map(epoch_of).max(), pause);
    // Before the first position of the ledger is given out: the next leader must not have the same epoch.
    if fence.record_epoch().await {
        // Claims may have changed meanwhile.
        claims = list_claims(&reads).await;
    }
    let seeds: Vec<_> = claims.iter().map(|claim| seed(claim, None)).collect();
    let (ledger, problems) = Ledger::from_claims(fence.epoch(), &seeds);
    for problem in problems {
        tracing::error!(%problem, "NodePool launches nothing until the annotation is fixed or the NodeClaim is deleted");
    }
    tracing::info!(epoch = fence.epoch(), claims = claims.len(), "leadership acquired");
    Term::new(process, &fence, &LedgerHandle::new(ledger))
}

/// Adds claims that a former leader's last calls created.
async fn adopt_late_claims(reads: &Reads, ledger: &LedgerHandle) {
    for claim in list_claims(reads).await {
        if let Err(problem) = ledger.with(|ledger| ledger.adopt(&seed(&claim, None))) {
            tracing::error!(%problem, "NodePool launches nothing until the annotation is fixed or the NodeClaim is deleted");
        }
    }
}

/// Lists all claims live. Retries until it succeeds, since nothing can be done without the list.
async fn list_claims(reads: &Reads) -> Vec<NodeClaim> {
    loop {
        match reads.claims().await {
            Ok(claims) => return claims,
            Err(error) => tracing::warn!(%error, "NodeClaims not listed"),
        }
        tokio::time::sleep(LIST_PAUSE).await;
    }
}

/// The holder identity: process name, address, and a value that differs for each start.
#[must_use]
pub fn holder(name: &str, address: &str, start: &str) -> String {
    format!("{name}_{address}_{start}")
}

/// The address in a holder identity.
#[must_use]
pub fn address_of(holder: &str) -> Option<&str> {
    holder.rsplit('_').nth(1).filter(|address| !address.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_identity_contains_the_address() {
        assert_eq!(address_of(&holder("plimsoll-actuator-0", "10.0.0.7:9443", "1a")), Some("10.0.0.7:9443"));
        assert_eq!(address_of(&holder("with_lines", "[fd00::7]:9443", "1a")), Some("[fd00::7]:9443"));
        assert_eq!(address_of("nobody"), None);
        assert_eq!(address_of(&holder("plimsoll-actuator-0", "", "1a")), None, "clients would connect to nothing");
    }
}
