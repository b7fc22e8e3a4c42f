//! The `WatchSnapshot` RPC: streams the snapshots that schedulers receive to other clients.

use super::{Newest, OBJECTS_PER_CHUNK, PublishedSnapshot, Readers};
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

/// Maximum concurrent clients: the command line and a few others. Each client keeps a snapshot alive.
const MAX_CLIENTS: usize = 16;

/// Channel capacity per client, in messages.
const QUEUE: usize = 8;

/// Maximum snapshots that a client may lag behind and still get a delta. A delta over more snapshots is hardly smaller
/// than a full snapshot.
const MAX_BEHIND: u64 = 256;

/// How long a client's channel may stay full before its stream ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// gRPC service that streams snapshots.
#[derive(Debug, Clone)]
pub struct SnapshotService {
    newest: Newest,
    readers: Readers,
    callers: Arc<[String]>,
    clients: Arc<Semaphore>,
    metrics: WatcherMetrics,
    shutdown: CancellationToken,
}

impl SnapshotService {
    /// Serves snapshots from `newest`; each client is one of `readers`. Only `callers`, by the names in their
    /// certificates, may connect. Streams end on `shutdown`.
    #[must_use]
    pub fn new(
        (newest, readers): (Newest, Readers),
        callers: Vec<String>,
        metrics: WatcherMetrics,
        shutdown: CancellationToken,
    ) -> Self {
        let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
        Self { newest, readers, callers: callers.into(), clients, metrics, shutdown }
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
        if let Some(refusal) = refusal(Peer::of(&request), &self.callers) {
            return Err(refusal);
        }
        let Ok(permit) = Arc::clone(&self.clients).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("{MAX_CLIENTS} clients follow snapshots already")));
        };
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (newest, metrics, shutdown) = (self.newest.clone(), self.metrics.clone(), self.shutdown.clone());
        let (once, reader) = (request.get_ref().once, self.readers.add());
        tokio::spawn(async move {
            let _held = (permit, reader);
            metrics.subscribers.inc();
            let ended = tokio::select! {
                biased;
                () = shutdown.cancelled() => Err(Status::unavailable("the watcher is stopping")),
                ended = follow(newest, &sender, once) => ended,
            };
            if let Err(status) = ended {
                // The client may have disconnected already.
                let _gone = sender.try_send(Err(status));
            }
            metrics.subscribers.dec();
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Why a caller may not follow snapshots, if so. Unless names are allowed, no certificate may: pods and their names are
/// confidential, and other services have certificates of the same authority.
fn refusal(peer: Option<&Peer>, allowed: &[String]) -> Option<Status> {
    let peer = peer.filter(|peer| !peer.is_one_of(allowed))?;
    let names = peer.names.as_deref().unwrap_or_default().join(", ");
    let message = format!("--allow-caller of the watcher has none of the certificate's names: {names}");
    Some(Status::permission_denied(message))
}

/// Sends a full snapshot, then deltas.
async fn follow(mut newest: Newest, sender: &Sender, once: bool) -> Result<(), Status> {
    let mut last_sent: Option<Arc<PublishedSnapshot>> = None;
    loop {
        let published = tokio::select! {
            biased;
            () = sender.closed() => return Ok(()),
            published = newest.wait_for(|published| match (published, &last_sent) {
                (Some(published), Some(last_sent)) => published.snapshot.sequence != last_sent.snapshot.sequence,
                (published, None) => published.is_some(),
                (None, Some(_)) => false,
            }) => published.map_err(|_stopped| Status::unavailable("the watcher is stopping"))?.clone(),
        };
        let Some(published) = published else { continue };
        let is_recent = |last_sent: &Arc<PublishedSnapshot>| {
            published.snapshot.sequence.wrapping_sub(last_sent.snapshot.sequence) <= MAX_BEHIND
        };
        match last_sent.filter(is_recent).and_then(|last_sent| published.since(&last_sent)) {
            Some(delta) => send(sender, Message::Delta(delta)).await?,
            None => {
                for chunk in delta::each_chunk(&published.snapshot, OBJECTS_PER_CHUNK) {
                    send(sender, Message::SnapshotChunk(chunk)).await?;
                }
            }
        }
        if once {
            return Ok(());
        }
        last_sent = Some(published);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::tests::published;
    use plimsoll_model::snapshot::Snapshot;
    use tokio::sync::watch;

    fn snapshot(sequence: u64) -> Option<Arc<PublishedSnapshot>> {
        Some(Arc::new(published(Snapshot { sequence, ..Snapshot::default() })))
    }

    #[test]
    fn only_allowed_certificates_may_follow_and_a_refusal_names_the_flag() {
        let peer = |names: Option<&str>| Peer { address: None, names: names.map(|name| vec![name.to_owned()].into()) };
        let (tool, allowed) = (peer(Some("tool.default.svc")), ["tool.default.svc".to_owned()]);
        assert!(refusal(Some(&tool), &allowed).is_none());
        assert!(refusal(Some(&peer(None)), &[]).is_none(), "without TLS, on loopback only");
        let other = ["other.default.svc".to_owned()];
        for others in [&other[..0], &other[..]] {
            let status = refusal(Some(&tool), others).unwrap();
            let message = "--allow-caller of the watcher has none of the certificate's names: tool.default.svc";
            assert_eq!((status.code(), status.message()), (tonic::Code::PermissionDenied, message));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_lags_gets_a_delta_and_one_that_lags_far_behind_a_full_snapshot() {
        let newest = watch::Sender::new(snapshot(1));
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        let receiving = newest.subscribe();
        let following = tokio::spawn(async move { follow(receiving, &sender, false).await });
        // Up to 256 snapshots behind.
        for (sequence, is_delta) in [(1, false), (257, true), (514, false)] {
            newest.send_replace(snapshot(sequence));
            let message = receiver.recv().await.unwrap().unwrap().message;
            assert_eq!(matches!(message, Some(Message::Delta(_))), is_delta, "{message:?}");
        }
        drop(receiver);
        assert!(following.await.unwrap().is_ok(), "it ends with its client");
    }

    #[tokio::test(start_paused = true)]
    async fn the_stream_of_a_client_that_takes_nothing_ends() {
        let newest = watch::Sender::new(snapshot(1));
        let (sender, _receiver) = mpsc::channel(1);
        sender.try_send(Ok(WatchSnapshotResponse::default())).unwrap();
        let began = tokio::time::Instant::now();
        let ended = follow(newest.subscribe(), &sender, false).await;
        assert_eq!(ended.err().map(|status| status.code()), Some(tonic::Code::ResourceExhausted));
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
    }
}
