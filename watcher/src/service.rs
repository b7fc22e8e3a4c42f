//! The watcher as a whole: what it is made of, and how its parts run together, in a program as in a simulation.

use crate::drive::Driver;
use crate::facts::Facts;
use crate::feed::Feed;
use crate::follow::Follow;
use crate::metrics::WatcherMetrics;
use crate::scheduler::Scheduler;
use crate::snapshots::{Publisher, SnapshotService};
use plimsoll_model::plan::PlanOptions;
use plimsoll_proto::FILE_DESCRIPTOR_SET;
use plimsoll_proto::watcher::v1::watcher_service_server::WatcherServiceServer;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::lease::{Election, LeaseConfig, LeaseError};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use plimsoll_runtime::rpc::RpcMetrics;
use plimsoll_runtime::serve::{GrpcServer, Limits, Listener, MAX_DECODING_BYTES, MAX_ENCODING_BYTES, ServeError};
use plimsoll_runtime::shutdown::Shutdown;
use std::sync::Arc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// What a watcher may be told about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Names the cluster to schedulers; never empty.
    pub cluster: String,
    /// Names in the certificates of those who may follow snapshots (rule 19).
    pub callers: Vec<String>,
    /// What plans may do.
    pub options: PlanOptions,
    /// Bounds of the gRPC port.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster: "default".to_owned(),
            callers: Vec::new(),
            options: PlanOptions::default(),
            limits: Limits::default(),
        }
    }
}

/// What a watcher is made of.
pub struct Parts {
    /// The cluster.
    pub client: kube::Client,
    /// The time.
    pub clock: Clock,
    /// About itself.
    pub settings: Settings,
    /// Schedulers, any number.
    pub scheduler: ClientPool,
    /// Actuators, of which one leads.
    pub actuator: ClientPool,
    /// The lease for which it contends, and as whom.
    pub lease: LeaseConfig,
    /// Where it answers.
    pub listener: Listener,
    /// Where it registers its metrics.
    pub metrics: Metrics,
    /// What it is waiting for.
    pub readiness: Readiness,
}

/// Why a watcher ended.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A metric is registered already.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The lease's configuration contradicts itself.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The gRPC port failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A part ended though nobody stopped it.
    #[error("a part of the watcher ended{0}")]
    Ended(String),
}

impl From<JoinError> for ServiceError {
    fn from(error: JoinError) -> Self {
        Self::Ended(format!(": {error}"))
    }
}

/// Runs a watcher until `shutdown` begins its drain: it stops driving, gives its lease up and closes its port. Dropped, it
/// stops as a process does that is killed.
///
/// # Errors
/// See [`ServiceError`].
pub async fn run(parts: Parts, shutdown: Shutdown) -> Result<(), ServiceError> {
    let Parts { client, clock, settings, scheduler, actuator, lease, listener, metrics, readiness } = parts;
    let token = shutdown.token();
    let watcher_metrics = WatcherMetrics::new(&metrics)?;
    let rpc_metrics = RpcMetrics::new(&metrics)?;
    let facts = Arc::new(Facts::new());
    let mut tasks = JoinSet::new();

    let feed = Feed { client: client.clone(), facts: Arc::clone(&facts), metrics: watcher_metrics.clone() };
    let follow =
        Follow { actuator: actuator.clone(), facts: Arc::clone(&facts), clock, metrics: watcher_metrics.clone() };
    let (ledger, catalogs) = (readiness.handle("ledger"), readiness.handle("catalogs"));
    feed.start(&readiness, &mut tasks);
    tasks.spawn(follow.clone().ledger(ledger));
    tasks.spawn(follow.catalogs(catalogs));

    let publisher = Publisher::new(Arc::clone(&facts), clock, watcher_metrics.clone());
    let newest = publisher.newest();
    let holder = lease.holder.clone();
    let driver = Driver {
        facts,
        newest: newest.clone(),
        refresh: publisher.refresh(),
        scheduler: Scheduler::new(scheduler, settings.cluster, holder, watcher_metrics.clone()),
        actuator,
        options: settings.options,
        metrics: watcher_metrics.clone(),
    };
    tasks.spawn(publisher.run());

    let (election, states) = Election::new(client, lease, clock)?;
    // Given up only once nothing is done under it any more.
    let give_up = CancellationToken::new();
    let contending = AbortOnDropHandle::new(tokio::spawn(election.run(give_up.clone())));
    let driving = AbortOnDropHandle::new(tokio::spawn(driver.run(states, token.clone())));
    let service = SnapshotService::new(newest, settings.callers, watcher_metrics, token.clone());
    let service = WatcherServiceServer::new(service)
        .max_decoding_message_size(MAX_DECODING_BYTES)
        .max_encoding_message_size(MAX_ENCODING_BYTES);
    let server = GrpcServer::new(settings.limits)
        .with_metrics(rpc_metrics)
        .add_service(service)
        .add_reflection(&[FILE_DESCRIPTOR_SET])?;
    let serving = AbortOnDropHandle::new(tokio::spawn(server.serve_on(listener, token.clone())));

    let ends = async {
        driving.await?;
        if !token.is_cancelled() {
            return Err(ServiceError::Ended(": the lease is contended for no more".to_owned()));
        }
        give_up.cancel();
        contending.await??;
        serving.await??;
        Ok(())
    };
    tokio::select! {
        biased;
        ended = tasks.join_next() => match ended {
            Some(Err(error)) => Err(error.into()),
            _ => Err(ServiceError::Ended(String::new())),
        },
        ended = ends => ended,
    }
}
