//! gRPC servers: health, reflection, limits, mutual TLS, and a graceful shutdown.

use std::{io, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use tonic::{
    body::Body,
    server::NamedService,
    service::Routes,
    transport::{Server, server::Connected},
};
use tonic_health::{ServingStatus, server::HealthReporter};
use tower::Service;

use crate::{
    connection::Connection,
    connection_age::AgeLimited,
    memory::MemoryListener,
    peer_limit::PeerLimit,
    request_body::InspectRequest,
    rpc::{RpcLayer, RpcMetrics},
    tls::{Tls, TlsError, check_listen},
};

/// Maximum size of a received message, in bytes. Snapshot chunks are much smaller; tonic's default of 4 MiB would
/// reject a catalog with the instance types of all regions. Services set this limit on their generated servers.
pub const MAX_DECODING_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of a sent message, in bytes: the limit of the receiver.
pub const MAX_ENCODING_BYTES: usize = MAX_DECODING_BYTES;

/// Maximum number of concurrent handshakes on one port; each may last [`crate::tls::HANDSHAKE_TIMEOUT`]. More callers
/// wait in the backlog.
pub const MAX_HANDSHAKES: usize = 64;

/// Maximum number of them with one peer: more than a client begins at once, and few enough that one peer that does not
/// finish its handshakes does not keep others out.
const MAX_HANDSHAKES_PER_PEER: usize = 8;

/// Maximum number of connections of one port, which bounds memory and file descriptors. Far more than a cluster has
/// watchers. More callers wait.
const MAX_CONNECTIONS: usize = 256;

/// Maximum number of them with one address on an open port, so that one peer does not keep others out. An address may
/// stand for several processes. The callers of other ports are authenticated.
const MAX_CONNECTIONS_PER_PEER: usize = 128;

/// Delay after a failed accept, which mostly means that file descriptors have run out: an immediate retry would only
/// use CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The health service of every port.
const HEALTH_SERVICE: &str = "grpc.health.v1.Health";

/// Maximum number of concurrent calls on one connection; more get RESOURCE_EXHAUSTED. A watcher has a few open streams;
/// this leaves room for many outside callers on one connection.
const CALLS_PER_CONNECTION: usize = 128;
/// Interval of HTTP/2 pings, which detect a vanished peer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Age after which a connection of a port with [`GrpcServer::with_max_calls`] is asked to close, so that callers
/// rebalance. Renewed certificates are valid for hours; half an hour costs one full snapshot per session.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);
/// Time after which a connection of any port is then closed, so that callers also use newer certificates.
const MAX_CONNECTION_AGE_GRACE: Duration = Duration::from_secs(60);
/// Time between NOT_SERVING and closing the port, for clients that watch the health service.
const DRAIN_NOTICE: Duration = Duration::from_millis(500);
/// Time that calls may run after that before their connections are dropped. Within `shutdown::DEFAULT_GRACE`, including
/// the notice.
const DRAIN_GRACE: Duration = Duration::from_secs(15);

/// Why serving ended or failed to start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not allowed without TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The listener failed.
    #[error("listener: {0}")]
    Listener(#[from] io::Error),
    /// A descriptor set is invalid.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("transport: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Source of a port's connections.
#[derive(Debug)]
pub enum Listener {
    /// The network, for known callers: with mutual TLS, or without certificates only on loopback.
    Closed(TcpListener, Option<Tls>),
    /// The network, for any caller, without TLS. Only for services that reveal nothing confidential and change nothing.
    Open(TcpListener),
    /// The same process.
    Memory(MemoryListener),
}

/// The services of one port.
#[derive(Debug)]
pub struct GrpcServer {
    routes: Routes,
    names: Vec<&'static str>,
    health: HealthReporter,
    metrics: Option<RpcMetrics>,
    max_calls: Option<usize>,
    max_memory: Option<usize>,
    inspect: Option<InspectRequest>,
}

impl Default for GrpcServer {
    /// A port with only the health service.
    fn default() -> Self {
        let (health, service) = tonic_health::server::health_reporter();
        let routes = Routes::new(service);
        Self { routes, names: Vec::new(), health, metrics: None, max_calls: None, max_memory: None, inspect: None }
    }
}

impl GrpcServer {
    /// Counts the port's calls.
    #[must_use]
    pub fn with_metrics(mut self, metrics: RpcMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Rejects calls with RESOURCE_EXHAUSTED, before their messages are read, while this many are open on all
    /// connections together. Their requests must arrive within [`crate::request_body::REQUEST_TIMEOUT`]. The connection
    /// of a call whose answer is not read within a minute ends. Health and reflection are always served.
    #[must_use]
    pub fn with_max_calls(mut self, calls: usize) -> Self {
        self.max_calls = Some(calls);
        self
    }

    /// Rejects calls with RESOURCE_EXHAUSTED while the requests of open calls, as far as they are inspected, take this
    /// much memory together. A call gives its part back when it has ended, and nothing else holds its
    /// [`crate::request_body::MemoryShare`].
    #[must_use]
    pub fn with_max_memory(mut self, bytes: usize) -> Self {
        self.max_memory = Some(bytes);
        self
    }

    /// Inspects requests before they are decoded.
    #[must_use]
    pub fn with_inspection(mut self, inspect: InspectRequest) -> Self {
        self.inspect = Some(inspect);
        self
    }

    /// Adds a service, SERVING from the start.
    #[must_use]
    pub fn add_service<S>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Error = std::convert::Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Response: axum::response::IntoResponse,
        S::Future: Send + 'static,
    {
        self.names.push(S::NAME);
        self.routes = self.routes.add_service(service);
        self
    }

    /// Adds reflection over these encoded file descriptor sets. Reflection lists the services that were added before,
    /// and health; descriptors of other services can still be requested.
    ///
    /// # Errors
    /// If a descriptor set cannot be decoded.
    pub fn add_reflection(mut self, descriptor_sets: &[&[u8]]) -> Result<Self, ServeError> {
        let mut builder = tonic_reflection::server::Builder::configure();
        for set in descriptor_sets {
            builder = builder.register_encoded_file_descriptor_set(set);
        }
        builder = builder.register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        for name in self.names.iter().copied().chain([HEALTH_SERVICE]) {
            builder = builder.with_service_name(name);
        }
        self.routes = self.routes.add_service(builder.build_v1()?);
        Ok(self)
    }

    /// Health reporter of the port, for a service that can serve only at times.
    #[must_use]
    pub fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Serves a TCP listener until `shutdown`. Then the health service reports NOT_SERVING, the port closes, and calls
    /// have `DRAIN_GRACE` to end.
    ///
    /// # Errors
    /// If the address is not loopback and there are no certificates, or the transport failed.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<Tls>,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        check_listen(listener.local_addr()?, tls.as_ref())?;
        self.serve_incoming(incoming(listener, tls), shutdown).await
    }

    /// As [`GrpcServer::serve`], for any listener.
    ///
    /// # Errors
    /// As [`GrpcServer::serve`].
    pub async fn serve_on(self, listener: Listener, shutdown: CancellationToken) -> Result<(), ServeError> {
        match listener {
            Listener::Closed(tcp, tls) => self.serve(tcp, tls, shutdown).await,
            Listener::Open(tcp) => {
                let peers = PeerLimit::new(MAX_CONNECTIONS_PER_PEER);
                self.serve_limited(incoming(tcp, None), Some(peers), shutdown).await
            }
            Listener::Memory(memory) => self.serve_incoming(memory, shutdown).await,
        }
    }

    /// As [`GrpcServer::serve`], for any stream of connections, such as in-memory ones.
    ///
    /// # Errors
    /// If the transport failed.
    pub async fn serve_incoming(
        self,
        incoming: impl Stream<Item = io::Result<Connection>>,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        self.serve_limited(incoming, None, shutdown).await
    }

    /// Serves with a bounded number of connections, and a bounded number of each peer if `peers` is set.
    async fn serve_limited(
        self,
        incoming: impl Stream<Item = io::Result<Connection>>,
        peers: Option<PeerLimit>,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let Self { routes, names, health, metrics, max_calls, max_memory, inspect } = self;
        let layer = RpcLayer::new(metrics, &names, max_calls, inspect).with_max_memory(max_memory);
        for name in &names {
            health.set_service_status(name, ServingStatus::Serving).await;
        }
        let closing = CancellationToken::new();
        let closed = closing.clone();
        let drain = async move {
            shutdown.cancelled().await;
            health.set_service_status("", ServingStatus::NotServing).await;
            for name in &names {
                health.set_service_status(name, ServingStatus::NotServing).await;
            }
            tokio::time::sleep(DRAIN_NOTICE).await;
            closing.cancel();
        };
        let mut server = Server::builder();
        if max_calls.is_some() {
            // Without tonic's grace period, which replaces the graceful shutdown instead of following it. Not for ports
            // with streams of Plimsoll's own clients: while a stream is open, hyper's client notices the GOAWAY only
            // with its next call, and fails that call.
            server = server.max_connection_age(MAX_CONNECTION_AGE);
        }
        let server = server
            .concurrency_limit_per_connection(CALLS_PER_CONNECTION)
            .load_shed(true)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .layer(layer)
            .serve_with_incoming_shutdown(routes.prepare(), limited(incoming, peers), drain);
        let drain_timeout = async {
            closed.cancelled().await;
            tokio::time::sleep(DRAIN_GRACE).await;
        };
        tokio::select! {
            biased;
            result = server => Ok(result?),
            () = drain_timeout => {
                tracing::warn!(grace = ?DRAIN_GRACE, "calls still running were dropped");
                Ok(())
            }
        }
    }
}

/// At most [`MAX_CONNECTIONS`] connections, and a bounded number of each peer if `peers` is set, each up to a certain
/// age.
fn limited(
    incoming: impl Stream<Item = io::Result<Connection>>,
    peers: Option<PeerLimit>,
) -> impl Stream<Item = io::Result<AgeLimited>> {
    let age_at_end = MAX_CONNECTION_AGE.saturating_add(MAX_CONNECTION_AGE_GRACE);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let last_refusal = Arc::new(Mutex::new(None));
    incoming.filter_map(move |connection| {
        let (permits, peers, last_refusal) = (Arc::clone(&permits), peers.clone(), Arc::clone(&last_refusal));
        async move {
            let connection = match connection {
                Ok(connection) => connection,
                Err(error) => return Some(Err(error)),
            };
            let peer = connection.connect_info().address;
            let of_peer = peers.zip(peer).map(|(peers, peer)| peers.take(peer.ip()));
            if let Some(None) = of_peer {
                let error = io::Error::other("too many connections with this peer");
                log_refusal(&mut last_refusal.lock(), peer, &error);
                return None;
            }
            // The semaphore is never closed.
            let of_port = permits.acquire_owned().await.ok();
            Some(Ok(AgeLimited::new(connection, age_at_end, (of_port, of_peer.flatten()))))
        }
    })
}

/// Connections of a listener after their handshakes. Never ends; callers whose handshake fails are skipped.
fn incoming(listener: TcpListener, tls: Option<Tls>) -> impl Stream<Item = io::Result<Connection>> {
    let last_refusal = Arc::new(Mutex::new(None));
    let handshakes = PeerLimit::new(MAX_HANDSHAKES_PER_PEER);
    stream::unfold(listener, |listener| async move {
        loop {
            match listener.accept().await {
                Ok((tcp, _)) => return Some((tcp, listener)),
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
    .map(move |tcp| {
        let (tls, last_refusal, handshakes) = (tls.clone(), Arc::clone(&last_refusal), handshakes.clone());
        async move {
            let peer = tcp.peer_addr().ok();
            // Small frames depend on each other; waiting to fill packets would delay every call.
            let _best_effort = tcp.set_nodelay(true);
            let Some(tls) = tls else { return Some(Ok(Connection::Plain(tcp))) };
            let Some(_handshake) = peer.and_then(|peer| handshakes.take(peer.ip())) else {
                log_refusal(&mut last_refusal.lock(), peer, &io::Error::other("too many handshakes with this peer"));
                return None;
            };
            match tls.accept(tcp).await {
                Ok(connection) => Some(Ok(connection)),
                Err(error) => {
                    log_refusal(&mut last_refusal.lock(), peer, &error);
                    None
                }
            }
        }
    })
    .buffer_unordered(MAX_HANDSHAKES)
    .filter_map(std::future::ready)
}

/// Logs at most one line per second, because anyone who reaches the port can cause these.
fn log_refusal(last: &mut Option<tokio::time::Instant>, peer: Option<std::net::SocketAddr>, error: &io::Error) {
    if last.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
        *last = Some(tokio::time::Instant::now());
        tracing::warn!(?peer, %error, "connection refused");
    }
}

#[cfg(test)]
mod tests;
