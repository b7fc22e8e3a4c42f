//! Runs the watcher as a program: logging, signals, ports.

use crate::args::WatcherArgs;
use crate::service::{self, Parts, Settings};
use anyhow::{Context, Result};
use plimsoll_model::names::lease;
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::cluster_access;
use plimsoll_runtime::lease::LeaseConfig;
use plimsoll_runtime::program::{self, ServiceProgram};

/// Runs the watcher until a signal or a failure.
///
/// # Errors
/// If a flag, file or address is invalid, or a part of the watcher fails.
pub async fn run(args: WatcherArgs) -> Result<()> {
    let WatcherArgs { service, peers, identity, policies, gates, recording } = args;
    let clock = Clock::system();
    let (program, listener) = ServiceProgram::start("watcher", &service).await?;

    // A restarted container must be a different lease holder even if the pod's name is the same.
    let holder = format!("{}_{:x}_{:x}", identity.name, std::process::id(), clock.now_millis());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), holder, "starting");
    let settings = Settings {
        cluster: identity.cluster_name,
        callers: peers.allow_callers,
        options: policies.options(),
        capacity_buffers: gates.capacity_buffers,
        node_overlays: gates.node_overlays,
        recording: recording.recording(),
    };
    let parts = Parts {
        client: cluster_access::client(program::kube_config(peers.kubeconfig.as_deref()).await?)?,
        clock,
        settings,
        scheduler: ClientPool::new(&peers.scheduler, program.tls.clone()).context("--scheduler")?,
        actuator: ClientPool::new(&peers.actuator, program.tls.clone()).context("--actuator")?,
        lease: LeaseConfig::new(identity.lease_namespace, lease::WATCHER, holder),
        listener,
        metrics: program.metrics.clone(),
        readiness: program.readiness.clone(),
    };
    let service = service::run(parts, program.shutdown.clone());
    Ok(program.run(service).await?)
}
