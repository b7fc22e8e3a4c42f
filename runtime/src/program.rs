//! What the programs of the services have in common: logging, certificates, ports, the client of the cluster, and the
//! drain.

use std::{
    fmt::Display,
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    task::Poll,
    time::Duration,
};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, Readiness, ReadinessHandle},
    args::ServiceArgs,
    cluster_access,
    metrics::{Metrics, MetricsError},
    serve::Listener,
    shutdown::{DEFAULT_GRACE, Shutdown, ShutdownError, Signals},
    telemetry::{self, TelemetryError},
    tls::{self, Tls, TlsError},
};

/// Duration of a watch in seconds. The API server ends it by then and the client resumes it, so a connection that was
/// dropped silently is noticed 5 s later. The default of the client is 290 s, in which a leader sees nothing and stays
/// leader. A resumed watch costs one request, and no list.
pub const WATCH_SECONDS: u32 = 60;

/// How long the next bytes of a response may take. An idle watch ends before, and so does any other request: the API
/// server ends it after 60 s.
const READ_TIMEOUT: Duration = Duration::from_secs(70);

/// Why a program cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Logging cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The signal handlers could not be installed.
    #[error(transparent)]
    Signals(#[from] ShutdownError),
    /// The certificates are missing or invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A metric could not be registered.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A port cannot be opened.
    #[error("{flag}: cannot listen on {address}")]
    Listen {
        /// The flag with the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// Why the cluster cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ClusterAccessError {
    /// The given file cannot be used.
    #[error("kubeconfig {}: {problem}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// No file is given, and there is neither a default one nor a service account.
    #[error("no access to a cluster: {0}")]
    Infer(String),
}

/// A started program. Its probes and metrics are served until it has drained.
#[derive(Debug)]
pub struct ServiceProgram {
    name: &'static str,
    /// Stops the program.
    pub shutdown: Shutdown,
    /// The certificates, if there are any.
    pub tls: Option<Tls>,
    /// Registry of the metrics.
    pub metrics: Metrics,
    /// Readiness; unset when the drain starts.
    pub readiness: Readiness,
    /// Keeps readiness false until the service is started.
    started: ReadinessHandle,
    /// Signals since the start.
    signals: Signals,
    /// Ends the process at a signal before it runs.
    starting: JoinHandle<()>,
    admin_stop: CancellationToken,
}

impl ServiceProgram {
    /// Sets up logging, listens for signals, reads the certificates, and opens the ports. Returns the closed gRPC port,
    /// too.
    ///
    /// # Errors
    /// If a flag, file or address is invalid.
    pub async fn start(name: &'static str, args: &ServiceArgs) -> Result<(Self, Listener), ProgramError> {
        let level = telemetry::init(args.log.log_format, &args.log.log_level)?;
        // First: as PID 1 of its container, the process ignores signals that it does not handle.
        let signals = Signals::listen()?;
        let starting = tokio::spawn(end_at_signal(Signals::listen()?));
        let shutdown = Shutdown::default();
        let tls = tls::load_and_follow(&args.tls, &shutdown).await?;
        tls::check_listen(args.listen, tls.as_ref())?;
        let (readiness, metrics) = (Readiness::default(), Metrics::new(name));
        tls::export_expiry(tls.as_ref(), &metrics)?;
        let started = readiness.handle("started");
        let listener = Listener::Closed(listen("--listen", args.listen).await?, tls.clone());
        let health = listen("--health-listen", args.admin.health_listen).await?;
        let measured = listen("--metrics-listen", args.admin.metrics_listen).await?;
        // Not the token of the drain: probes and metrics are served during the drain.
        let admin_stop = CancellationToken::new();
        tokio::spawn(admin::serve(health, admin::health_router(readiness.clone()), admin_stop.clone()));
        tokio::spawn(admin::serve(measured, admin::metrics_router(metrics.clone(), level), admin_stop.clone()));
        Ok((Self { name, shutdown, tls, metrics, readiness, started, signals, starting, admin_stop }, listener))
    }

    /// Runs the service until a signal or a failure, and drains.
    ///
    /// # Errors
    /// If the service fails, or does not stop in time.
    pub async fn run<E: Display + Send + 'static>(
        self,
        service: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Result<(), ShutdownError> {
        let Self { name, shutdown, readiness, started, signals, starting, admin_stop, .. } = self;
        starting.abort();
        shutdown.spawn_critical(name, async move {
            let mut service = std::pin::pin!(service);
            // A service adds its own conditions of readiness when it is first polled.
            let first = futures::poll!(service.as_mut());
            started.release();
            match first {
                Poll::Ready(ended) => ended,
                Poll::Pending => service.await,
            }
        });
        let token = shutdown.token();
        shutdown.spawn(async move {
            token.cancelled().await;
            readiness.drain();
        });
        let ended = shutdown.run(DEFAULT_GRACE, signals.into_stream()).await;
        admin_stop.cancel();
        tracing::info!("stopped");
        ended
    }
}

/// Ends the process at a signal. While a program starts, it has no Lease and no clients, so there is nothing to drain.
async fn end_at_signal(mut signals: Signals) {
    signals.received().await;
    tracing::info!("signal received while starting");
    std::process::exit(0);
}

/// Opens the port that `flag` names.
///
/// # Errors
/// If the address is not available.
pub async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ProgramError> {
    TcpListener::bind(address).await.map_err(|source| ProgramError::Listen { flag, address, source })
}

/// Configuration of a client without retries: each caller has its own retry policy, and a 429 for an eviction is a
/// meaningful response.
///
/// # Errors
/// If the file cannot be used, or no cluster is found without a file.
pub async fn kube_config(path: Option<&Path>) -> Result<kube::Config, ClusterAccessError> {
    let mut config = match path {
        Some(path) => {
            let invalid = |error: KubeconfigError| ClusterAccessError::File {
                path: path.to_owned(),
                problem: cluster_access::kubeconfig_problem(&error),
            };
            let file = Kubeconfig::read_from(path).map_err(invalid)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(invalid)?
        }
        None => {
            let none = |error| ClusterAccessError::Infer(cluster_access::no_access(&error));
            kube::Config::infer().await.map_err(none)?
        }
    };
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    // Otherwise the time in which a pooled connection was idle counts.
    config.reset_reader_on_write = true;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_reported_with_its_flag() {
        let first = listen("--listen", SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = listen("--health-listen", address).await.unwrap_err();
        assert_eq!(error.to_string(), format!("--health-listen: cannot listen on {address}"));
    }

    #[tokio::test]
    async fn a_program_is_not_ready_before_its_service_has_named_its_conditions() {
        let (readiness, shutdown) = (Readiness::default(), Shutdown::default());
        let program = ServiceProgram {
            name: "test",
            shutdown: shutdown.clone(),
            tls: None,
            metrics: Metrics::new("test"),
            readiness: readiness.clone(),
            started: readiness.handle("started"),
            signals: Signals::listen().unwrap(),
            starting: tokio::spawn(std::future::pending()),
            admin_stop: CancellationToken::new(),
        };
        let (sender, seen) = tokio::sync::oneshot::channel();
        let service = async move {
            let at_first = readiness.is_ready();
            let listed = readiness.handle("listed");
            tokio::task::yield_now().await;
            let waiting = readiness.waiting_for();
            listed.release();
            let _ = sender.send((at_first, waiting, readiness.is_ready()));
            shutdown.start();
            Ok::<(), String>(())
        };
        assert_eq!(program.run(service).await, Ok(()));
        assert_eq!(seen.await, Ok((false, vec!["listed"], true)));
    }

    #[tokio::test]
    async fn an_idle_watch_ends_before_a_connection_counts_as_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let file = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:6443"}}],
            "users": [{"name": "a", "user": {}}]});
        std::fs::write(&path, file.to_string()).unwrap();
        let config = kube_config(Some(&path)).await.unwrap();
        assert!(config.read_timeout.unwrap() > Duration::from_secs(u64::from(WATCH_SECONDS) + 5));
        assert!(config.reset_reader_on_write);
    }
}
