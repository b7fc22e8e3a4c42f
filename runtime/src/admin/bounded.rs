//! Bounds the connections of an admin port, which anyone in the cluster may open.

use crate::peer_limit::{PeerLimit, PeerPermit};
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};

/// Maximum number of connections of one port. More are closed at once.
const MAX_CONNECTIONS: usize = 64;

/// Maximum number of them with one peer. A scraper needs one or two.
pub(super) const MAX_CONNECTIONS_PER_PEER: usize = 16;

/// A connection on which nothing arrives or leaves for this long is closed. Longer than the usual interval of scrapes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// A listener with bounded connections.
#[derive(Debug)]
pub(super) struct BoundedListener {
    tcp: TcpListener,
    permits: Arc<Semaphore>,
    peers: PeerLimit,
}

impl BoundedListener {
    pub(super) fn new(tcp: TcpListener) -> Self {
        let peers = PeerLimit::new(MAX_CONNECTIONS_PER_PEER);
        Self { tcp, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)), peers }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedConnection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // Until a connection is within the bounds.
        loop {
            // Logs failures, and waits after them.
            let (tcp, address) = Listener::accept(&mut self.tcp).await;
            let of_port = Arc::clone(&self.permits).try_acquire_owned().ok();
            if let Some(permits) = of_port.zip(self.peers.take(address.ip())) {
                return (BoundedConnection::new(tcp, Some(permits)), address);
            }
            tracing::debug!(peer = %address, "too many connections");
        }
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

/// A connection that ends when it is idle for too long.
#[derive(Debug)]
pub(super) struct BoundedConnection<T> {
    stream: T,
    idle: Pin<Box<Sleep>>,
    /// Count the connection.
    _permits: Option<(OwnedSemaphorePermit, PeerPermit)>,
}

impl<T> BoundedConnection<T> {
    fn new(stream: T, permits: Option<(OwnedSemaphorePermit, PeerPermit)>) -> Self {
        Self { stream, idle: Box::pin(tokio::time::sleep(IDLE_TIMEOUT)), _permits: permits }
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
        let result = Pin::new(&mut this.stream).poll_read(cx, buffer);
        this.unless_idle(cx, result)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for BoundedConnection<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(cx, bytes);
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
        let mut connection = BoundedConnection::new(theirs, None);
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
        let mut connection = BoundedConnection::new(theirs, None);
        assert_eq!(connection.write_all(&[0; 9]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
