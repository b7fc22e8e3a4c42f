//! The gRPC service that the watcher calls. Only the leader answers.

mod catalog;
pub mod driver;
mod execute;
mod leader;
mod ledger;
mod nominated;
pub mod terminations;

pub use leader::Leader;

use crate::fencing::NotAllowed;
use plimsoll_proto::actuator::v1 as wire;
use plimsoll_proto::actuator::v1::actuator_service_server::ActuatorService;
use plimsoll_runtime::client_pool::LEADER_HEADER;
use plimsoll_runtime::connection::Peer;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

/// Responses buffered per stream. If a reader is slow, the sender waits and then sends the latest state.
const STREAM_QUEUE: usize = 16;

/// The leadership role of this process.
#[derive(Clone)]
pub enum LeaderRole {
    /// Another process leads, or none does yet.
    Following {
        /// The leader's address, if known.
        leader: Option<String>,
    },
    /// This process leads.
    Leading(Box<Leader>),
}

/// The gRPC service.
#[derive(Clone)]
pub struct Server {
    role: watch::Receiver<LeaderRole>,
    callers: Arc<[String]>,
    stop: CancellationToken,
}

impl Server {
    /// Serves according to `role` until `stop`. If `callers` is not empty, a caller's certificate must carry one of
    /// these names (safety rule 19).
    #[must_use]
    pub fn new(role: watch::Receiver<LeaderRole>, callers: Vec<String>, stop: CancellationToken) -> Self {
        Self { role, callers: callers.into(), stop }
    }

    /// The leader; otherwise UNAVAILABLE with the leader's address, or PERMISSION_DENIED.
    fn leader<T>(&self, request: &Request<T>) -> Result<Leader, Status> {
        let callers = &self.callers;
        if !callers.is_empty() && Peer::of(request).is_some_and(|peer| !peer.is_one_of(callers)) {
            return Err(Status::permission_denied(format!("this service is for {}", callers.join(", "))));
        }
        match &*self.role.borrow() {
            LeaderRole::Leading(leader) => Ok(Leader::clone(leader)),
            LeaderRole::Following { leader } => {
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
        let leader = self.leader(&request)?;
        let stop = self.stop.clone();
        execute::execute(leader, request.into_inner(), stop).await.map(Response::new)
    }

    async fn watch_catalog(
        &self,
        request: Request<wire::WatchCatalogRequest>,
    ) -> Result<Response<Self::WatchCatalogStream>, Status> {
        let leader = self.leader(&request)?;
        Ok(Response::new(catalog::watch(leader, request.into_inner(), self.stop.clone())))
    }

    async fn watch_ledger(
        &self,
        request: Request<wire::WatchLedgerRequest>,
    ) -> Result<Response<Self::WatchLedgerStream>, Status> {
        let leader = self.leader(&request)?;
        Ok(Response::new(ledger::watch(leader, self.stop.clone())))
    }
}

/// Converts the fence's refusal to a gRPC status. All are retryable, elsewhere or later.
fn refused(error: &NotAllowed) -> Status {
    match error {
        NotAllowed::Paused(reason) => Status::failed_precondition(format!("nothing is written: {reason}")),
        NotAllowed::NotLeader | NotAllowed::Quarantine | NotAllowed::TimedOut(_) => {
            Status::unavailable(error.to_string())
        }
    }
}

/// Spawns `work` to produce a response stream. It ends with the call, the term or the process, whichever is first.
fn streaming<T: Send + 'static, Work>(
    deps: Leader,
    stop: CancellationToken,
    work: impl FnOnce(Leader, tokio::sync::mpsc::Sender<Result<T, Status>>) -> Work,
) -> Responses<T>
where
    Work: Future<Output = Result<(), Status>> + Send + 'static,
{
    let (sender, receiver) = tokio::sync::mpsc::channel(STREAM_QUEUE);
    let (lost, closed) = (deps.fence.lost(), sender.clone());
    let work = work(deps, sender.clone());
    tokio::spawn(async move {
        let end = tokio::select! {
            biased;
            result = work => result,
            () = lost.cancelled() => Err(Status::unavailable("this replica does not lead any more")),
            () = stop.cancelled() => Err(Status::unavailable("this replica is stopping")),
            () = closed.closed() => return,
        };
        if let Err(status) = end {
            // The receiver may be gone.
            let _gone = sender.send(Err(status)).await;
        }
    });
    Box::pin(tokio_stream::wrappers::ReceiverStream::new(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[tokio::test]
    async fn unlisted_callers_are_denied_and_a_standby_names_the_leader() {
        let (_sender, role) = watch::channel(LeaderRole::Following { leader: Some("10.0.0.7:9443".to_owned()) });
        let server = Server::new(role, vec!["watcher.test".to_owned()], CancellationToken::new());
        let ask = async |name: &str| {
            let mut request = Request::new(wire::WatchLedgerRequest {});
            let names: Arc<[String]> = vec![name.to_owned()].into();
            request.extensions_mut().insert(Peer { address: None, names: Some(names) });
            server.watch_ledger(request).await.err().unwrap()
        };
        assert_eq!(ask("scheduler.test").await.code(), Code::PermissionDenied);
        let standby = ask("watcher.test").await;
        assert_eq!(standby.code(), Code::Unavailable);
        assert_eq!(standby.metadata().get(LEADER_HEADER).unwrap(), "10.0.0.7:9443");
        let mut request = Request::new(wire::ExecuteRequest::default());
        request.extensions_mut().insert(Peer { address: None, names: Some(Vec::new().into()) });
        assert_eq!(server.execute(request).await.err().unwrap().code(), Code::PermissionDenied);
    }
}
