//! Requests plans from a scheduler over one sticky session. Moves to another replica when the session fails or stalls.

mod session;

use crate::metrics::WatcherMetrics;
use crate::snapshots::PublishedSnapshot;
use futures::future::BoxFuture;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_proto::catalog::v1::Catalog;
use plimsoll_runtime::client_pool::{ClientPool, PoolError, ReplicaId, WITHHELD_HEADER};
use session::Session;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::{Code, Status};

/// How long a plan may take before it is requested from another replica too. The first response is used, since all
/// replicas give the same one. Plans of large clusters take longer, so `STALL_FACTOR` times the duration of the last
/// plan is added.
const STALL_TIMEOUT: Duration = Duration::from_millis(500);
const STALL_FACTOR: u32 = 3;

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
}

/// A session and the plan that it returned.
type AttemptResult = Result<(Session, Plan), Status>;

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
}

/// Client of the schedulers.
pub(crate) struct Scheduler {
    pool: ClientPool,
    /// Cluster and client names in the session's Hello.
    cluster: String,
    client: String,
    metrics: WatcherMetrics,
    session: Option<(ReplicaId, Session)>,
    /// Duration of the last plan.
    last_duration: Duration,
}

impl Scheduler {
    pub(crate) fn new(pool: ClientPool, cluster: String, client: String, metrics: WatcherMetrics) -> Self {
        Self { pool, cluster, client, metrics, session: None, last_duration: Duration::ZERO }
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
            let (began, patience) = (Instant::now(), STALL_TIMEOUT + self.last_duration.saturating_mul(STALL_FACTOR));
            let (replica, result) = match tokio::time::timeout(patience, &mut attempt).await {
                Ok(result) => (replica, result),
                Err(_stalled) => self.race(replica, attempt, request).await?,
            };
            let status = match result {
                Ok((session, plan)) => {
                    self.pool.succeeded(&replica);
                    self.session = Some((replica, session));
                    self.last_duration = began.elapsed();
                    return Ok(plan);
                }
                Err(status) => status,
            };
            if status.metadata().contains_key(WITHHELD_HEADER) {
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

    /// Asks a second replica, if there is one, after the first replica stalled.
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
                // There is no second replica: keep waiting for the first.
                std::future::pending::<()>().await;
            }
            tracing::warn!(stalled = %first, %replica, "scheduler stalled, asking another");
            Ok((replica, second.await))
        };
        let mut second = std::pin::pin!(second);
        tokio::select! {
            biased;
            result = &mut attempt => match result {
                Ok(result) => Ok((stalled, Ok(result))),
                Err(status) => {
                    tracing::warn!(%stalled, code = ?status.code(), message = status.message(), "session failed");
                    Ok((stalled, Err(status)))
                }
            },
            result = &mut second => match result {
                Ok((replica, Err(_))) => {
                    pool.failed(&replica);
                    Ok((stalled, attempt.await))
                }
                result => result,
            },
        }
    }

    /// Starts a plan request to a replica, in the existing session with that replica if there is one.
    async fn attempt<'q>(
        &mut self,
        request: &PlanRequest<'q>,
    ) -> Result<(ReplicaId, BoxFuture<'q, AttemptResult>), PlanError> {
        let (replica, channel) = self.pool.channel().await?;
        let existing =
            self.session.take().filter(|(last_replica, _)| *last_replica == replica).map(|(_, session)| session);
        let (cluster, client) = (self.cluster.clone(), self.client.clone());
        let (request, metrics) = (request.clone(), self.metrics.clone());
        let attempt = async move {
            let mut session = match existing {
                Some(session) => session,
                None => Session::open(channel, cluster, client, metrics).await?,
            };
            let plan = session.plan(&request).await?;
            Ok((session, plan))
        };
        Ok((replica, Box::pin(attempt)))
    }
}
