//! Assembles the service and serves its ports.

pub use crate::decoded_size::MAX_REQUEST_BYTES;
use crate::decoded_size::inspect;
use crate::metrics::SchedulerMetrics;
use crate::server::{Core, OpenPort, Port, Server};
use crate::session::SessionLimits;
use crate::solve::PlanFn;
use plimsoll_proto::scheduler::v1::scheduler_service_server::SchedulerServiceServer;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use plimsoll_runtime::rpc::RpcMetrics;
use plimsoll_runtime::serve::{GrpcServer, Listener, MAX_ENCODING_BYTES, ServeError};
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_runtime::workers::{Bounds, Workers};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Maximum concurrent calls on the open port.
const OPEN_CALLS: usize = 16;

/// Maximum memory of all requests of these calls together: one of the largest, or three of the largest real ones, and a
/// quarter of the memory that the chart gives the scheduler.
const OPEN_BYTES: usize = 512 << 20;

/// Settings of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Number of worker threads, and how many of them may serve outside callers.
    pub workers: Bounds,
    /// Limits of a session.
    pub session: SessionLimits,
    /// DNS names of certificates that may open sessions; if empty, any certificate of the authority.
    pub session_callers: Vec<String>,
    /// Whether to serve gRPC reflection.
    pub reflection: bool,
    /// What makes the plans of sessions. Not the default only in tests.
    pub plan: PlanFn,
}

impl Settings {
    /// Default settings for a machine with `cores` cores.
    #[must_use]
    pub fn for_cores(cores: NonZeroUsize) -> Self {
        Self {
            workers: Bounds::for_cores(cores),
            session: SessionLimits::default(),
            session_callers: Vec::new(),
            reflection: true,
            plan: PlanFn::default(),
        }
    }
}

/// Dependencies of the service.
#[derive(Debug)]
pub struct Parts {
    /// Listener for callers that may use all methods.
    pub closed: Listener,
    /// Listener for callers that may only send self-contained requests, if enabled.
    pub open: Option<Listener>,
    /// Metrics registry; must be different for each running service.
    pub metrics: Metrics,
    /// Readiness of the process; unset when the drain starts.
    pub readiness: Readiness,
    /// Settings of the service.
    pub settings: Settings,
}

/// Reason why the service ended.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A metric is already registered.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A port failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Serves until `shutdown` begins and all calls have ended or their grace period is over. Sessions end with
/// UNAVAILABLE.
///
/// # Errors
/// If a port could not be served. The other port is closed as well.
pub async fn run(parts: Parts, shutdown: Shutdown) -> Result<(), ServiceError> {
    run_with(parts, shutdown, |server, _| server).await
}

/// Like [`run`], with more services on the open port, which `add` adds. They answer with [`OpenPort`], so that the
/// limits of the port hold for all of its services together.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    parts: Parts,
    shutdown: Shutdown,
    add: impl FnOnce(GrpcServer, OpenPort) -> GrpcServer + Send,
) -> Result<(), ServiceError> {
    let Parts { closed, open, metrics, readiness, settings } = parts;
    // Dropping this future, as a simulated crash does, must end the sessions too.
    let stop = shutdown.token().child_token();
    let _ended = stop.clone().drop_guard();
    let rpc = RpcMetrics::new(&metrics)?;
    let core = Arc::new(Core::new(
        Workers::new(settings.workers),
        SchedulerMetrics::new(&metrics)?,
        (settings.session, settings.plan),
        settings.session_callers,
        stop.clone(),
    ));
    let server_for = |port: Port| {
        let service = SchedulerServiceServer::new(Server::new(Arc::clone(&core), port))
            .max_decoding_message_size(MAX_REQUEST_BYTES)
            .max_encoding_message_size(MAX_ENCODING_BYTES);
        GrpcServer::default().with_metrics(rpc.clone()).with_inspection(inspect).add_service(service)
    };
    let with_reflection = |server: GrpcServer| {
        if settings.reflection { server.add_reflection(&[plimsoll_proto::FILE_DESCRIPTOR_SET]) } else { Ok(server) }
    };
    let closed_port = with_reflection(server_for(Port::Closed))?;
    let open_port = server_for(Port::Open).with_max_calls(OPEN_CALLS).with_max_memory(OPEN_BYTES);
    let open_port = with_reflection(add(open_port, OpenPort::new(Arc::clone(&core))))?;
    let unready = async {
        stop.cancelled().await;
        readiness.drain();
        std::future::pending::<()>().await;
    };
    let serve_open = async {
        match open {
            Some(listener) => open_port.serve_on(listener, stop.clone()).await,
            None => Ok(()),
        }
    };
    let serve = async { tokio::try_join!(closed_port.serve_on(closed, stop.clone()), serve_open) };
    tokio::select! {
        biased;
        served = serve => {
            served?;
        }
        () = unready => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
