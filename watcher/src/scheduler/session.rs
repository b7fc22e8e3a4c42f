//! One session with one scheduler replica.

use super::{FindCatalog, Question};
use crate::metrics::WatcherMetrics;
use crate::snapshots::{OBJECTS_PER_CHUNK, Published};
use plimsoll_model::plan::Plan;
use plimsoll_proto::convert::append_fragment;
use plimsoll_proto::delta;
use plimsoll_proto::plan::v1 as wire;
use plimsoll_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use plimsoll_proto::scheduler::v1::session_request::Message as Ask;
use plimsoll_proto::scheduler::v1::session_response::Message as Answer;
use plimsoll_proto::scheduler::v1::{Hello, PlanNow, SessionRequest, SessionResponse};
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Messages that wait to be sent: a session is asked one thing at a time.
const QUEUE: usize = 4;

/// How long a replica may take to open a session: it only has to greet.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);

/// Full snapshots and catalogs that a replica may ask for during one plan. More means that it cannot keep them.
const MAX_RESYNCS: usize = 3;

/// A session and what the replica knows.
pub(super) struct Session {
    requests: mpsc::Sender<SessionRequest>,
    responses: Streaming<SessionResponse>,
    catalogs: BTreeSet<String>,
    sent: Option<Arc<Published>>,
    metrics: WatcherMetrics,
}

impl Session {
    /// Opens a session.
    pub(super) async fn open(
        channel: Channel,
        cluster: String,
        client: String,
        metrics: WatcherMetrics,
    ) -> Result<Self, Status> {
        let open = async {
            let (requests, receiver) = mpsc::channel(QUEUE);
            send(&requests, Ask::Hello(Hello { cluster, client })).await?;
            let mut stub = SchedulerServiceClient::new(channel).max_decoding_message_size(MAX_DECODING_BYTES);
            let mut responses = stub.session(ReceiverStream::new(receiver)).await?.into_inner();
            let Answer::Ready(ready) = receive(&mut responses).await? else {
                return Err(Status::internal("the scheduler did not begin with Ready"));
            };
            metrics.sessions.inc();
            let catalogs = ready.known_catalog_ids.into_iter().collect();
            Ok(Self { requests, responses, catalogs, sent: None, metrics })
        };
        let late = || Status::deadline_exceeded("the session was not opened in time");
        tokio::time::timeout(OPEN_TIMEOUT, open).await.unwrap_or_else(|_| Err(late()))
    }

    /// Brings the replica to the snapshot and asks for its plan. The session is of no use after an error.
    pub(super) async fn plan(&mut self, question: &Question<'_>) -> Result<Plan, Status> {
        let (sequence, catalogs) = (question.published.snapshot.sequence, question.catalogs);
        self.bring(&question.published, catalogs).await?;
        self.ask(question).await?;
        let (mut plan, mut resyncs) = (wire::Plan::default(), 0);
        loop {
            match receive(&mut self.responses).await? {
                Answer::PlanFragment(fragment) if fragment.sequence == sequence => {
                    let part = fragment.part.ok_or_else(|| Status::internal("a fragment without a part"))?;
                    if !fragment.last && !part.launches.is_empty() {
                        forward(&question.parts, &part)?;
                    }
                    append_fragment(&mut plan, part);
                    if fragment.last {
                        return Plan::try_from(plan).map_err(|error| Status::internal(error.to_string()));
                    }
                }
                // Of a plan that was not waited for.
                Answer::PlanFragment(_) => {}
                Answer::NeedCatalog(need) => {
                    resyncs += 1;
                    for id in need.catalog_ids {
                        self.catalogs.remove(&id);
                        self.send_catalog(&id, catalogs).await?;
                    }
                }
                Answer::ResyncRequired(resync) => {
                    tracing::info!(reason = resync.reason, "scheduler asks for a full snapshot");
                    resyncs += 1;
                    (self.sent, plan) = (None, wire::Plan::default());
                    self.bring(&question.published, catalogs).await?;
                    self.ask(question).await?;
                }
                Answer::Ready(_) => return Err(Status::internal("Ready came twice")),
            }
            if resyncs > MAX_RESYNCS {
                return Err(Status::internal("the scheduler keeps asking for what it was sent"));
            }
        }
    }

    /// Sends the catalogs that are missing, and the snapshot or what changed.
    async fn bring(&mut self, published: &Arc<Published>, catalogs: FindCatalog<'_>) -> Result<(), Status> {
        let wanted: BTreeSet<&str> = published
            .snapshot
            .node_pools
            .iter()
            .filter_map(|pool| pool.catalog.as_ref())
            .map(|id| id.as_str())
            .collect();
        for id in wanted {
            self.send_catalog(id, catalogs).await?;
        }
        match self.sent.take() {
            Some(sent) if sent.snapshot.sequence == published.snapshot.sequence => {}
            sent => match sent.and_then(|sent| published.since(&sent)) {
                Some(delta) => send(&self.requests, Ask::Delta(delta)).await?,
                None => {
                    self.metrics.full_snapshots.inc();
                    for chunk in delta::chunks(&published.snapshot, OBJECTS_PER_CHUNK) {
                        send(&self.requests, Ask::SnapshotChunk(chunk)).await?;
                    }
                }
            },
        }
        self.sent = Some(Arc::clone(published));
        Ok(())
    }

    async fn send_catalog(&mut self, id: &str, catalogs: FindCatalog<'_>) -> Result<(), Status> {
        if self.catalogs.contains(id) {
            return Ok(());
        }
        // It may have been replaced since the snapshot was made: the next one refers to the new one.
        let catalog = catalogs(id).ok_or_else(|| Status::aborted(format!("catalog {id} is no longer known")))?;
        send(&self.requests, Ask::Catalog(catalog.as_ref().clone())).await?;
        self.catalogs.insert(id.to_owned());
        Ok(())
    }

    async fn ask(&self, question: &Question<'_>) -> Result<(), Status> {
        let ask = PlanNow {
            sequence: question.published.snapshot.sequence,
            options: Some((&question.options).into()),
            cycle_id: question.cycle_id.clone(),
        };
        send(&self.requests, Ask::PlanNow(ask)).await
    }
}

/// Launches that stand, whatever comes after them.
fn forward(parts: &mpsc::Sender<Plan>, part: &wire::Plan) -> Result<(), Status> {
    let part = wire::Plan {
        launches: part.launches.clone(),
        snapshot_sequence: part.snapshot_sequence,
        ledger: part.ledger,
        ..wire::Plan::default()
    };
    let part = Plan::try_from(part).map_err(|error| Status::internal(error.to_string()))?;
    // Nobody waits for it: it is in the whole plan as well.
    let _full = parts.try_send(part);
    Ok(())
}

async fn send(requests: &mpsc::Sender<SessionRequest>, message: Ask) -> Result<(), Status> {
    let request = SessionRequest { message: Some(message) };
    requests.send(request).await.map_err(|_closed| Status::unavailable("the session has ended"))
}

async fn receive(responses: &mut Streaming<SessionResponse>) -> Result<Answer, Status> {
    let response = responses.message().await?.ok_or_else(|| Status::unavailable("the session has ended"))?;
    response.message.ok_or_else(|| Status::internal("an empty message"))
}
