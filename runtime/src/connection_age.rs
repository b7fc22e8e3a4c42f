//! Ends a connection at a maximum age, whatever its calls do, once one of its calls asks for it, or if it never begins
//! to speak HTTP/2.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
    time::Sleep,
};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::{
    connection::{Connection, Peer},
    peer_limit::PeerPermit,
};

/// Maximum time from the beginning of the answer of a bounded call until its caller has received it. 16 MiB arrive
/// within it at 2.3 Mbit/s.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time until the HTTP/2 preface has arrived, which clients send at once. After it, pings detect a vanished
/// peer.
pub(crate) const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of the HTTP/2 preface.
const PREFACE_BYTES: usize = 24;

/// What the calls of a connection know of it.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionHandle {
    /// The peer.
    pub(crate) peer: Peer,
    /// Ends the connection when it is cancelled.
    pub(crate) end: CancellationToken,
}

impl ConnectionHandle {
    /// Ends the connection after [`ANSWER_TIMEOUT`] unless the guard is dropped before. There is no other way to end a
    /// call whose client stops receiving: the server does not poll the body of its answer any more.
    pub(crate) fn end_unless_read(self) -> DropGuard {
        let read = CancellationToken::new();
        let guard = read.clone().drop_guard();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = read.cancelled() => {}
                () = tokio::time::sleep(ANSWER_TIMEOUT) => {
                    tracing::info!(peer = ?self.peer, "an answer was not read within {ANSWER_TIMEOUT:?}");
                    self.end.cancel();
                }
            }
        });
        guard
    }
}

/// What counts a connection, of its port and of its peer.
pub(crate) type Permits = (Option<OwnedSemaphorePermit>, Option<PeerPermit>);

/// A connection whose reads and writes fail from a certain age on, or once it is ended. Before that age, the server
/// asks the client to close it; a call that never ends, such as a session, would keep it open.
#[derive(Debug)]
pub(crate) struct AgeLimited {
    connection: Connection,
    end: CancellationToken,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    too_old: Pin<Box<Sleep>>,
    /// Missing bytes of the preface, and the end of the time for it.
    preface: Option<(usize, Pin<Box<Sleep>>)>,
    /// Count the connection.
    _permits: Permits,
}

impl AgeLimited {
    /// The permits are given back with the end of the connection.
    pub(crate) fn new(connection: Connection, max_age: Duration, permits: Permits) -> Self {
        let end = CancellationToken::new();
        let ended = Box::pin(end.clone().cancelled_owned());
        let too_old = Box::pin(tokio::time::sleep(max_age));
        let preface = Some((PREFACE_BYTES, Box::pin(tokio::time::sleep(PREFACE_TIMEOUT))));
        Self { connection, end, ended, too_old, preface, _permits: permits }
    }

    /// The connection, unless it is too old or was ended. A peer that does not read must not prevent the end, so writes
    /// check too.
    fn open(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut Connection>> {
        if self.too_old.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "maximum age of the connection"));
        }
        if self.ended.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "an answer was not read in time"));
        }
        Ok(Pin::new(&mut self.connection))
    }
}

impl Connected for AgeLimited {
    type ConnectInfo = ConnectionHandle;

    fn connect_info(&self) -> ConnectionHandle {
        ConnectionHandle { peer: self.connection.connect_info(), end: self.end.clone() }
    }
}

impl AsyncRead for AgeLimited {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let result = this.open(cx)?.poll_read(cx, buffer);
        if let Some((missing, timeout)) = &mut this.preface {
            *missing = missing.saturating_sub(buffer.filled().len().saturating_sub(before));
            if *missing == 0 {
                this.preface = None;
            } else if timeout.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no HTTP/2 preface in time")));
            }
        }
        result
    }
}

impl AsyncWrite for AgeLimited {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.open(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_shutdown(cx)
    }
}
