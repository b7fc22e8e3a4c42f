//! `WatchSnapshot`: who wants to see what schedulers are told.

use super::{Newest, OBJECTS_PER_CHUNK, Published};
use crate::metrics::WatcherMetrics;
use plimsoll_proto::delta;
use plimsoll_proto::watcher::v1::watch_snapshot_response::Message;
use plimsoll_proto::watcher::v1::watcher_service_server::WatcherService;
use plimsoll_proto::watcher::v1::{WatchSnapshotRequest, WatchSnapshotResponse};
use plimsoll_runtime::connection::Peer;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// Clients at once: the command line's and a few others; each holds a snapshot alive.
const MAX_CLIENTS: usize = 16;

/// Messages that wait for a client.
const QUEUE: usize = 8;

/// Snapshots that a client may miss before it gets a full one again: a change over so many is hardly smaller.
const MAX_BEHIND: u64 = 256;

/// How long a client may leave its queue full: it is gone, or might as well be.
const PATIENCE: Duration = Duration::from_secs(60);

/// The service.
#[derive(Debug, Clone)]
pub struct SnapshotService {
    newest: Newest,
    callers: Arc<[String]>,
    clients: Arc<Semaphore>,
    metrics: WatcherMetrics,
    shutdown: CancellationToken,
}

impl SnapshotService {
    /// Of the newest snapshots; for `callers` alone, by the names in their certificates (rule 19). Streams end with `shutdown`.
    #[must_use]
    pub fn new(newest: Newest, callers: Vec<String>, metrics: WatcherMetrics, shutdown: CancellationToken) -> Self {
        let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
        Self { newest, callers: callers.into(), clients, metrics, shutdown }
    }
}

type Sender = mpsc::Sender<Result<WatchSnapshotResponse, Status>>;

#[tonic::async_trait]
impl WatcherService for SnapshotService {
    type WatchSnapshotStream = ReceiverStream<Result<WatchSnapshotResponse, Status>>;

    async fn watch_snapshot(
        &self,
        request: Request<WatchSnapshotRequest>,
    ) -> Result<Response<Self::WatchSnapshotStream>, Status> {
        if Peer::of(&request).is_some_and(|peer| !peer.is_one_of(&self.callers)) {
            return Err(Status::permission_denied("the certificate's name is not among the allowed callers"));
        }
        let Ok(permit) = Arc::clone(&self.clients).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("{MAX_CLIENTS} clients follow snapshots already")));
        };
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (newest, metrics, shutdown) = (self.newest.clone(), self.metrics.clone(), self.shutdown.clone());
        let once = request.get_ref().once;
        tokio::spawn(async move {
            let _permit = permit;
            metrics.subscribers.inc();
            let ended = tokio::select! {
                biased;
                () = shutdown.cancelled() => Err(Status::unavailable("the watcher is stopping")),
                ended = follow(newest, &sender, once) => ended,
            };
            if let Err(status) = ended {
                // Whoever is gone does not need to know.
                let _gone = sender.try_send(Err(status));
            }
            metrics.subscribers.dec();
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Sends a full snapshot, then changes.
async fn follow(mut newest: Newest, sender: &Sender, once: bool) -> Result<(), Status> {
    let mut known: Option<Arc<Published>> = None;
    loop {
        let published = tokio::select! {
            biased;
            () = sender.closed() => return Ok(()),
            published = newest.wait_for(|published| match (published, &known) {
                (Some(published), Some(known)) => published.snapshot.sequence != known.snapshot.sequence,
                (published, None) => published.is_some(),
                (None, Some(_)) => false,
            }) => published.map_err(|_stopped| Status::unavailable("the watcher is stopping"))?.clone(),
        };
        let Some(published) = published else { continue };
        let near =
            |known: &Arc<Published>| published.snapshot.sequence.wrapping_sub(known.snapshot.sequence) <= MAX_BEHIND;
        match known.filter(near).and_then(|known| published.since(&known)) {
            Some(delta) => send(sender, Message::Delta(delta)).await?,
            None => {
                for chunk in delta::chunks(&published.snapshot, OBJECTS_PER_CHUNK) {
                    send(sender, Message::SnapshotChunk(chunk)).await?;
                }
            }
        }
        if once {
            return Ok(());
        }
        known = Some(published);
    }
}

async fn send(sender: &Sender, message: Message) -> Result<(), Status> {
    match sender.send_timeout(Ok(WatchSnapshotResponse { message: Some(message) }), PATIENCE).await {
        Ok(()) => Ok(()),
        Err(mpsc::error::SendTimeoutError::Closed(_)) => Ok(()),
        Err(mpsc::error::SendTimeoutError::Timeout(_)) => {
            Err(Status::resource_exhausted(format!("the client took nothing for {PATIENCE:?}")))
        }
    }
}
