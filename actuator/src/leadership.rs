//! Taking over, leading, and losing the lease (safety rule 16).

mod drivers;
mod pause;

pub use pause::{UNKNOWN, Unexecuted, watch_karpenter};

use crate::buffer_status::BufferReports;
use crate::context::{Context, Shared};
use crate::fencing::Fence;
use crate::launch::record::annotation;
use crate::launch::{Launches, launcher};
use crate::ledger::Ledger;
use crate::ledger::feed::{self, seed};
use crate::ledger::handle::LedgerHandle;
use crate::nomination::Placed;
use crate::outcomes::Outcomes;
use crate::server::{Standing, terminations};
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation as key;
use plimsoll_runtime::lease::{LeaseGuard, LeaseState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Pause before the claims are listed again after an error.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// How long controllers get to end when the process stops. When the lease is lost they get none.
const END: Duration = Duration::from_secs(5);

/// A controller broke: a leader that does only part of its work is worse than none, so the process gives up the lease and ends.
#[derive(Debug, thiserror::Error)]
#[error("a controller broke: {0}")]
pub struct Broke(String);

impl From<&JoinError> for Broke {
    fn from(error: &JoinError) -> Self {
        Self(error.to_string())
    }
}

/// Leads whenever the lease is ours, until `stop`.
///
/// # Errors
/// A controller panicked.
pub async fn run(
    shared: Shared,
    mut states: watch::Receiver<LeaseState>,
    standing: watch::Sender<Standing>,
    pause: watch::Receiver<Option<String>>,
    stop: CancellationToken,
) -> Result<(), Broke> {
    loop {
        let guard = {
            let state = states.borrow_and_update();
            if let LeaseState::Following { holder, .. } = &*state {
                let leader = holder.as_deref().and_then(address_of).map(str::to_owned);
                standing.send_replace(Standing::Following { leader });
            }
            state.guard().cloned()
        };
        if let Some(guard) = guard.filter(|guard| !guard.lost().is_cancelled()) {
            let result = lead(&shared, guard, &standing, pause.clone(), &stop).await;
            standing.send_replace(Standing::Following { leader: None });
            shared.metrics.leading.set(0);
            result?;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            changed = states.changed() => if changed.is_err() { return Ok(()) },
        }
    }
}

/// One term: until the lease is lost or the process stops.
async fn lead(
    shared: &Shared,
    guard: LeaseGuard,
    standing: &watch::Sender<Standing>,
    pause: watch::Receiver<Option<String>>,
    stop: &CancellationToken,
) -> Result<(), Broke> {
    let lost = guard.lost();
    let ending = stop.child_token();
    let mut tasks = JoinSet::new();
    let term = async {
        shared.stores.wait_ready().await;
        let (context, groups, removals) = take_over(shared, guard, pause).await;
        shared.metrics.leading.set(1);
        standing.send_replace(Standing::Leading(Box::new(context.clone())));
        controllers(&context, &ending, &mut tasks);
        // Nothing that a former leader may still be doing is judged before its last call is over.
        context.fence.quarantine().await;
        adopt_late(&context).await;
        context.ledger.with(Ledger::begin_admitting);
        tasks.spawn(launcher::run(context.clone(), groups, ending.clone()));
        tasks.spawn(terminations::run(context.clone(), removals, ending.clone()));
        tasks.spawn(crate::collection::run::run(context.clone(), ending.clone()));
        tracing::info!(epoch = context.fence.epoch(), "actions are admitted from here on");
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| Broke::from(&error))?;
        }
        Ok(())
    };
    let result = tokio::select! {
        biased;
        () = lost.cancelled() => {
            tracing::warn!("the lease is lost, everything stops");
            Ok(())
        }
        () = stop.cancelled() => Ok(()),
        result = term => result,
    };
    if !lost.is_cancelled() {
        let drained = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(END, drained).await.is_err() {
            tracing::warn!("controllers did not end in time");
        }
    }
    tasks.shutdown().await;
    result
}

/// Everything that runs while this process leads, whether or not actions are admitted yet.
fn controllers(context: &Context, stop: &CancellationToken, tasks: &mut JoinSet<()>) {
    let own = || (context.clone(), stop.clone());
    macro_rules! start {
        ($($run:path),+ $(,)?) => {
            $(
                let (context, stop) = own();
                tasks.spawn($run(context, stop));
            )+
        };
    }
    start!(
        feed::run,
        drivers::follow,
        pause::show,
        crate::node_class::run,
        crate::launch_template::cleanup,
        crate::lifecycle::run,
        crate::termination::run,
        crate::removal::run,
        crate::interruption::run,
        crate::launch::tagging::run,
        crate::node_pool_status::run,
        crate::nomination::run,
        crate::buffer_status::run,
    );
}

type Groups = tokio::sync::mpsc::Receiver<(crate::launch::admit::Prepared, tokio::time::Instant)>;
type Removals = tokio::sync::mpsc::Receiver<Vec<terminations::Job>>;

/// The ledger from a live list: our own watch may lag behind what a former leader wrote.
async fn take_over(
    shared: &Shared,
    guard: LeaseGuard,
    pause: watch::Receiver<Option<String>>,
) -> (Context, Groups, Removals) {
    let claims = list_claims(shared).await;
    let seeds: Vec<_> = claims.iter().map(seed).collect();
    let fence = Fence::new(guard, claims.iter().filter_map(epoch_of).max(), pause);
    let (ledger, problems) = Ledger::from_claims(fence.epoch(), &seeds);
    for problem in problems {
        tracing::error!(%problem, "the NodePool gets no launches until the annotation is readable or the NodeClaim is gone");
    }
    tracing::info!(epoch = fence.epoch(), claims = claims.len(), "taking over");
    let (launches, groups) = Launches::new();
    let (terminations, removals) = terminations::queue();
    let context = Context {
        shared: shared.clone(),
        ledger: LedgerHandle::new(ledger),
        driver_reads: Arc::default(),
        writes: shared.connections.writes(fence.clone()),
        cloud: shared.connections.cloud_calls(fence.clone()),
        fence,
        unexecuted: Unexecuted::default(),
        outcomes: Outcomes::default(),
        launches,
        placed: Placed::default(),
        buffers: BufferReports::default(),
        terminations,
    };
    (context, groups, removals)
}

/// The epoch of the leader that wrote a claim.
pub(crate) fn epoch_of(claim: &NodeClaim) -> Option<u64> {
    annotation(claim, key::EPOCH)?.parse().ok()
}

/// Claims that a former leader's last calls made.
async fn adopt_late(context: &Context) {
    for claim in list_claims(context).await {
        if let Err(problem) = context.ledger.with(|ledger| ledger.adopt(&seed(&claim))) {
            tracing::error!(%problem, "the NodePool gets no launches until the annotation is readable or the NodeClaim is gone");
        }
    }
}

/// All claims, live; tried until it works, since nothing can be done without.
async fn list_claims(shared: &Shared) -> Vec<NodeClaim> {
    loop {
        match shared.reads.claims().await {
            Ok(claims) => return claims,
            Err(error) => tracing::warn!(%error, "NodeClaims not listed"),
        }
        tokio::time::sleep(LIST_PAUSE).await;
    }
}

/// Who holds the lease: the process's name, where it answers, and what tells one start from the next.
#[must_use]
pub fn holder(name: &str, address: &str, start: &str) -> String {
    format!("{name}_{address}_{start}")
}

/// Where a holder answers.
#[must_use]
pub fn address_of(holder: &str) -> Option<&str> {
    holder.rsplit('_').nth(1).filter(|address| !address.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_tells_where_it_answers() {
        assert_eq!(address_of(&holder("plimsoll-actuator-0", "10.0.0.7:9443", "1a")), Some("10.0.0.7:9443"));
        assert_eq!(address_of(&holder("with_lines", "[fd00::7]:9443", "1a")), Some("[fd00::7]:9443"));
        assert_eq!(address_of("nobody"), None);
    }
}
