//! Requests plans from a scheduler over one sticky session. Moves to another replica when the session fails or stalls.

mod session;

use crate::metrics::WatcherMetrics;
use crate::snapshots::PublishedSnapshot;
use futures::FutureExt;
use futures::future::BoxFuture;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_proto::catalog::v1::Catalog;
use plimsoll_runtime::client_pool::{ClientPool, PoolError, ReplicaId, WITHHELD_HEADER};
use session::Session;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

/// How long a plan may take before it is requested from another replica too. The first response is used, since all
/// replicas give the same one. Plans of large clusters take longer, so `STALL_FACTOR` times the duration of the last
/// plan of the same kind is added.
const STALL_TIMEOUT: Duration = Duration::from_millis(500);
const STALL_FACTOR: u32 = 3;
/// Another replica is asked at this time at the latest: before a replica that lacks CPU ends its first attempt, after
/// 20 s, and makes a plan without the pods that it takes to be the cause.
const MAX_PATIENCE: Duration = Duration::from_secs(15);
/// Assumed duration of the first plan with removals: a second replica would begin with the whole snapshot, and a search
/// for removals in 5,000 nodes takes this long.
const FIRST_DISRUPTION: Duration = Duration::from_secs(2);

/// Durations of the last plans. A plan with removals takes many times as long as one without.
#[derive(Debug, Clone, Copy)]
struct LastDurations {
    without_removals: Duration,
    with_removals: Duration,
}

impl Default for LastDurations {
    fn default() -> Self {
        Self { without_removals: Duration::ZERO, with_removals: FIRST_DISRUPTION }
    }
}

impl LastDurations {
    fn of(&mut self, options: &PlanOptions) -> &mut Duration {
        if options.disruption { &mut self.with_removals } else { &mut self.without_removals }
    }

    /// How long a plan may take before it counts as stalled.
    fn patience(&mut self, options: &PlanOptions) -> Duration {
        let patience = STALL_TIMEOUT + self.of(options).saturating_mul(STALL_FACTOR);
        patience.min(MAX_PATIENCE)
    }
}

/// Timeout of a plan, also for large clusters.
const PLAN_TIMEOUT: Duration = Duration::from_secs(60);

/// Attempts per plan before the loop looks at the cluster again.
const MAX_TRIES: usize = 4;

/// Looks up catalogs by id.
pub(crate) type CatalogLookup<'a> = &'a (dyn Fn(&str) -> Option<Arc<Catalog>> + Sync);

/// A request for a plan.
#[derive(Clone)]
pub(crate) struct PlanRequest<'a> {
    pub(crate) published: Arc<PublishedSnapshot>,
    pub(crate) options: PlanOptions,
    pub(crate) catalogs: CatalogLookup<'a>,
    /// Id of the cycle in logs.
    pub(crate) cycle_id: String,
    /// Channel for launches that arrive before the rest of the plan. A part that does not fit arrives with the complete
    /// plan.
    pub(crate) parts: mpsc::Sender<Plan>,
    /// Cancelled when the plan is no longer needed. The session stays usable for a newer snapshot.
    pub(crate) abandon: CancellationToken,
}

/// A session and the plan that it returned; without a plan if the request was abandoned.
type AttemptResult = Result<(Session, Option<Plan>), Status>;

/// Reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// No replica is known.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The last replica tried could not make a plan.
    #[error("scheduler {replica}: {code:?}: {message}")]
    Refused {
        /// The replica.
        replica: ReplicaId,
        /// The status code.
        code: Code,
        /// The status message.
        message: String,
    },
    /// A replica made a plan that failed validation. Any other replica would make the same plan.
    #[error("scheduler {replica} withholds its plan: {message}")]
    Withheld {
        /// The replica.
        replica: ReplicaId,
        /// The validation error.
        message: String,
    },
    /// No replica answered in time.
    #[error("no plan within {PLAN_TIMEOUT:?}")]
    Timeout,
    /// The request was abandoned.
    #[error("the plan was abandoned")]
    Abandoned,
}

/// Client of the schedulers.
pub(crate) struct Scheduler {
    pool: ClientPool,
    /// Cluster and client names in the session's Hello.
    cluster: String,
    client: String,
    metrics: WatcherMetrics,
    session: Option<(ReplicaId, Session)>,
    last_durations: LastDurations,
}

impl Scheduler {
    pub(crate) fn new(pool: ClientPool, cluster: String, client: String, metrics: WatcherMetrics) -> Self {
        Self { pool, cluster, client, metrics, session: None, last_durations: LastDurations::default() }
    }

    /// Ends the session. It holds the last snapshot here, and a mirror of it in the replica.
    pub(crate) fn end_session(&mut self) {
        self.session = None;
    }

    /// Requests a plan. If the future is dropped before it completes, the next request opens a new session.
    pub(crate) async fn plan(&mut self, request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
        tokio::time::timeout(PLAN_TIMEOUT, self.plan_with_any(request)).await.unwrap_or(Err(PlanError::Timeout))
    }

    async fn plan_with_any(&mut self, request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (replica, mut attempt) = self.attempt(request).await?;
            let (began, patience) = (Instant::now(), self.last_durations.patience(&request.options));
            let (replica, result) = match tokio::time::timeout(patience, &mut attempt).await {
                Ok(result) => (replica, result),
                Err(_stalled) => self.race(replica, attempt, request).await?,
            };
            let status = match result {
                Ok((session, plan)) => {
                    self.pool.succeeded(&replica);
                    self.session = Some((replica, session));
                    let Some(plan) = plan else { return Err(PlanError::Abandoned) };
                    *self.last_durations.of(&request.options) = began.elapsed();
                    return Ok(plan);
                }
                Err(status) => status,
            };
            if is_withheld(&status) {
                self.pool.succeeded(&replica);
                return Err(PlanError::Withheld { replica, message: status.message().to_owned() });
            }
            self.pool.failed(&replica);
            tracing::warn!(%replica, code = ?status.code(), message = status.message(), "session failed");
            if tries >= MAX_TRIES {
                let (code, message) = (status.code(), status.message().to_owned());
                return Err(PlanError::Refused { replica, code, message });
            }
        }
    }

    /// Asks a second replica, if there is one, after the first replica stalled. If one of the two fails, the result of
    /// the other one is used.
    async fn race(
        &mut self,
        stalled: ReplicaId,
        mut attempt: BoxFuture<'_, AttemptResult>,
        request: &PlanRequest<'_>,
    ) -> Result<(ReplicaId, AttemptResult), PlanError> {
        let (pool, first) = (self.pool.clone(), stalled.clone());
        pool.failed(&stalled);
        let second = async {
            let (replica, second) = self.attempt(request).await?;
            if replica == first {
                return Ok(None);
            }
            tracing::warn!(stalled = %first, %replica, "scheduler stalled, asking another");
            Ok::<_, PlanError>(Some((replica, second.await)))
        };
        let mut second = std::pin::pin!(second);
        tokio::select! {
            biased;
            result = &mut attempt => match result {
                Err(status) if !is_withheld(&status) => {
                    tracing::warn!(%stalled, code = ?status.code(), message = status.message(), "session failed");
                    Ok(second.await?.unwrap_or((stalled, Err(status))))
                }
                result => Ok((stalled, result)),
            },
            result = &mut second => match result? {
                Some((replica, Err(status))) if !is_withheld(&status) => {
                    pool.failed(&replica);
                    Ok((stalled, attempt.await))
                }
                Some(result) => Ok(result),
                // There is no second replica.
                None => Ok((stalled, attempt.await)),
            },
        }
    }

    /// Starts a plan request to a replica: in the last session if there is one, otherwise in a new session.
    async fn attempt<'q>(
        &mut self,
        request: &PlanRequest<'q>,
    ) -> Result<(ReplicaId, BoxFuture<'q, AttemptResult>), PlanError> {
        let last = self.session.take().filter(|(_, session)| session.can_plan(request));
        let (replica, session) = match last {
            // Also if the pool has moved on because the replica stalled: its session has the snapshot, and knows which
            // pods make plans fail.
            Some((replica, session)) => (replica, std::future::ready(Ok::<_, Status>(session)).boxed()),
            None => {
                let (replica, channel) = self.pool.channel().await?;
                let (cluster, client) = (self.cluster.clone(), self.client.clone());
                (replica, Session::open(channel, cluster, client, self.metrics.clone()).boxed())
            }
        };
        let request = request.clone();
        let attempt = async move {
            let mut session = session.await?;
            let plan = session.plan(&request).await?;
            Ok((session, plan))
        };
        Ok((replica, attempt.boxed()))
    }
}

/// Whether any other replica would fail in the same way.
fn is_withheld(status: &Status) -> bool {
    status.metadata().contains_key(WITHHELD_HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_with_removals_is_not_measured_by_one_without() {
        let mut last = LastDurations::default();
        let plain = PlanOptions { disruption: false, ..PlanOptions::default() };
        let removals = PlanOptions { disruption: true, ..PlanOptions::default() };
        *last.of(&plain) = Duration::from_millis(100);
        assert_eq!(last.patience(&plain), Duration::from_millis(800));
        assert_eq!(last.patience(&removals), Duration::from_millis(6500), "none was made yet");
        *last.of(&removals) = Duration::from_secs(1);
        assert_eq!(last.patience(&removals), Duration::from_millis(3500));
        assert_eq!(last.patience(&plain), Duration::from_millis(800));
        *last.of(&removals) = Duration::from_secs(20);
        assert_eq!(last.patience(&removals), MAX_PATIENCE);
    }
}
