//! The gRPC service. Sessions and outside callers run on separate classes of worker threads.

mod callers;
mod stream;

use crate::answer::{self, AnswerError};
use crate::catalogs::CatalogCache;
use crate::metrics::SchedulerMetrics;
use crate::session::{Session, SessionLimits};
use callers::Callers;
use futures::Stream;
use plimsoll_proto::scheduler::v1::scheduler_service_server::SchedulerService;
use plimsoll_proto::scheduler::v1::{
    ExplainRequest, ExplainResponse, PlanRequest, PlanResponse, SessionRequest, SessionResponse, WhatIfRequest,
    WhatIfResponse,
};
use plimsoll_runtime::connection::Peer;
use plimsoll_runtime::telemetry::extract_cycle_id;
use plimsoll_runtime::workers::{WorkError, Workers};
use plimsoll_solver::Cancel;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

/// Maximum concurrent sessions. Each cluster has one or two driving watchers, and each session may hold a large mirror.
pub const MAX_SESSIONS: usize = 64;

/// Suggested retry delay of rejected requests: about the duration of a typical solve.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Maximum time of a request, queued and running. Callers may set a shorter deadline.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// State shared by all ports of a replica.
#[derive(Debug)]
pub struct Core {
    pub(crate) workers: Workers,
    pub(crate) catalogs: Arc<CatalogCache>,
    pub(crate) metrics: SchedulerMetrics,
    pub(crate) limits: SessionLimits,
    /// DNS names of callers that may open sessions; if empty, any certificate may.
    pub(crate) session_callers: Vec<String>,
    pub(crate) sessions: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
    callers: Callers,
}

impl Core {
    pub(crate) fn new(
        workers: Workers,
        metrics: SchedulerMetrics,
        limits: SessionLimits,
        session_callers: Vec<String>,
        stop: CancellationToken,
    ) -> Self {
        let bounds = workers.bounds();
        Self {
            // A single caller may use at most half of the capacity for outside callers.
            callers: Callers::new((bounds.outside_running + bounds.outside_waiting).div_ceil(2)),
            workers,
            catalogs: Arc::new(CatalogCache::new()),
            metrics,
            limits,
            session_callers,
            sessions: Arc::new(Semaphore::new(MAX_SESSIONS)),
            stop,
        }
    }
}

/// Port that a request arrived on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// For Plimsoll's own services: all methods.
    Closed,
    /// For other systems: only self-contained requests.
    Open,
}

/// The service on one port.
#[derive(Debug, Clone)]
pub struct Server {
    core: Arc<Core>,
    port: Port,
}

impl Server {
    /// Creates the service for `port`.
    #[must_use]
    pub fn new(core: Arc<Core>, port: Port) -> Self {
        Self { core, port }
    }

    /// Answers a self-contained request with the worker capacity that sessions leave.
    async fn handle_outside<Q: Send + 'static, A: Send + 'static>(
        &self,
        method: &'static str,
        request: Request<Q>,
        answer: fn(Q, &Cancel) -> Result<A, AnswerError>,
    ) -> Result<Response<A>, Status> {
        let cycle_id = extract_cycle_id(request.metadata()).map(str::to_owned);
        let _permit = self.core.callers.enter(Peer::of(&request)).ok_or_else(|| {
            self.core.metrics.refused.inc();
            overloaded("this caller has too many requests at once")
        })?;
        let (question, metrics) = (request.into_inner(), self.core.metrics.clone());
        let cancel = Cancel::default();
        // Also drops when the caller goes away.
        let _end = CancelOnDrop(cancel.clone());
        let job = move || {
            let started = Instant::now();
            let result = answer(question, &cancel);
            metrics.solve_seconds.observe(started.elapsed().as_secs_f64());
            result
        };
        let result = tokio::time::timeout(ANSWER_TIMEOUT, self.core.workers.run_outside(job)).await;
        let timeout_error = |_elapsed| Status::deadline_exceeded(format!("no answer within {ANSWER_TIMEOUT:?}"));
        match result.map_err(timeout_error)? {
            Ok(Ok(answer)) => {
                self.core.metrics.plans.with_label_values(&["outside"]).inc();
                tracing::debug!(method, cycle_id, "answered");
                Ok(Response::new(answer))
            }
            Ok(Err(error)) => {
                if let AnswerError::Plan(_) = &error {
                    self.core.metrics.invalid_plans.inc();
                    tracing::error!(method, cycle_id, %error, "plan withheld");
                }
                Err(error.into())
            }
            Err(error @ WorkError::Overloaded(_)) => {
                self.core.metrics.refused.inc();
                Err(overloaded(&error.to_string()))
            }
            Err(error @ WorkError::Lost(_)) => Err(lost(&error)),
        }
    }
}

/// Ends the solve once nobody waits for the answer.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// RESOURCE_EXHAUSTED with a retry delay.
fn overloaded(why: &str) -> Status {
    let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
    Status::with_error_details(Code::ResourceExhausted, format!("{why}: ask again later"), details)
}

/// Status for a job that panicked, which is a bug; the panic message is in the log.
fn lost(error: &WorkError) -> Status {
    tracing::error!(%error, "work lost");
    Status::internal(error.to_string())
}

#[tonic::async_trait]
impl SchedulerService for Server {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.port == Port::Open {
            return Err(Status::permission_denied(
                "this port answers Plan, WhatIf and Explain; sessions have their own",
            ));
        }
        let callers = &self.core.session_callers;
        if !callers.is_empty() && Peer::of(&request).is_some_and(|peer| !peer.is_one_of(callers)) {
            return Err(Status::permission_denied(format!("sessions are for {}", callers.join(", "))));
        }
        let Ok(permit) = Arc::clone(&self.core.sessions).try_acquire_owned() else {
            return Err(overloaded(&format!("{MAX_SESSIONS} sessions are open")));
        };
        let core = Arc::clone(&self.core);
        let session = Session::new(Arc::clone(&core.catalogs), core.metrics.clone(), core.limits);
        Ok(Response::new(stream::run(core, session, request.into_inner(), permit)))
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        self.handle_outside("Plan", request, answer::plan_of).await
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        self.handle_outside("Explain", request, answer::explain_of).await
    }

    async fn what_if(&self, request: Request<WhatIfRequest>) -> Result<Response<WhatIfResponse>, Status> {
        self.handle_outside("WhatIf", request, answer::what_if_of).await
    }
}
