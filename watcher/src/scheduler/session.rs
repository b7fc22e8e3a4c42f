//! A session with one scheduler replica.

use super::{CatalogLookup, PlanRequest};
use crate::metrics::WatcherMetrics;
use crate::snapshots::{OBJECTS_PER_CHUNK, PublishedSnapshot};
use plimsoll_model::plan::Plan;
use plimsoll_proto::catalog::v1::Catalog;
use plimsoll_proto::convert::append_fragment;
use plimsoll_proto::delta;
use plimsoll_proto::known::Known;
use plimsoll_proto::plan::v1 as wire;
use plimsoll_proto::protocol::{PROTOCOL, protocol_of};
use plimsoll_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use plimsoll_proto::scheduler::v1::session_request::Message as RequestMessage;
use plimsoll_proto::scheduler::v1::session_response::Message as ResponseMessage;
use plimsoll_proto::scheduler::v1::{Hello, PlanNow, SessionRequest, SessionResponse};
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Request channel capacity. A session handles one request at a time.
const REQUEST_CAPACITY: usize = 4;

/// How long a replica may take to open a session. It only has to send `Ready`.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);

/// Full snapshots and catalogs that a replica may request during one plan. A replica that requests more cannot keep
/// them.
const MAX_RESYNCS: usize = 3;

/// A session and the state that the replica has.
pub(super) struct Session {
    requests: mpsc::Sender<SessionRequest>,
    responses: Streaming<SessionResponse>,
    known_catalogs: BTreeSet<String>,
    last_sent: Option<Arc<PublishedSnapshot>>,
    /// Sequence of the last abandoned plan, whose fragments may still arrive.
    abandoned: Option<u64>,
    /// Protocol number of the replica.
    protocol: u32,
    metrics: WatcherMetrics,
}

impl Session {
    /// Opens a session and waits for `Ready`.
    pub(super) async fn open(
        channel: Channel,
        cluster: String,
        client: String,
        metrics: WatcherMetrics,
    ) -> Result<Self, Status> {
        let open = async {
            let (requests, receiver) = mpsc::channel(REQUEST_CAPACITY);
            send(&requests, RequestMessage::Hello(Hello { cluster, client, protocol: PROTOCOL })).await?;
            let mut stub = SchedulerServiceClient::new(channel).max_decoding_message_size(MAX_DECODING_BYTES);
            let mut responses = stub.session(ReceiverStream::new(receiver)).await?.into_inner();
            let Some(ResponseMessage::Ready(ready)) = receive(&mut responses).await? else {
                return Err(Status::internal("the scheduler did not begin with Ready"));
            };
            let protocol = protocol_of("scheduler", ready.protocol);
            let protocol = protocol.map_err(|error| Status::failed_precondition(error.to_string()))?;
            metrics.sessions.inc();
            let known_catalogs = ready.known_catalog_ids.into_iter().collect();
            Ok(Self { requests, responses, known_catalogs, last_sent: None, abandoned: None, protocol, metrics })
        };
        let late = || Status::deadline_exceeded("the session was not opened in time");
        tokio::time::timeout(OPEN_TIMEOUT, open).await.unwrap_or_else(|_| Err(late()))
    }

    /// Whether the session can make this plan: fragments of an abandoned plan are known by their sequence.
    pub(super) fn can_plan(&self, request: &PlanRequest<'_>) -> bool {
        self.abandoned != Some(request.published.snapshot.sequence)
    }

    /// Sends the snapshot to the replica and requests a plan. Returns `None` if the request was abandoned: the replica
    /// stops making the plan once it gets a newer snapshot. The session is unusable after an error.
    pub(super) async fn plan(&mut self, request: &PlanRequest<'_>) -> Result<Option<Plan>, Status> {
        let (sequence, catalogs) = (request.published.snapshot.sequence, request.catalogs);
        self.sync(&request.published, catalogs).await?;
        self.request_plan(request).await?;
        let (mut plan, mut resyncs) = (wire::Plan::default(), 0);
        loop {
            let message = tokio::select! {
                biased;
                message = receive(&mut self.responses) => message?,
                () = request.abandon.cancelled() => {
                    self.abandoned = Some(sequence);
                    return Ok(None);
                }
            };
            let Some(message) = message else {
                if self.protocol > PROTOCOL {
                    // A kind of message that a later version has added.
                    continue;
                }
                return Err(Status::internal("an empty message"));
            };
            match message {
                ResponseMessage::PlanFragment(fragment) if fragment.sequence == sequence => {
                    let part = fragment.part.ok_or_else(|| Status::internal("a fragment without a part"))?;
                    if !fragment.last && !part.launches.is_empty() {
                        forward(&request.parts, &part)?;
                    }
                    append_fragment(&mut plan, part);
                    if fragment.last {
                        return Plan::try_from(plan).map(Some).map_err(|error| Status::internal(error.to_string()));
                    }
                }
                // A fragment of an earlier plan that was abandoned.
                ResponseMessage::PlanFragment(_) => {}
                ResponseMessage::NeedCatalog(need) => {
                    resyncs += 1;
                    for id in need.catalog_ids {
                        let catalog = find(&id, catalogs)?;
                        self.send_catalog(&id, &catalog).await?;
                    }
                }
                ResponseMessage::ResyncRequired(resync) => {
                    tracing::info!(reason = resync.reason, "scheduler asks for a full snapshot");
                    resyncs += 1;
                    (self.last_sent, plan) = (None, wire::Plan::default());
                    self.sync(&request.published, catalogs).await?;
                    self.request_plan(request).await?;
                }
                ResponseMessage::Ready(_) => return Err(Status::internal("Ready came twice")),
            }
            if resyncs > MAX_RESYNCS {
                return Err(Status::internal("the scheduler keeps asking for what it was sent"));
            }
        }
    }

    /// Sends the snapshot or its delta, and then missing catalogs. A replica that makes an abandoned plan looks at the
    /// next message only, and ends that plan if it is a snapshot or a delta.
    async fn sync(&mut self, published: &Arc<PublishedSnapshot>, catalogs: CatalogLookup<'_>) -> Result<(), Status> {
        // If a catalog is gone, nothing is sent.
        let missing = self.missing_catalogs(published, catalogs)?;
        match self.last_sent.take() {
            Some(sent) if sent.snapshot.sequence == published.snapshot.sequence => {}
            sent => match sent.and_then(|sent| published.since(&sent)) {
                Some(mut delta) => {
                    delta.checksum = checksum(published, self.protocol).unwrap_or(delta.checksum);
                    send(&self.requests, RequestMessage::Delta(delta)).await?;
                }
                None => {
                    self.metrics.full_snapshots.inc();
                    for mut chunk in delta::each_chunk(&published.snapshot, OBJECTS_PER_CHUNK) {
                        if chunk.last {
                            chunk.checksum = checksum(published, self.protocol).unwrap_or(chunk.checksum);
                        }
                        send(&self.requests, RequestMessage::SnapshotChunk(chunk)).await?;
                    }
                }
            },
        }
        self.last_sent = Some(Arc::clone(published));
        for (id, catalog) in missing {
            self.send_catalog(&id, &catalog).await?;
        }
        Ok(())
    }

    /// Catalogs that the snapshot refers to and the replica lacks, by id.
    fn missing_catalogs(
        &self,
        published: &PublishedSnapshot,
        catalogs: CatalogLookup<'_>,
    ) -> Result<BTreeMap<String, Arc<Catalog>>, Status> {
        let needed = published.snapshot.node_pools.iter().filter_map(|pool| pool.catalog.as_ref());
        let needed: BTreeSet<&str> = needed.map(|id| id.as_str()).collect();
        let missing = needed.into_iter().filter(|id| !self.known_catalogs.contains(*id));
        missing.map(|id| Ok((id.to_owned(), find(id, catalogs)?))).collect()
    }

    async fn send_catalog(&mut self, id: &str, catalog: &Catalog) -> Result<(), Status> {
        send(&self.requests, RequestMessage::Catalog(catalog.clone())).await?;
        self.known_catalogs.insert(id.to_owned());
        Ok(())
    }

    async fn request_plan(&self, request: &PlanRequest<'_>) -> Result<(), Status> {
        let plan_now = PlanNow {
            sequence: request.published.snapshot.sequence,
            options: Some((&request.options).into()),
            cycle_id: request.cycle_id.clone(),
        };
        send(&self.requests, RequestMessage::PlanNow(plan_now)).await
    }
}

/// A catalog may have been replaced since the snapshot was built. The next snapshot refers to the new one.
fn find(id: &str, catalogs: CatalogLookup<'_>) -> Result<Arc<Catalog>, Status> {
    catalogs(id).ok_or_else(|| Status::aborted(format!("catalog {id} is no longer known")))
}

/// The checksum that a replica computes, if it does not know all fields.
fn checksum(published: &PublishedSnapshot, protocol: u32) -> Option<u64> {
    let known = Known::to(protocol);
    (!known.all()).then(|| delta::checksum_known(&published.snapshot, known))
}

/// Forwards launches that are final although the plan is incomplete.
fn forward(parts: &mpsc::Sender<Plan>, part: &wire::Plan) -> Result<(), Status> {
    let part = wire::Plan {
        launches: part.launches.clone(),
        snapshot_sequence: part.snapshot_sequence,
        ledger: part.ledger,
        ..wire::Plan::default()
    };
    let part = Plan::try_from(part).map_err(|error| Status::internal(error.to_string()))?;
    // A full channel loses nothing: the complete plan contains the launches as well.
    let _full = parts.try_send(part);
    Ok(())
}

async fn send(requests: &mpsc::Sender<SessionRequest>, message: RequestMessage) -> Result<(), Status> {
    let request = SessionRequest { message: Some(message) };
    requests.send(request).await.map_err(|_closed| Status::unavailable("the session has ended"))
}

async fn receive(responses: &mut Streaming<SessionResponse>) -> Result<Option<ResponseMessage>, Status> {
    let response = responses.message().await?.ok_or_else(|| Status::unavailable("the session has ended"))?;
    Ok(response.message)
}
