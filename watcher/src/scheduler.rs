//! Plans from a scheduler: one sticky session, moved to another replica when it fails or stalls.

mod session;

use crate::metrics::WatcherMetrics;
use crate::snapshots::Published;
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

/// How long a plan may take before another replica is asked as well: whichever is first answers, since all answer alike.
/// In a large cluster plans take longer: then so many times what the last one took are added.
const STALLED_AFTER: Duration = Duration::from_millis(500);
const STALLED_FACTOR: u32 = 3;

/// Longest time for a plan of a large cluster.
const PLAN_TIMEOUT: Duration = Duration::from_secs(60);

/// Replicas tried for one plan before the loop looks at the cluster again.
const MAX_TRIES: usize = 4;

/// Finds catalogs by their id.
pub(crate) type FindCatalog<'a> = &'a (dyn Fn(&str) -> Option<Arc<Catalog>> + Sync);

/// What a plan is asked for.
#[derive(Clone)]
pub(crate) struct Question<'a> {
    pub(crate) published: Arc<Published>,
    pub(crate) options: PlanOptions,
    pub(crate) catalogs: FindCatalog<'a>,
    /// Names the round in logs.
    pub(crate) cycle_id: String,
    /// Takes launches of the plan that come before the rest; what it has no room for comes with the whole plan.
    pub(crate) parts: mpsc::Sender<Plan>,
}

/// A session and the plan that was made in it.
type Made = Result<(Session, Plan), Status>;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// No replica is known.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The last replica that was asked could not make one.
    #[error("scheduler {replica}: {code:?}: {message}")]
    Refused {
        /// Which.
        replica: ReplicaId,
        /// How.
        code: Code,
        /// Why.
        message: String,
    },
    /// A replica made a plan that failed its check; any other would make the same.
    #[error("scheduler {replica} withholds its plan: {message}")]
    Withheld {
        /// Which.
        replica: ReplicaId,
        /// What is wrong with it.
        message: String,
    },
    /// None answered in time.
    #[error("no plan within {PLAN_TIMEOUT:?}")]
    Timeout,
}

/// Asks schedulers for plans.
pub(crate) struct Scheduler {
    pool: ClientPool,
    /// Names the cluster and this client to schedulers.
    cluster: String,
    client: String,
    metrics: WatcherMetrics,
    session: Option<(ReplicaId, Session)>,
    /// How long the last plan took.
    usual: Duration,
}

impl Scheduler {
    pub(crate) fn new(pool: ClientPool, cluster: String, client: String, metrics: WatcherMetrics) -> Self {
        Self { pool, cluster, client, metrics, session: None, usual: Duration::ZERO }
    }

    /// The plan that a question asks for. If this is dropped before it ends, the next one begins with a new session.
    pub(crate) async fn plan(&mut self, question: &Question<'_>) -> Result<Plan, PlanError> {
        tokio::time::timeout(PLAN_TIMEOUT, self.plan_with_any(question)).await.unwrap_or(Err(PlanError::Timeout))
    }

    async fn plan_with_any(&mut self, question: &Question<'_>) -> Result<Plan, PlanError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (replica, mut attempt) = self.attempt(question).await?;
            let (began, patience) = (Instant::now(), STALLED_AFTER + self.usual.saturating_mul(STALLED_FACTOR));
            let (replica, made) = match tokio::time::timeout(patience, &mut attempt).await {
                Ok(made) => (replica, made),
                Err(_stalled) => self.race(replica, attempt, question).await?,
            };
            let status = match made {
                Ok((session, plan)) => {
                    self.pool.succeeded(&replica);
                    self.session = Some((replica, session));
                    self.usual = began.elapsed();
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

    /// A replica has stalled: another one is asked as well, if there is one.
    async fn race(
        &mut self,
        stalled: ReplicaId,
        mut attempt: BoxFuture<'_, Made>,
        question: &Question<'_>,
    ) -> Result<(ReplicaId, Made), PlanError> {
        let (pool, first) = (self.pool.clone(), stalled.clone());
        pool.failed(&stalled);
        let second = async {
            let (replica, second) = self.attempt(question).await?;
            if replica == first {
                // There is no other: it just takes its time.
                std::future::pending::<()>().await;
            }
            tracing::warn!(stalled = %first, %replica, "scheduler stalled, asking another");
            Ok((replica, second.await))
        };
        let mut second = std::pin::pin!(second);
        tokio::select! {
            biased;
            made = &mut attempt => match made {
                Ok(made) => Ok((stalled, Ok(made))),
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
                made => made,
            },
        }
    }

    /// A replica and the plan that it is asked for, in the session with it if there is one.
    async fn attempt<'q>(&mut self, question: &Question<'q>) -> Result<(ReplicaId, BoxFuture<'q, Made>), PlanError> {
        let (replica, channel) = self.pool.channel().await?;
        let known = self.session.take().filter(|(known, _)| *known == replica).map(|(_, session)| session);
        let (cluster, client) = (self.cluster.clone(), self.client.clone());
        let (question, metrics) = (question.clone(), self.metrics.clone());
        let attempt = async move {
            let mut session = match known {
                Some(session) => session,
                None => Session::open(channel, cluster, client, metrics).await?,
            };
            let plan = session.plan(&question).await?;
            Ok((session, plan))
        };
        Ok((replica, Box::pin(attempt)))
    }
}
