//! In-process connections: counterparts of a listener and a dialer on a network, for simulations, the demo and tests.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::Stream;
use hyper_util::rt::TokioIo;
use tokio::{
    io::DuplexStream,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};
use tonic::transport::{Channel, Endpoint};

use crate::connection::Connection;

/// Bytes in flight per direction before a writer waits: two of HTTP/2's default windows.
const BUFFER_BYTES: usize = 128 * 1024;

/// Opens connections to one [`MemoryListener`]. Clones connect to the same listener.
#[derive(Clone, Debug)]
pub struct MemoryDialer(UnboundedSender<Connection>);

/// Accepts the connections of its dialers. Never ends; after it is dropped, dialers fail.
#[derive(Debug)]
pub struct MemoryListener(UnboundedReceiver<Connection>);

/// Creates a listener and its dialer.
#[must_use]
pub fn pair() -> (MemoryDialer, MemoryListener) {
    // Unbounded, because a dialer cannot wait and callers keep one connection each.
    let (dialer, listener) = unbounded_channel();
    (MemoryDialer(dialer), MemoryListener(listener))
}

impl MemoryDialer {
    /// Opens a connection and returns its near end. The listener sees `names` as the names of this end's certificate;
    /// `None` means without TLS.
    ///
    /// # Errors
    /// If the listener was dropped.
    pub fn dial(&self, names: Option<Arc<[String]>>) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        self.0
            .send(Connection::Memory(far, names))
            .map_err(|_gone| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(near)
    }

    /// A gRPC channel whose connections are without TLS.
    #[must_use]
    pub fn channel(self) -> Channel {
        let connector = tower::service_fn(move |_: http::Uri| {
            let near = self.dial(None);
            async move { near.map(TokioIo::new) }
        });
        Endpoint::from_static("http://memory.test").connect_with_connector_lazy(connector)
    }
}

impl Stream for MemoryListener {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.poll_recv(context) {
            Poll::Ready(Some(far)) => Poll::Ready(Some(Ok(far))),
            // Without a dialer there are no new connections, but existing ones continue.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn what_one_end_writes_the_other_reads_until_nobody_listens() {
        let (dialer, mut listener) = pair();
        let mut near = dialer.dial(None).unwrap();
        let mut far = listener.next().await.unwrap().unwrap();
        near.write_all(b"hello").await.unwrap();
        drop(near);
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        drop(listener);
        assert_eq!(dialer.dial(None).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
