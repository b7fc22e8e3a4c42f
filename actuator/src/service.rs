//! The whole service, as a program on a network or embedded in a process that supplies these parts.

use crate::cluster_facts::Current;
use crate::events::Recorder;
use crate::io::Connections;
use crate::leadership;
use crate::leadership::Process;
use crate::metrics::ActuatorMetrics;
use crate::metrics::view::Sources;
use crate::ports::Cloud;
use crate::server::{LeaderRole, Server};
use crate::settings::{ObjectName, Settings};
use crate::state::discovered_memory::DiscoveredMemory;
use crate::state::registrations::Registrations;
use crate::stores::Stores;
use crate::zonal_shift::Follower;
use plimsoll_model::names::DISCOVERED_MEMORY;
use plimsoll_proto::actuator::v1::actuator_service_server::ActuatorServiceServer;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::lease::{Election, LeaseConfig, LeaseError};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use plimsoll_runtime::rpc::RpcMetrics;
use plimsoll_runtime::serve::{GrpcServer, Listener, MAX_DECODING_BYTES, MAX_ENCODING_BYTES, ServeError};
use plimsoll_runtime::shutdown::Shutdown;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Dependencies of the service.
pub struct Parts {
    /// Client of the cluster. It must not retry on its own: a 429 for an eviction is a meaningful response.
    pub client: kube::Client,
    /// The cloud.
    pub cloud: Cloud,
    /// Time.
    pub clock: Clock,
    /// Settings of the installation.
    pub settings: Settings,
    /// The Lease of the service. The holder is a [`leadership::holder`].
    pub lease: LeaseConfig,
    /// Listener of the gRPC server.
    pub listener: Listener,
    /// Registry for the metrics `plimsoll_actuator_*`.
    pub metrics: Metrics,
    /// Set to ready once the cluster has been listed.
    pub readiness: Readiness,
}

/// Why the service ended.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A metric could not be registered.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The Lease's configuration contradicts itself.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// A controller panicked.
    #[error(transparent)]
    Broke(#[from] leadership::ControllerPanicked),
    /// The gRPC server failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Reads the zonal shifts, and follows them until `stop`. The first read comes before the first catalog, so that a new
/// process launches nothing in a shifted zone; it is bounded, and nothing else waits for ARC.
async fn follow_zonal_shifts(process: &Process, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
    let cloud_reads = process.connections.cloud_reads();
    if cloud_reads.follows_zonal_shifts() {
        let follower = Follower { cloud_reads, shifts: process.zonal_shifts.clone(), clock: process.clock };
        let mut failing = false;
        follower.read(&mut failing).await;
        tasks.spawn(follower.run(failing, stop.clone()));
    }
}

/// Refreshes the catalogs until `stop`. Standbys refresh them too, so that a new leader has them at once.
fn start_catalogs(process: &Process, stop: &CancellationToken) -> AbortOnDropHandle<()> {
    let refresh = crate::catalogs::Refresh {
        stores: process.stores.clone(),
        cloud_reads: process.connections.cloud_reads(),
        settings: Arc::clone(&process.settings),
        catalogs: process.catalogs.clone(),
        memory: process.memory.clone(),
        insufficient_capacity: Arc::clone(&process.insufficient_capacity),
        zonal_shifts: process.zonal_shifts.clone(),
        clock: process.clock,
    };
    AbortOnDropHandle::new(tokio::spawn(crate::catalogs::run(refresh, stop.clone())))
}

fn grpc_server(server: Server, metrics: &Metrics) -> Result<GrpcServer, ServiceError> {
    let service = ActuatorServiceServer::new(server)
        .max_decoding_message_size(MAX_DECODING_BYTES)
        .max_encoding_message_size(MAX_ENCODING_BYTES);
    let server = GrpcServer::default()
        .with_metrics(RpcMetrics::new(metrics)?)
        .add_service(service)
        .add_reflection(&[plimsoll_proto::FILE_DESCRIPTOR_SET])?;
    Ok(server)
}

/// Runs until `shutdown` starts to drain, then releases the lease. Dropping the future stops everything at once, as a
/// crash would.
///
/// # Errors
/// The service cannot run.
pub async fn run(parts: Parts, shutdown: Shutdown) -> Result<(), ServiceError> {
    let Parts { client, cloud, clock, settings, lease, listener, metrics, readiness } = parts;
    let stop = shutdown.token();
    let mut tasks = JoinSet::new();
    let listed = readiness.handle("cluster listed");
    let (karpenter, callers) = (settings.karpenter_lease.clone(), settings.callers.clone());
    let stores = Stores::start(&client, &mut tasks);
    let settings = Arc::new(settings);
    let current = Current::new(Arc::clone(&settings));
    tasks.spawn(current.clone().follow(client.clone(), stop.clone()));
    let actuator_metrics = ActuatorMetrics::new(&metrics)?;
    let sources = Sources {
        stores: stores.clone(),
        catalogs: crate::state::catalogs::Catalogs::default(),
        insufficient_capacity: Arc::default(),
        zonal_shifts: crate::state::zonal_shifts::ZonalShifts::default(),
        clock,
    };
    let (pause_sender, pause) = watch::channel(Some(leadership::UNKNOWN.to_owned()));
    actuator_metrics.export(&metrics, sources.clone(), pause.clone());
    let connections = Connections::new(client.clone(), cloud, actuator_metrics.clone());
    let reads = connections.reads();
    let process = Process {
        events: Recorder::start(client.clone(), clock, &mut tasks),
        connections,
        clock,
        settings,
        current,
        stores: stores.clone(),
        insufficient_capacity: sources.insufficient_capacity,
        zonal_shifts: sources.zonal_shifts,
        catalogs: sources.catalogs,
        memory: DiscoveredMemory::default(),
        memory_config_map: ObjectName::new(&lease.namespace, DISCOVERED_MEMORY),
        templates: crate::launch_template::KnownTemplates::default(),
        registrations: Registrations::default(),
        metrics: actuator_metrics,
    };
    let lists = stores.clone();
    tasks.spawn(async move {
        stores.wait_ready().await;
        listed.release();
    });
    follow_zonal_shifts(&process, &mut tasks, &stop).await;
    let catalogs = start_catalogs(&process, &stop);
    tasks.spawn(leadership::watch_karpenter(reads, karpenter, pause_sender));
    let (role_sender, role) = watch::channel(LeaderRole::Following { leader: None });
    let server = grpc_server(Server::new(role, callers, stop.clone()), &metrics)?;
    let (election, states) = Election::new(client, lease, clock)?;
    let released = CancellationToken::new();
    let leading = async {
        let result = leadership::run(process, states, role_sender, pause, stop.clone()).await;
        // All side effects have ended. Another process may lead now.
        released.cancel();
        shutdown.start();
        result
    };
    let serving = async {
        let result = server.serve_on(listener, stop.clone()).await;
        // A leader without a gRPC server is useless.
        shutdown.start();
        result
    };
    let electing = election.run_when_ready(lists.wait_ready(), released.clone());
    let offering = async {
        let result = catalogs.await.map_err(|error| leadership::ControllerPanicked::from(&error));
        // These tasks end only with the process, or by a panic.
        shutdown.start();
        result
    };
    let (served, led, (), offered) = tokio::join!(serving, leading, electing, offering);
    tasks.shutdown().await;
    offered?;
    led?;
    served?;
    Ok(())
}
