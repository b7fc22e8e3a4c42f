//! In-memory gRPC connections between the services, without sockets, which tests can interrupt.

use parking_lot::Mutex;
use plimsoll_runtime::client_pool::{ClientPool, ReplicaId};
use plimsoll_runtime::memory::{self, MemoryDialer, MemoryListener};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::watch;

/// Buffer size of a connection in bytes, per direction.
const BUFFER: usize = 256 * 1024;

/// Reachability of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Open,
    /// Connections stay open, and what the process sends does not arrive.
    Mute,
    /// Connections stay open but transfer no bytes.
    Silent,
    /// Connections break, and new ones are refused.
    Gone,
}

#[derive(Debug)]
struct Listener {
    process: String,
    dialer: MemoryDialer,
}

#[derive(Debug, Default)]
struct State {
    /// By port.
    listeners: BTreeMap<String, Listener>,
    /// DNS names in the certificate of each process.
    certificates: BTreeMap<String, Arc<[String]>>,
    /// By process.
    reach: BTreeMap<String, watch::Sender<Reach>>,
}

/// The network between processes. Cheap to clone; clones share one network.
#[derive(Debug, Clone, Default)]
pub struct Network {
    state: Arc<Mutex<State>>,
}

impl Network {
    /// Opens a port for a process and replaces any existing listener there. The listener yields incoming connections.
    #[must_use]
    pub fn listen(&self, port: &str, process: &str) -> MemoryListener {
        let (dialer, listener) = memory::pair();
        self.state.lock().listeners.insert(port.to_owned(), Listener { process: process.to_owned(), dialer });
        listener
    }

    /// Gives a process a certificate with this DNS name, for connections that it opens from now on. Connections of a
    /// process without a certificate count as connections without TLS.
    pub fn certify(&self, process: &str, name: &str) {
        self.state.lock().certificates.insert(process.to_owned(), vec![name.to_owned()].into());
    }

    /// Client pool with which a process connects to the ports `to`.
    #[must_use]
    pub fn pool(&self, process: &str, to: &[String]) -> ClientPool {
        let (network, process) = (self.clone(), process.to_owned());
        let names = to.iter().map(|name| ReplicaId::from(name.as_str())).collect();
        ClientPool::in_memory(names, move |id| network.connect(&process, &id.to_string()))
    }

    fn connect(&self, process: &str, port: &str) -> io::Result<DuplexStream> {
        let mut state = self.state.lock();
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, format!("no listener at {port}"));
        let listener = state.listeners.get(port).ok_or_else(refused)?;
        let (other, dialer) = (listener.process.clone(), listener.dialer.clone());
        let (near, far) = (state.reach_of(process), state.reach_of(&other));
        if *near.borrow() == Reach::Gone || *far.borrow() == Reach::Gone {
            return Err(refused());
        }
        let (ours, our_end) = tokio::io::duplex(BUFFER);
        let their_end = dialer.dial(state.certificates.get(process).cloned())?;
        tokio::spawn(carry(our_end, their_end, near, far));
        Ok(ours)
    }

    /// Kills a process: its connections break, and new ones from and to the process fail.
    pub fn kill(&self, process: &str) {
        let mut state = self.state.lock();
        state.listeners.retain(|_, listener| listener.process != process);
        state.set(process, Reach::Gone);
    }

    /// Stops the transfer of bytes from and to a process, without closing connections.
    pub fn silence(&self, name: &str) {
        self.state.lock().set(name, Reach::Silent);
    }

    /// Stops the transfer of bytes from a process, as a partition in one direction does. It still receives.
    pub fn mute(&self, name: &str) {
        self.state.lock().set(name, Reach::Mute);
    }

    /// Restores the reachability of a process.
    pub fn heal(&self, name: &str) {
        self.state.lock().set(name, Reach::Open);
    }
}

impl State {
    fn sender(&mut self, name: &str) -> &watch::Sender<Reach> {
        self.reach.entry(name.to_owned()).or_insert_with(|| watch::Sender::new(Reach::Open))
    }

    fn reach_of(&mut self, name: &str) -> watch::Receiver<Reach> {
        self.sender(name).subscribe()
    }

    fn set(&mut self, name: &str, reach: Reach) {
        self.sender(name).send_replace(reach);
    }
}

/// The end of a connection at a process.
struct Outlet {
    stream: DuplexStream,
    reach: watch::Receiver<Reach>,
}

impl AsyncRead for Outlet {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The task that polls also waits for changes of the reach.
        if *self.reach.borrow() == Reach::Mute {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Outlet {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Copies bytes both ways while both processes are reachable.
async fn carry(
    one: DuplexStream,
    two: DuplexStream,
    mut near: watch::Receiver<Reach>,
    mut far: watch::Receiver<Reach>,
) {
    let mut one = Outlet { stream: one, reach: near.clone() };
    let mut two = Outlet { stream: two, reach: far.clone() };
    let copy = tokio::io::copy_bidirectional_with_sizes(&mut one, &mut two, BUFFER, BUFFER);
    tokio::pin!(copy);
    loop {
        let reach = [*near.borrow_and_update(), *far.borrow_and_update()];
        if reach.contains(&Reach::Gone) {
            return;
        }
        let silent = reach.contains(&Reach::Silent);
        tokio::select! {
            biased;
            changed = near.changed() => if changed.is_err() { return },
            changed = far.changed() => if changed.is_err() { return },
            _ = &mut copy, if !silent => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Network;
    use futures::StreamExt;
    use plimsoll_runtime::connection::Connection;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::timeout;

    async fn pair(network: &Network) -> (DuplexStream, Connection) {
        let mut incoming = Box::pin(network.listen("port", "server"));
        let near = network.connect("client", "port").unwrap();
        (near, incoming.next().await.unwrap().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_mute_process_receives_and_what_it_sends_arrives_later() {
        let network = Network::default();
        let (mut near, mut far) = pair(&network).await;
        network.mute("server");
        near.write_all(b"a").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'a');
        far.write_all(b"b").await.unwrap();
        assert!(timeout(Duration::from_secs(60), near.read_u8()).await.is_err());
        network.heal("server");
        assert_eq!(near.read_u8().await.unwrap(), b'b');
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_holds_bytes_back_and_a_death_breaks_the_connection() {
        let network = Network::default();
        let (mut near, mut far) = pair(&network).await;
        near.write_all(b"a").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'a');
        network.silence("server");
        near.write_all(b"b").await.unwrap();
        assert!(timeout(Duration::from_secs(60), far.read_u8()).await.is_err());
        network.heal("server");
        assert_eq!(far.read_u8().await.unwrap(), b'b');
        network.kill("server");
        assert!(near.read_u8().await.is_err(), "the end of the stream");
        assert!(network.connect("client", "port").is_err());
    }
}
