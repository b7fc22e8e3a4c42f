//! Bounds the connections of an admin port, which anyone in the cluster may open.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Instant, Sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// Maximum number of connections of one port.
pub(super) const MAX_CONNECTIONS: usize = 64;

/// A connection on which nothing arrives or leaves for this long is closed. Longer than the usual interval of scrapes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// Minimum interval of warnings, because anyone who reaches the port can cause them.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Open connections, oldest first: their peers, and what ends them. A connection that has ended cancels its token.
#[derive(Debug, Default)]
struct OpenConnections(Vec<(IpAddr, CancellationToken)>);

impl OpenConnections {
    /// Adds a connection. Returns its token, and the peer of the connection that ends for it, if there are too many.
    ///
    /// A new connection is never refused: the kubelet restarts a container whose probes are refused. The oldest
    /// connection of the peer that has most ends, so that a peer with many connections takes no place from others.
    fn add(&mut self, peer: IpAddr) -> (CancellationToken, Option<IpAddr>) {
        self.0.retain(|(_, end)| !end.is_cancelled());
        let ended = if self.0.len() < MAX_CONNECTIONS { None } else { self.end_one() };
        let end = CancellationToken::new();
        self.0.push((peer, end.clone()));
        (end, ended)
    }

    fn end_one(&mut self) -> Option<IpAddr> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (peer, _) in &self.0 {
            *counts.entry(*peer).or_default() += 1;
        }
        let most = counts.values().max();
        let oldest = self.0.iter().position(|(peer, _)| counts.get(peer) == most)?;
        let (peer, end) = self.0.remove(oldest);
        end.cancel();
        Some(peer)
    }
}

/// A listener with bounded connections.
#[derive(Debug)]
pub(super) struct BoundedListener {
    tcp: TcpListener,
    open: OpenConnections,
    last_warning: Option<Instant>,
}

impl BoundedListener {
    pub(super) fn new(tcp: TcpListener) -> Self {
        Self { tcp, open: OpenConnections::default(), last_warning: None }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedConnection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // Logs failures, and waits after them.
        let (tcp, address) = Listener::accept(&mut self.tcp).await;
        let (end, ended) = self.open.add(address.ip());
        if let Some(peer) = ended
            && self.last_warning.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL)
        {
            self.last_warning = Some(Instant::now());
            tracing::warn!(%peer, "too many connections, closing the oldest one of the peer that has most");
        }
        (BoundedConnection::new(tcp, end), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// The address of a caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, BoundedListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// A connection that ends when it is idle for too long, or when there are too many.
#[derive(Debug)]
pub(super) struct BoundedConnection<T> {
    stream: T,
    idle: Pin<Box<Sleep>>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Tells the listener when the connection has ended.
    _end: DropGuard,
}

impl<T: Unpin> BoundedConnection<T> {
    fn new(stream: T, end: CancellationToken) -> Self {
        let idle = Box::pin(tokio::time::sleep(IDLE_TIMEOUT));
        Self { stream, idle, ended: Box::pin(end.clone().cancelled_owned()), _end: end.drop_guard() }
    }

    /// The stream, unless the connection was ended.
    fn open(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut T>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "too many connections"));
        }
        Ok(Pin::new(&mut self.stream))
    }

    /// The result of a read or write, or an error if it has been pending for too long.
    fn unless_idle<R>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.idle.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
        } else if self.idle.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "idle for too long")));
        }
        result
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for BoundedConnection<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = this.open(cx)?.poll_read(cx, buffer);
        this.unless_idle(cx, result)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for BoundedConnection<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = this.open(cx)?.poll_write(cx, bytes);
        this.unless_idle(cx, result)
    }

    // Does not reset the time: to flush nothing is always possible.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_and_one_in_use_does_not() {
        let (mut ours, theirs) = tokio::io::duplex(8);
        let mut connection = BoundedConnection::new(theirs, CancellationToken::new());
        for _ in 0..3 {
            tokio::time::sleep(IDLE_TIMEOUT / 2).await;
            ours.write_all(b"x").await.unwrap();
            assert_eq!(connection.read_u8().await.unwrap(), b'x');
        }
        let began = Instant::now();
        assert_eq!(connection.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!((IDLE_TIMEOUT..IDLE_TIMEOUT + Duration::from_secs(1)).contains(&began.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_peer_reads_nothing_ends() {
        let (_unread, theirs) = tokio::io::duplex(8);
        let mut connection = BoundedConnection::new(theirs, CancellationToken::new());
        assert_eq!(connection.write_all(&[0; 9]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_is_ended_by_its_token() {
        let (_ours, theirs) = tokio::io::duplex(8);
        let end = CancellationToken::new();
        let mut connection = BoundedConnection::new(theirs, end.clone());
        let began = Instant::now();
        let (read, ()) = tokio::join!(connection.read_u8(), async { end.cancel() });
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(connection.write_u8(b'x').await.is_err());
    }

    #[test]
    fn the_oldest_connection_of_the_peer_that_has_most_ends() {
        let [few, many] = [[10_u8, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut open = OpenConnections::default();
        let of_few = open.add(few).0;
        let of_many: Vec<_> = (1..MAX_CONNECTIONS).map(|_| open.add(many)).collect();
        assert!(of_many.iter().all(|(_, ended)| ended.is_none()));
        assert_eq!(open.add(few).1, Some(many));
        assert!(of_many[0].0.is_cancelled() && !of_many[1].0.is_cancelled() && !of_few.is_cancelled());
        of_many[2].0.cancel();
        assert_eq!(open.add(many).1, None, "one has ended by itself");
        assert_eq!(open.add(many).1, Some(many));
        assert!(of_many[1].0.is_cancelled() && !of_few.is_cancelled());
    }
}
