//! Assembles and runs the parts of a watcher. Used by the program and by the simulation.

use crate::drive::Driver;
use crate::facts::Facts;
use crate::feed::Feed;
use crate::follow::ActuatorFollower;
use crate::index::ObjectKind;
use crate::metrics::WatcherMetrics;
use crate::recorder::{Recorder, Written};
use crate::scheduler::Scheduler;
use crate::snapshots::{Publisher, SnapshotService};
use plimsoll_model::plan::PlanOptions;
use plimsoll_proto::FILE_DESCRIPTOR_SET;
use plimsoll_proto::watcher::v1::watcher_service_server::WatcherServiceServer;
use plimsoll_recording::Writer;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::lease::{Election, LeaseConfig, LeaseError};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use plimsoll_runtime::rpc::RpcMetrics;
use plimsoll_runtime::serve::{GrpcServer, Listener, MAX_DECODING_BYTES, MAX_ENCODING_BYTES, ServeError};
use plimsoll_runtime::shutdown::Shutdown;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Settings of a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the cluster in scheduler sessions; must not be empty.
    pub cluster: String,
    /// Certificate names of clients that may follow snapshots.
    pub callers: Vec<String>,
    /// Options of every plan.
    pub options: PlanOptions,
    /// Whether capacity is reserved for CapacityBuffers.
    pub capacity_buffers: bool,
    /// Whether NodeOverlays apply.
    pub node_overlays: bool,
    /// Where plans are recorded, if they are.
    pub recording: Option<Recording>,
}

/// Where plans are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The folder.
    pub folder: PathBuf,
    /// Maximum size of all files together, in bytes.
    pub bytes: u64,
    /// Maximum number of plans that wait for the disk; others are left out. Each keeps its snapshot in memory.
    pub queue: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster: "default".to_owned(),
            callers: Vec::new(),
            options: PlanOptions::default(),
            capacity_buffers: true,
            node_overlays: true,
            recording: None,
        }
    }
}

impl Settings {
    /// Kinds that are not watched.
    fn unwatched(&self) -> Vec<ObjectKind> {
        let watched =
            [(ObjectKind::CapacityBuffer, self.capacity_buffers), (ObjectKind::NodeOverlay, self.node_overlays)];
        watched.into_iter().filter(|(_, watched)| !watched).map(|(kind, _)| kind).collect()
    }
}

/// Dependencies of a watcher.
pub struct Parts {
    /// Kubernetes client.
    pub client: kube::Client,
    /// Clock.
    pub clock: Clock,
    /// Settings.
    pub settings: Settings,
    /// Schedulers; all replicas are equivalent.
    pub scheduler: ClientPool,
    /// Actuators; one of them is the leader.
    pub actuator: ClientPool,
    /// Lease and holder identity for the leader election.
    pub lease: LeaseConfig,
    /// Listener of the gRPC server.
    pub listener: Listener,
    /// Registry of the metrics.
    pub metrics: Metrics,
    /// Readiness of the program.
    pub readiness: Readiness,
}

/// Reason why a watcher ended.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A metric is already registered.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The thread that records plans cannot be started.
    #[error("recording: {0}")]
    Recorder(std::io::Error),
    /// The lease configuration is inconsistent.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The gRPC server failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A task ended without a shutdown request.
    #[error("a part of the watcher ended{0}")]
    Ended(String),
}

impl From<JoinError> for ServiceError {
    fn from(error: JoinError) -> Self {
        Self::Ended(format!(": {error}"))
    }
}

/// Runs a watcher until `shutdown` starts to drain. The watcher then stops driving, releases its lease and closes its
/// listener. Dropping the future stops the watcher as abruptly as killing the process.
///
/// # Errors
/// See [`ServiceError`].
pub async fn run(parts: Parts, shutdown: Shutdown) -> Result<(), ServiceError> {
    let Parts { client, clock, settings, scheduler, actuator, lease, listener, metrics, readiness } = parts;
    let token = shutdown.token();
    let watcher_metrics = WatcherMetrics::new(&metrics)?;
    let rpc_metrics = RpcMetrics::new(&metrics)?;
    let facts = Arc::new(Facts::default());
    let mut tasks = JoinSet::new();

    let feed = Feed {
        client: client.clone(),
        facts: Arc::clone(&facts),
        metrics: watcher_metrics.clone(),
        unwatched: settings.unwatched(),
    };
    let follower = ActuatorFollower {
        actuator: actuator.clone(),
        facts: Arc::clone(&facts),
        clock,
        metrics: watcher_metrics.clone(),
    };
    let (ledger, catalogs) = (readiness.handle("ledger"), readiness.handle("catalogs"));
    feed.start(&readiness, &mut tasks);
    tasks.spawn(follower.clone().ledger(ledger));
    tasks.spawn(follower.catalogs(catalogs));

    let publisher = Publisher::new(Arc::clone(&facts), clock, watcher_metrics.clone());
    let (newest, readers) = (publisher.newest(), publisher.readers());
    watcher_metrics.export(&metrics, newest.clone(), clock);
    let holder = lease.holder.clone();
    let (recorder, written) = recorder(&settings, clock, &watcher_metrics).map_err(ServiceError::Recorder)?;
    let listed = Arc::clone(&facts);
    let driver = Driver {
        facts,
        newest: newest.clone(),
        readers: readers.clone(),
        refresh: publisher.refresh(),
        scheduler: Scheduler::new(scheduler, settings.cluster, holder, watcher_metrics.clone()),
        actuator,
        options: settings.options,
        metrics: watcher_metrics.clone(),
        recorder,
    };
    tasks.spawn(publisher.run());

    let (election, states) = Election::new(client, lease, clock)?;
    // Release the lease only after all work under it has stopped.
    let give_up = CancellationToken::new();
    let ended = give_up.clone();
    let contending = async move { election.run_when_ready(listed.wait_listed(), ended).await };
    let contending = AbortOnDropHandle::new(tokio::spawn(contending));
    let driving = AbortOnDropHandle::new(tokio::spawn(driver.run(states, token.clone())));
    let service = SnapshotService::new((newest, readers), settings.callers, watcher_metrics, token.clone());
    let service = WatcherServiceServer::new(service)
        .max_decoding_message_size(MAX_DECODING_BYTES)
        .max_encoding_message_size(MAX_ENCODING_BYTES);
    let server =
        GrpcServer::default().with_metrics(rpc_metrics).add_service(service).add_reflection(&[FILE_DESCRIPTOR_SET])?;
    let serving = AbortOnDropHandle::new(tokio::spawn(server.serve_on(listener, token.clone())));

    let ends = async {
        driving.await?;
        if !token.is_cancelled() {
            return Err(ServiceError::Ended(": the lease is contended for no more".to_owned()));
        }
        give_up.cancel();
        contending.await?;
        // The thread writes on since the driver has ended. A slow disk does not delay the release of the lease.
        written.wait().await;
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

fn recorder(settings: &Settings, clock: Clock, metrics: &WatcherMetrics) -> std::io::Result<(Recorder, Written)> {
    let Some(Recording { folder, bytes, queue }) = &settings.recording else {
        return Ok((Recorder::default(), Written::default()));
    };
    let limits = plimsoll_recording::Limits::of(*bytes);
    let writer = Writer::new(folder.clone(), limits, env!("CARGO_PKG_VERSION"), &settings.cluster);
    Recorder::start(writer, *queue, clock, metrics.clone())
}
