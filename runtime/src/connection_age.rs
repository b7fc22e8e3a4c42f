//! Ends a connection at a maximum age, whatever its calls do.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use tonic::transport::server::Connected;

use crate::connection::{Connection, Peer};

/// A connection whose reads and writes fail from a certain age on. Before that age, the server asks the client to close
/// it; a call that never ends, such as a session, would keep it open.
#[derive(Debug)]
pub(crate) struct AgeLimited {
    connection: Connection,
    end: Pin<Box<Sleep>>,
}

impl AgeLimited {
    pub(crate) fn new(connection: Connection, max_age: Duration) -> Self {
        Self { connection, end: Box::pin(tokio::time::sleep(max_age)) }
    }

    /// The connection, unless it is too old. A peer that does not read must not prevent the end, so writes check too.
    fn open(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut Connection>> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "maximum age of the connection")),
            Poll::Pending => Ok(Pin::new(&mut self.connection)),
        }
    }
}

impl Connected for AgeLimited {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.connection.connect_info()
    }
}

impl AsyncRead for AgeLimited {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_read(cx, buffer)
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
