//! Channels to the replicas of a service: one lazy channel each. One is in use at a time, and the next one after a
//! failure.
//!
//! A balanced channel would send calls to dead replicas and cannot use reloaded certificates. Retries belong above the
//! generated client, where a request can be sent again: get a channel, call, report the result.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    io::DuplexStream,
    net::{TcpStream, lookup_host},
    time::Instant,
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::{backoff, connection::Connection, tls::Tls};

/// Metadata key of a standby's UNAVAILABLE response with the address of the leader, as `address:port`.
pub const LEADER_HEADER: &str = "plimsoll-leader";

/// Metadata key of an error with which a scheduler reports that it withheld a plan: its check failed, or the planner
/// panicked. Any other replica would do the same. A planner that took too long says nothing about other replicas.
pub const WITHHELD_HEADER: &str = "plimsoll-plan-withheld";

/// Timeout to connect to a replica, including the TLS handshake. After it, another replica is more likely to respond.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout of the look-up of one name; same as [`CONNECT_TIMEOUT`].
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Minimum interval between look-ups of names, which happen only when another replica is needed.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// Delay after a replica's first failure, doubled after each further failure. Too short for a user to notice.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Maximum delay. A new leader is then found this soon; the calls of a few replicas cost next to nothing.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Maximum number of replicas, from DNS and hints together.
const MAX_REPLICAS: usize = 64;

/// Interval of HTTP/2 pings, also while idle, so that a vanished replica is detected before the next call.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// One replica: its socket address, or its in-memory name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaId(Arc<str>);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ReplicaId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// An address is not `host:port`.
    #[error("address {address:?} is not of the form host:port")]
    Address {
        /// The address.
        address: String,
    },
    /// No address is configured.
    #[error("no address given")]
    Empty,
    /// None of the names resolves to an address.
    #[error("no replica found: {0}")]
    Unresolved(String),
    /// The replica's name cannot be used as an authority.
    #[error("replica {id}: {source}")]
    Endpoint {
        /// The replica.
        id: ReplicaId,
        /// The cause.
        source: tonic::transport::Error,
    },
}

type MemoryConnector = dyn Fn(&ReplicaId) -> io::Result<DuplexStream> + Send + Sync;

#[derive(Clone)]
enum Source {
    Network { targets: Vec<(String, u16)>, tls: Option<Tls> },
    Memory { names: Vec<ReplicaId>, connect: Arc<MemoryConnector> },
}

struct Replica {
    channel: Channel,
    failures: u32,
    retry_at: Instant,
}

#[derive(Default)]
struct State {
    replicas: BTreeMap<ReplicaId, Replica>,
    current: Option<ReplicaId>,
    resolved: Option<Instant>,
}

/// The replicas of one service. Clones share channels and state.
#[derive(Clone)]
pub struct ClientPool {
    source: Source,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for ClientPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientPool").field("current", &self.state.lock().current).finish_non_exhaustive()
    }
}

impl ClientPool {
    /// Replicas on the network. Each address is `host:port`; a name may resolve to several replicas. A replica's
    /// certificate must be for the configured host; for an address from a hint, for the first host. Without `tls`, only
    /// loopback replicas are used.
    ///
    /// # Errors
    /// If there is no address, or an address is malformed.
    pub fn new(addresses: &[String], tls: Option<Tls>) -> Result<Self, PoolError> {
        let parse = |address: &String| {
            let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
            match parts {
                Some((host, port)) if !host.is_empty() => Ok((host.trim_matches(['[', ']']).to_owned(), port)),
                _ => Err(PoolError::Address { address: address.clone() }),
            }
        };
        let targets = addresses.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if targets.is_empty() {
            return Err(PoolError::Empty);
        }
        Ok(Self { source: Source::Network { targets, tls }, state: Arc::default() })
    }

    /// Replicas in this process; `connect` creates each connection.
    #[must_use]
    pub fn in_memory(
        names: Vec<ReplicaId>,
        connect: impl Fn(&ReplicaId) -> io::Result<DuplexStream> + Send + Sync + 'static,
    ) -> Self {
        Self { source: Source::Memory { names, connect: Arc::new(connect) }, state: Arc::default() }
    }

    /// The replica in use; after a failure, the replica without a failure or with the oldest one. Waits for its delay
    /// (at most 2 s) if all replicas have failed recently.
    ///
    /// # Errors
    /// If no replica is known.
    pub async fn channel(&self) -> Result<(ReplicaId, Channel), PoolError> {
        if let Some(found) = self.state.lock().in_use() {
            return Ok(found);
        }
        let unresolved = self.resolve().await?;
        let (id, channel, retry_at) = self.state.lock().choose().ok_or(PoolError::Unresolved(unresolved))?;
        tokio::time::sleep_until(retry_at).await;
        // Another task may have chosen a replica in the meantime; all tasks use the same one.
        let mut state = self.state.lock();
        if let Some(found) = state.in_use() {
            return Ok(found);
        }
        state.current = Some(id.clone());
        Ok((id, channel))
    }

    /// Reports a successful call: the failures of the replica are reset.
    pub fn succeeded(&self, id: &ReplicaId) {
        if let Some(replica) = self.state.lock().replicas.get_mut(id) {
            replica.failures = 0;
        }
    }

    /// Reports a failed call that another replica may handle: the replica is avoided for a while.
    pub fn failed(&self, id: &ReplicaId) {
        self.state.lock().fail(id);
    }

    /// As [`ClientPool::failed`]. In addition, switches to the leader in `status` if it is UNAVAILABLE with a leader
    /// that has not failed recently. Returns whether it switches.
    pub fn refused(&self, id: &ReplicaId, status: &Status) -> bool {
        let mut state = self.state.lock();
        state.fail(id);
        let hint = Some(status).filter(|status| status.code() == Code::Unavailable);
        let Some(leader) = hint.and_then(|status| self.named_leader(status)).filter(|leader| leader != id) else {
            return false;
        };
        if !state.replicas.contains_key(&leader) {
            let Ok(channel) = self.connect(&leader, self.default_host()) else { return false };
            if !state.add(leader.clone(), channel) {
                return false;
            }
        }
        let usable = state.replicas.get(&leader).is_some_and(|replica| replica.retry_at <= Instant::now());
        if usable {
            state.current = Some(leader);
        }
        usable
    }

    /// Id of the leader: an address and port, never a name, because any responder could otherwise cause name look-ups.
    fn named_leader(&self, status: &Status) -> Option<ReplicaId> {
        let named = status.metadata().get(LEADER_HEADER)?.to_str().ok()?;
        match &self.source {
            Source::Network { .. } => named.parse::<SocketAddr>().ok().map(|address| address_id(&address)),
            Source::Memory { names, .. } => names.iter().find(|name| &*name.0 == named).cloned(),
        }
    }

    fn default_host(&self) -> &str {
        match &self.source {
            Source::Network { targets, .. } => targets.first().map_or("", |(host, _)| host),
            Source::Memory { .. } => "",
        }
    }

    /// Updates the set of replicas if the last update is old; returns the names that could not be resolved.
    async fn resolve(&self) -> Result<String, PoolError> {
        let fresh = |at: Instant| at.elapsed() < RESOLVE_INTERVAL;
        if self.state.lock().resolved.is_some_and(fresh) {
            return Ok("looked up just now".to_owned());
        }
        let mut found: BTreeMap<ReplicaId, String> = BTreeMap::new();
        let mut failures = Vec::new();
        match &self.source {
            Source::Memory { names, .. } => found.extend(names.iter().map(|name| (name.clone(), name.to_string()))),
            Source::Network { targets, .. } => {
                for (host, port) in targets {
                    match tokio::time::timeout(RESOLVE_TIMEOUT, lookup_host((host.as_str(), *port))).await {
                        Ok(Ok(addresses)) => found.extend(addresses.map(|at| (address_id(&at), host.clone()))),
                        Ok(Err(error)) => failures.push(format!("{host}: {error}")),
                        Err(_) => failures.push(format!("{host}: no answer within {RESOLVE_TIMEOUT:?}")),
                    }
                }
            }
        }
        let failures = failures.join("; ");
        let mut state = self.state.lock();
        if failures.is_empty() {
            // Only a complete result shows which replicas no longer exist.
            let gone: BTreeSet<_> = state.replicas.keys().filter(|id| !found.contains_key(id)).cloned().collect();
            state.replicas.retain(|id, _| !gone.contains(id));
            state.resolved = Some(Instant::now());
        } else {
            tracing::warn!(%failures, "replicas not looked up");
        }
        for (id, host) in found {
            if !state.replicas.contains_key(&id) {
                let channel = self.connect(&id, &host)?;
                state.add(id, channel);
            }
        }
        Ok(failures)
    }

    /// A channel that connects with its first call.
    fn connect(&self, id: &ReplicaId, host: &str) -> Result<Channel, PoolError> {
        let endpoint = Endpoint::from_shared(format!(
            "http://{}",
            match &self.source {
                Source::Network { .. } => &*id.0,
                // In-memory names need not be valid in an address.
                Source::Memory { .. } => "memory.invalid",
            }
        ))
        .map_err(|source| PoolError::Endpoint { id: id.clone(), source })?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
        let (source, id, host) = (self.source.clone(), id.clone(), host.to_owned());
        Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| {
            let (source, id, host) = (source.clone(), id.clone(), host.clone());
            async move { open(&source, &id, &host).await.map(TokioIo::new) }
        })))
    }
}

async fn open(source: &Source, id: &ReplicaId, host: &str) -> io::Result<Connection> {
    let tls = match source {
        Source::Memory { connect, .. } => return connect(id).map(|stream| Connection::Memory(stream, None)),
        Source::Network { tls, .. } => tls,
    };
    let address: SocketAddr = id.0.parse().map_err(io::Error::other)?;
    if tls.is_none() && !address.ip().is_loopback() {
        return Err(io::Error::other(format!("refusing to call {address} without certificates")));
    }
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    match tls {
        Some(tls) => tls.connect(tcp, host).await,
        None => Ok(Connection::Plain(tcp)),
    }
}

fn address_id(address: &SocketAddr) -> ReplicaId {
    ReplicaId(address.to_string().into())
}

impl State {
    fn in_use(&self) -> Option<(ReplicaId, Channel)> {
        let id = self.current.as_ref()?;
        self.replicas.get(id).map(|replica| (id.clone(), replica.channel.clone()))
    }

    /// The replica with the earliest retry time, then the fewest failures, then the first.
    fn choose(&self) -> Option<(ReplicaId, Channel, Instant)> {
        let now = Instant::now();
        let key = |(id, replica): &(&ReplicaId, &Replica)| {
            (replica.retry_at.max(now), replica.failures, ReplicaId::clone(id))
        };
        let (id, replica) = self.replicas.iter().min_by_key(key)?;
        Some((id.clone(), replica.channel.clone(), replica.retry_at))
    }

    fn add(&mut self, id: ReplicaId, channel: Channel) -> bool {
        let room = self.replicas.len() < MAX_REPLICAS;
        if room {
            self.replicas.insert(id, Replica { channel, failures: 0, retry_at: Instant::now() });
        }
        room
    }

    fn fail(&mut self, id: &ReplicaId) {
        if self.current.as_ref() == Some(id) {
            self.current = None;
        }
        let Some(replica) = self.replicas.get_mut(id) else { return };
        let pause = backoff::delay(FIRST_BACKOFF, MAX_BACKOFF, replica.failures);
        replica.failures = replica.failures.saturating_add(1);
        replica.retry_at = Instant::now() + pause;
    }
}

#[cfg(test)]
mod tests;
