//! Connects a session's request and response streams to its synchronous core. Each message is one job on the threads
//! reserved for sessions.

use super::open_port::CancelOnDrop;
use super::{Core, lost};
use crate::session::Session;
use futures::Stream;
use plimsoll_proto::scheduler::v1::session_request::Message as RequestMessage;
use plimsoll_proto::scheduler::v1::{SessionRequest, SessionResponse};
use plimsoll_runtime::clock::sleep_until;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError::Full;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Response channel capacity, in fragments of a plan. When the channel is full, the session waits for the client.
const RESPONSE_CAPACITY: usize = 8;

/// How long a client may take to send Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

type Responses = mpsc::Sender<Result<SessionResponse, Status>>;

/// Starts a session. `permit` is released when the session ends.
pub(super) fn run(
    core: Arc<Core>,
    session: Session,
    requests: Streaming<SessionRequest>,
    permit: OwnedSemaphorePermit,
) -> Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>> {
    let (responses, receiver) = mpsc::channel(RESPONSE_CAPACITY);
    tokio::spawn(async move {
        core.metrics.sessions.inc();
        if let Err(status) = serve_session(&core, session, requests, &responses).await {
            tracing::info!(code = ?status.code(), message = status.message(), "session ends");
            // The client may have disconnected already.
            let _gone = responses.send(Err(status)).await;
        }
        core.metrics.sessions.dec();
        drop(permit);
    });
    Box::pin(ReceiverStream::new(receiver))
}

/// Serves a session until the client ends it (`Ok`) or an error occurs.
async fn serve_session(
    core: &Core,
    mut session: Session,
    mut requests: Streaming<SessionRequest>,
    responses: &Responses,
) -> Result<(), Status> {
    let cancel = session.canceller();
    // The process waits for its threads when it ends, and drops this task before.
    let _end = CancelOnDrop(cancel.clone());
    // A message that arrived while another was handled.
    let mut arrived = None;
    let mut hello_due = Some(tokio::time::Instant::now() + HELLO_TIMEOUT);
    loop {
        let request = tokio::select! {
            biased;
            () = core.stop.cancelled() => return Err(Status::unavailable("this scheduler is stopping")),
            () = responses.closed() => return Ok(()),
            request = next(&mut arrived, &mut requests) => request?,
            () = sleep_until(hello_due) => return Err(Status::deadline_exceeded("hello did not come")),
        };
        let Some(request) = request else { return Ok(()) };
        hello_due = None;
        let sink = responses.clone();
        let abandon = session.abandoner();
        let job = move || {
            let mut unsent = Vec::new();
            // Keep the order: once a response does not fit into the channel, all later responses are queued here.
            let result = session.handle_early(request, &mut |response| {
                let rejected =
                    if unsent.is_empty() { sink.try_send(Ok(response)).err() } else { Some(Full(Ok(response))) };
                unsent.extend(rejected.and_then(|error| error.into_inner().ok()));
            });
            let all_responses = result.map(|rest| unsent.into_iter().chain(rest).collect::<Vec<SessionResponse>>());
            (session, all_responses)
        };
        let job = core.workers.run(job);
        tokio::pin!(job);
        let done = loop {
            tokio::select! {
                biased;
                done = &mut job => break done,
                () = responses.closed() => {
                    cancel.cancel();
                    break job.await;
                }
                message = requests.message(), if arrived.is_none() => {
                    if changes_snapshot(&message) {
                        abandon.cancel();
                    }
                    arrived = Some(message);
                }
            }
        };
        let (returned_session, result) = done.map_err(|error| lost(&error))?;
        session = returned_session;
        for response in result? {
            if responses.send(Ok(response)).await.is_err() {
                return Ok(());
            }
        }
    }
}

type Message = Result<Option<SessionRequest>, Status>;

/// The message that arrived before, or the next one.
async fn next(arrived: &mut Option<Message>, requests: &mut Streaming<SessionRequest>) -> Message {
    match arrived.take() {
        Some(message) => message,
        None => requests.message().await,
    }
}

/// Whether the client no longer waits for a plan of the former snapshot.
fn changes_snapshot(message: &Message) -> bool {
    let Ok(Some(SessionRequest { message: Some(message) })) = message else { return false };
    matches!(message, RequestMessage::Delta(_) | RequestMessage::SnapshotChunk(_))
}
