//! The gRPC service. Sessions and outside callers run on separate classes of worker threads.

mod callers;
mod open_port;
mod stream;

pub use open_port::OpenPort;

use crate::answer;
use crate::catalogs::CatalogCache;
use crate::metrics::SchedulerMetrics;
use crate::session::{Session, SessionLimits};
use crate::solve::PlanFn;
use callers::Callers;
use futures::Stream;
use plimsoll_proto::scheduler::v1::scheduler_service_server::SchedulerService;
use plimsoll_proto::scheduler::v1::{
    ExplainRequest, ExplainResponse, PlanRequest, PlanResponse, SessionRequest, SessionResponse, WhatIfRequest,
    WhatIfResponse,
};
use plimsoll_runtime::connection::Peer;
use plimsoll_runtime::workers::{WorkError, Workers};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

/// Maximum concurrent sessions. Each cluster has one or two driving watchers, and each session may hold a large mirror.
pub const MAX_SESSIONS: usize = 64;

/// Suggested retry delay of rejected requests: about the duration of a typical solve.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// State shared by all ports of a replica.
#[derive(Debug)]
pub struct Core {
    pub(crate) workers: Workers,
    pub(crate) catalogs: Arc<CatalogCache>,
    pub(crate) metrics: SchedulerMetrics,
    pub(crate) limits: SessionLimits,
    pub(crate) plan: PlanFn,
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
        (limits, plan): (SessionLimits, PlanFn),
        session_callers: Vec<String>,
        stop: CancellationToken,
    ) -> Self {
        let bounds = workers.bounds();
        Self {
            // A single caller may use at most half of the capacity for outside callers.
            callers: Callers::new((bounds.outside_running + bounds.outside_waiting).div_ceil(2)),
            workers,
            catalogs: Arc::new(CatalogCache::default()),
            metrics,
            limits,
            plan,
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
    open_port: OpenPort,
    core: Arc<Core>,
    port: Port,
}

impl Server {
    /// Creates the service for `port`.
    #[must_use]
    pub fn new(core: Arc<Core>, port: Port) -> Self {
        Self { open_port: OpenPort::new(Arc::clone(&core)), core, port }
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
            return Err(Status::permission_denied("sessions are not accepted on the open port; use the closed one"));
        }
        let callers = &self.core.session_callers;
        if !callers.is_empty() && Peer::of(&request).is_some_and(|peer| !peer.is_one_of(callers)) {
            return Err(Status::permission_denied(format!("sessions are for {}", callers.join(", "))));
        }
        let Ok(permit) = Arc::clone(&self.core.sessions).try_acquire_owned() else {
            return Err(overloaded(&format!("{MAX_SESSIONS} sessions are open")));
        };
        let core = Arc::clone(&self.core);
        let session = Session::new(Arc::clone(&core.catalogs), core.metrics.clone(), core.limits).with_plan(core.plan);
        Ok(Response::new(stream::run(core, session, request.into_inner(), permit)))
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        self.open_port.handle("Plan", request, answer::plan_of).await
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        self.open_port.handle("Explain", request, answer::explain_of).await
    }

    async fn what_if(&self, request: Request<WhatIfRequest>) -> Result<Response<WhatIfResponse>, Status> {
        self.open_port.handle("WhatIf", request, answer::what_if_of).await
    }
}
