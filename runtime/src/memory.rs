//! Connections within one process: what a listener and a dialer are on a network. For simulations, the demo and tests.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::Stream;
use tokio::{
    io::DuplexStream,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use crate::connection::Connection;

/// Bytes in flight in each direction before a writer waits: two of HTTP/2's default windows.
const BUFFER_BYTES: usize = 128 * 1024;

/// Opens connections to one [`MemoryListener`]. Clones reach the same one.
#[derive(Clone, Debug)]
pub struct MemoryDialer(UnboundedSender<Connection>);

/// Accepts what its dialers open. Ends never; once it is dropped, dialers are refused.
#[derive(Debug)]
pub struct MemoryListener(UnboundedReceiver<Connection>);

/// A listener and the way to it.
#[must_use]
pub fn pair() -> (MemoryDialer, MemoryListener) {
    // Unbounded: a dialer cannot wait, and callers keep one connection each.
    let (dialer, listener) = unbounded_channel();
    (MemoryDialer(dialer), MemoryListener(listener))
}

impl MemoryDialer {
    /// A new connection's near end. The listener sees `names` as those of this end's certificate; none as if without TLS.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub fn dial(&self, names: Option<Arc<[String]>>) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        self.0
            .send(Connection::Memory(far, names))
            .map_err(|_gone| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(near)
    }
}

impl Stream for MemoryListener {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.poll_recv(context) {
            Poll::Ready(Some(far)) => Poll::Ready(Some(Ok(far))),
            // Without a dialer nobody new comes, but those who are there go on.
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
