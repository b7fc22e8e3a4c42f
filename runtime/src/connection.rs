//! A byte stream of one of the three transports, and the identity of its peer.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;
use tonic::transport::server::Connected;

/// A connection: plain TCP (loopback only), TLS, or in memory (simulation).
#[derive(Debug)]
pub enum Connection {
    /// TCP without encryption.
    Plain(TcpStream),
    /// TCP with mutual TLS, with the DNS names of the peer's certificate.
    Tls(Box<TlsStream<TcpStream>>, Arc<[String]>),
    /// In this process, with the DNS names that the peer's certificate would have; `None` means without TLS.
    Memory(DuplexStream, Option<Arc<[String]>>),
}

/// The peer of a connection, stored in the extensions of a request; see [`Peer::of`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address; `None` in memory.
    pub address: Option<SocketAddr>,
    /// DNS names of its verified certificate; `None` without TLS.
    pub names: Option<Arc<[String]>>,
}

impl Peer {
    /// The sender of a request that arrived over a [`Connection`].
    pub fn of<T>(request: &tonic::Request<T>) -> Option<&Self> {
        request.extensions().get()
    }

    /// Whether the peer may act as one of `allowed`. A peer without TLS may: such connections exist only on loopback
    /// and in memory.
    #[must_use]
    pub fn is_one_of(&self, allowed: &[String]) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|name| allowed.contains(name)))
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        match self {
            Self::Plain(tcp) => Peer { address: tcp.peer_addr().ok(), names: None },
            Self::Tls(tls, names) => Peer { address: tls.get_ref().0.peer_addr().ok(), names: Some(Arc::clone(names)) },
            Self::Memory(_, names) => Peer { address: None, names: names.clone() },
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(tls, _) => Pin::new(tls.as_mut()).poll_read(cx, buffer),
            Self::Memory(memory, _) => Pin::new(memory).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls, _) => Pin::new(tls.as_mut()).poll_write(cx, bytes),
            Self::Memory(memory, _) => Pin::new(memory).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls, _) => Pin::new(tls.as_mut()).poll_flush(cx),
            Self::Memory(memory, _) => Pin::new(memory).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls, _) => Pin::new(tls.as_mut()).poll_shutdown(cx),
            Self::Memory(memory, _) => Pin::new(memory).poll_shutdown(cx),
        }
    }
}
