//! The whole service on its ports.

use crate::metrics::SchedulerMetrics;
use crate::server::{Core, Door, Server};
use crate::session::SessionLimits;
use plimsoll_proto::scheduler::v1::scheduler_service_server::SchedulerServiceServer;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use plimsoll_runtime::rpc::RpcMetrics;
use plimsoll_runtime::serve::{GrpcServer, Limits, Listener, MAX_DECODING_BYTES, MAX_ENCODING_BYTES, ServeError};
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_runtime::workers::{Bounds, Workers};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Largest request, in bytes: a self-contained question about 100,000 pods and some node classes has 20 MiB.
pub const MAX_REQUEST_BYTES: usize = 2 * MAX_DECODING_BYTES;

/// Calls open at once on the open port, from everybody together: each may hold a message of the largest size before its
/// turn comes, and they must not use up the replica's memory.
const OPEN_CALLS: usize = 16;

/// What may be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How many threads solve, and how many of them for outside callers.
    pub workers: Bounds,
    /// What a session may keep.
    pub session: SessionLimits,
    /// DNS names of certificates that may open sessions; empty: every one of our authority.
    pub session_callers: Vec<String>,
    /// Bounds on connections.
    pub connections: Limits,
    /// Answer reflection, so that tools can find the services.
    pub reflection: bool,
}

impl Settings {
    /// The defaults for a machine with so many cores.
    #[must_use]
    pub fn for_cores(cores: NonZeroUsize) -> Self {
        Self {
            workers: Bounds::for_cores(cores),
            session: SessionLimits::default(),
            session_callers: Vec::new(),
            connections: Limits::default(),
            reflection: true,
        }
    }
}

/// What the service is made of.
#[derive(Debug)]
pub struct Parts {
    /// Callers that may do everything.
    pub closed: Listener,
    /// Callers that may ask `Plan`, `WhatIf` and `Explain`; none unless wanted.
    pub open: Option<Listener>,
    /// Where metrics are registered: one for each running service.
    pub metrics: Metrics,
    /// Whether the process can take work; not ready any more once the drain begins.
    pub readiness: Readiness,
    /// What may be chosen.
    pub settings: Settings,
}

/// Why the service ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A metric is registered twice.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A port failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Serves until `shutdown` begins and calls have ended or their grace is over. Sessions end with UNAVAILABLE then.
///
/// # Errors
/// A port could not be served. The other one is closed as well.
pub async fn run(parts: Parts, shutdown: Shutdown) -> Result<(), ServiceError> {
    let Parts { closed, open, metrics, readiness, settings } = parts;
    // Dropping this future, as a simulated crash does, ends the sessions too.
    let stop = shutdown.token().child_token();
    let _ended = stop.clone().drop_guard();
    let rpc = RpcMetrics::new(&metrics)?;
    let core = Arc::new(Core::new(
        Workers::new(settings.workers),
        SchedulerMetrics::new(&metrics)?,
        settings.session,
        settings.session_callers,
        stop.clone(),
    ));
    let port = |door: Door| -> Result<GrpcServer, ServeError> {
        let service = SchedulerServiceServer::new(Server::new(Arc::clone(&core), door))
            .max_decoding_message_size(MAX_REQUEST_BYTES)
            .max_encoding_message_size(MAX_ENCODING_BYTES);
        let mut server = GrpcServer::new(settings.connections.clone()).with_metrics(rpc.clone()).add_service(service);
        if door == Door::Open {
            server = server.with_max_calls(OPEN_CALLS);
        }
        if settings.reflection {
            server.add_reflection(&[plimsoll_proto::FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET])
        } else {
            Ok(server)
        }
    };
    let (closed_port, open_port) = (port(Door::Closed)?, port(Door::Open)?);
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
