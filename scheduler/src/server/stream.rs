//! A session's two streams around its synchronous core: each message is one job on the threads that sessions always have.

use super::{Core, lost};
use crate::session::Session;
use futures::Stream;
use plimsoll_proto::scheduler::v1::{SessionRequest, SessionResponse};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError::Full;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Answers that wait for the client to read them: pieces of one plan. Beyond it the session waits.
const ANSWERS_IN_FLIGHT: usize = 8;

/// Longest wait for Hello: who opens a session says so at once.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

type Answers = mpsc::Sender<Result<SessionResponse, Status>>;

/// Begins a session; its end frees `place`.
pub(super) fn run(
    core: Arc<Core>,
    session: Session,
    requests: Streaming<SessionRequest>,
    place: OwnedSemaphorePermit,
) -> Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>> {
    let (answers, receiver) = mpsc::channel(ANSWERS_IN_FLIGHT);
    tokio::spawn(async move {
        core.metrics.sessions.inc();
        if let Err(status) = converse(&core, session, requests, &answers).await {
            tracing::info!(code = ?status.code(), message = status.message(), "session ends");
            // A client that is gone does not need to be told.
            let _gone = answers.send(Err(status)).await;
        }
        core.metrics.sessions.dec();
        drop(place);
    });
    Box::pin(ReceiverStream::new(receiver))
}

/// Until the client ends (Ok), or something is wrong.
async fn converse(
    core: &Core,
    mut session: Session,
    mut requests: Streaming<SessionRequest>,
    answers: &Answers,
) -> Result<(), Status> {
    let cancel = session.canceller();
    let mut hello_due = Some(tokio::time::Instant::now() + HELLO_TIMEOUT);
    loop {
        let silence = async {
            match hello_due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let request = tokio::select! {
            biased;
            () = core.stop.cancelled() => return Err(Status::unavailable("this scheduler is stopping")),
            () = answers.closed() => return Ok(()),
            request = requests.message() => request?,
            () = silence => return Err(Status::deadline_exceeded("hello did not come")),
        };
        let Some(request) = request else { return Ok(()) };
        hello_due = None;
        let sink = answers.clone();
        let job = move || {
            let mut late = Vec::new();
            // Once one has to wait for the client, all after it do.
            let answered = session.handle_early(request, &mut |response| {
                let kept = if late.is_empty() { sink.try_send(Ok(response)).err() } else { Some(Full(Ok(response))) };
                late.extend(kept.and_then(|error| error.into_inner().ok()));
            });
            let all = answered.map(|rest| late.into_iter().chain(rest).collect::<Vec<SessionResponse>>());
            (session, all)
        };
        let job = core.workers.run(job);
        tokio::pin!(job);
        let done = tokio::select! {
            biased;
            done = &mut job => done,
            () = answers.closed() => {
                cancel.cancel();
                job.await
            }
        };
        let (back, answered) = done.map_err(|error| lost(&error))?;
        session = back;
        for answer in answered? {
            if answers.send(Ok(answer)).await.is_err() {
                return Ok(());
            }
        }
    }
}
