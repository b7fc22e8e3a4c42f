//! The `plimsoll-scheduler` binary: the scheduler with the service for Kubernetes objects.

use anyhow::Context;
use plimsoll_runtime::admin::{self, Readiness};
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::Listener;
use plimsoll_runtime::shutdown::{DEFAULT_GRACE, Shutdown};
use plimsoll_runtime::{telemetry, tls};
use plimsoll_scheduler::args::Args;
use plimsoll_scheduler::service::Parts;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::read(std::env::args_os()).unwrap_or_else(|refused| refused.exit());
    let level = telemetry::init(args.service.log.log_format, &args.service.log.log_level)?;
    let shutdown = Shutdown::new();
    let tls = tls::load_and_follow(&args.service.tls, &shutdown).await?;
    let closed = listen(args.service.listen.listen, "--listen").await?;
    tls::check_listen(args.service.listen.listen, tls.as_ref())?;
    let open = match args.open_listen {
        Some(address) => Some(listen(address, "--open-listen").await?),
        None => None,
    };
    let (metrics, readiness) = (Metrics::new("scheduler"), Readiness::new());
    tls::export_expiry(tls.as_ref(), &metrics)?;
    // Probes and metrics stay available until the drain ends.
    let admin_stop = CancellationToken::new();
    let health = listen(args.service.admin.health_listen, "--health-listen").await?;
    let metrics_port = listen(args.service.admin.metrics_listen, "--metrics-listen").await?;
    tokio::spawn(admin::serve(health, admin::health_router(readiness.clone()), admin_stop.clone()));
    tokio::spawn(admin::serve(metrics_port, admin::metrics_router(metrics.clone(), level), admin_stop.clone()));

    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %args.service.listen.listen,
        open_listen = args.open_listen.map(tracing::field::display),
        mutual_tls = tls.is_some(),
        "scheduler starts"
    );
    let parts = Parts {
        closed: Listener::Closed(closed, tls),
        open: open.map(Listener::Open),
        metrics,
        readiness,
        settings: args.settings(cores),
    };
    shutdown.spawn_critical("scheduler", plimsoll_objects::run(parts, Clock::system(), shutdown.clone()));
    let ended = shutdown.run(DEFAULT_GRACE).await;
    admin_stop.cancel();
    Ok(ended?)
}

async fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{flag}: cannot listen on {address}"))
}
