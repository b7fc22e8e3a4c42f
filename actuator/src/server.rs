//! The gRPC service: what the watcher asks for, answered by the leader alone.

mod catalog;
pub mod driver;
mod execute;
mod ledger;
pub mod terminations;

use crate::authority::NotAllowed;
use crate::context::Context;
use plimsoll_proto::actuator::v1 as wire;
use plimsoll_proto::actuator::v1::actuator_service_server::ActuatorService;
use plimsoll_runtime::client_pool::LEADER_HEADER;
use std::pin::Pin;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

/// Answers that wait for a slow reader, per stream; beyond it the sender waits, and tells the newest state afterwards.
const STREAM_QUEUE: usize = 16;

/// Whether this process leads.
#[derive(Clone)]
pub enum Standing {
    /// Somebody else does, or nobody yet.
    Following {
        /// Where the leader answers, if it is known.
        leader: Option<String>,
    },
    /// It does.
    Leading(Box<Context>),
}

/// The service.
#[derive(Clone)]
pub struct Server {
    standing: watch::Receiver<Standing>,
    stop: CancellationToken,
}

impl Server {
    /// Answers as `standing` says until `stop`.
    #[must_use]
    pub fn new(standing: watch::Receiver<Standing>, stop: CancellationToken) -> Self {
        Self { standing, stop }
    }

    /// The term's context; else UNAVAILABLE with the leader's address.
    fn context(&self) -> Result<Context, Status> {
        match &*self.standing.borrow() {
            Standing::Leading(context) => Ok(Context::clone(context)),
            Standing::Following { leader } => {
                let mut status = Status::unavailable("this replica does not lead");
                if let Some(leader) = leader.as_deref().and_then(|leader| MetadataValue::try_from(leader).ok()) {
                    status.metadata_mut().insert(LEADER_HEADER, leader);
                }
                Err(status)
            }
        }
    }
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ActuatorService for Server {
    type ExecuteStream = Responses<wire::ExecuteResponse>;
    type WatchCatalogStream = Responses<wire::WatchCatalogResponse>;
    type WatchLedgerStream = Responses<wire::WatchLedgerResponse>;

    async fn execute(&self, request: Request<wire::ExecuteRequest>) -> Result<Response<Self::ExecuteStream>, Status> {
        let context = self.context()?;
        let stop = self.stop.clone();
        execute::execute(context, request.into_inner(), stop).await.map(Response::new)
    }

    async fn watch_catalog(
        &self,
        request: Request<wire::WatchCatalogRequest>,
    ) -> Result<Response<Self::WatchCatalogStream>, Status> {
        let context = self.context()?;
        Ok(Response::new(catalog::watch(&context, request.into_inner(), self.stop.clone())))
    }

    async fn watch_ledger(
        &self,
        _request: Request<wire::WatchLedgerRequest>,
    ) -> Result<Response<Self::WatchLedgerStream>, Status> {
        let context = self.context()?;
        Ok(Response::new(ledger::watch(&context, self.stop.clone())))
    }
}

/// The gate's refusal as the wire has it. All are worth asking again, elsewhere or later.
fn refused(error: &NotAllowed) -> Status {
    match error {
        NotAllowed::Paused(reason) => Status::failed_precondition(format!("nothing is written: {reason}")),
        NotAllowed::NotLeader | NotAllowed::Quarantine | NotAllowed::TimedOut(_) => {
            Status::unavailable(error.to_string())
        }
    }
}

/// Runs `work` beside the call. It ends with the call, the term or the process, whichever is first.
fn streaming<T: Send + 'static, Work>(
    context: &Context,
    stop: CancellationToken,
    work: impl FnOnce(tokio::sync::mpsc::Sender<Result<T, Status>>) -> Work,
) -> Responses<T>
where
    Work: Future<Output = Result<(), Status>> + Send + 'static,
{
    let (sender, receiver) = tokio::sync::mpsc::channel(STREAM_QUEUE);
    let (lost, closed) = (context.authority.lost(), sender.clone());
    let work = work(sender.clone());
    tokio::spawn(async move {
        let end = tokio::select! {
            result = work => result,
            () = lost.cancelled() => Err(Status::unavailable("this replica does not lead any more")),
            () = stop.cancelled() => Err(Status::unavailable("this replica is stopping")),
            () = closed.closed() => return,
        };
        if let Err(status) = end {
            // Nobody may be there to read it.
            let _gone = sender.send(Err(status)).await;
        }
    });
    Box::pin(tokio_stream::wrappers::ReceiverStream::new(receiver))
}
