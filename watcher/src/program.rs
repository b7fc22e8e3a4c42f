//! Runs the watcher as a program: logging, signals, ports.

use crate::args::WatcherArgs;
use crate::service::{self, Parts, Settings};
use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_model::names::lease;
use plimsoll_runtime::admin::{self, Readiness};
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::lease::LeaseConfig;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::Listener;
use plimsoll_runtime::shutdown::{DEFAULT_GRACE, Shutdown};
use plimsoll_runtime::telemetry;
use plimsoll_runtime::tls;
use std::path::Path;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Runs the watcher until a signal or a failure.
///
/// # Errors
/// If a flag, file or address is invalid, or a part of the watcher fails.
pub async fn run(args: WatcherArgs) -> Result<()> {
    let WatcherArgs { service, peers, identity, policies, recording } = args;
    let level = telemetry::init(service.log.log_format, &service.log.log_level)?;
    let clock = Clock::system();
    let shutdown = Shutdown::new();
    let tls = tls::load_and_follow(&service.tls, &shutdown).await?;
    let (readiness, metrics) = (Readiness::new(), Metrics::new("watcher"));
    tls::export_expiry(tls.as_ref(), &metrics)?;
    let bind = async |address| TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"));
    let health = bind(service.admin.health_listen).await?;
    let measured = bind(service.admin.metrics_listen).await?;
    let listener = Listener::Closed(bind(service.listen.listen).await?, tls.clone());

    // A restarted container must be a different lease holder even if the pod's name is the same.
    let holder = format!("{}_{:x}_{:x}", identity.name, std::process::id(), clock.now_millis());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), holder, "starting");
    let settings = Settings {
        cluster: identity.cluster_name,
        callers: peers.allow_callers,
        options: policies.options(),
        recording: recording.recording(),
        ..Settings::default()
    };
    let parts = Parts {
        client: client(peers.kubeconfig.as_deref()).await?,
        clock,
        settings,
        scheduler: ClientPool::new(&peers.scheduler, tls.clone()).context("--scheduler")?,
        actuator: ClientPool::new(&peers.actuator, tls).context("--actuator")?,
        lease: LeaseConfig::new(identity.lease_namespace, lease::WATCHER, holder),
        listener,
        metrics: metrics.clone(),
        readiness: readiness.clone(),
    };
    // The probe endpoints stay up until the shutdown ends.
    let stop = CancellationToken::new();
    let probes = tokio::spawn(admin::serve(health, admin::health_router(readiness.clone()), stop.clone()));
    let scrapes = tokio::spawn(admin::serve(measured, admin::metrics_router(metrics, level), stop.clone()));
    shutdown.spawn_critical("watcher", service::run(parts, shutdown.clone()));
    let token = shutdown.token();
    shutdown.spawn(async move {
        token.cancelled().await;
        readiness.drain();
    });
    let ended = shutdown.run(DEFAULT_GRACE).await;
    stop.cancel();
    probes.await??;
    scrapes.await??;
    tracing::info!("stopped");
    Ok(ended?)
}

/// Returns a client without retries: every caller has its own retry policy.
async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("kubeconfig {}", path.display()))?
        }
        None => kube::Config::infer().await.context("no access to a cluster")?,
    };
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}
