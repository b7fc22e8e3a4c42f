//! A fake actuator for tests: it admits every new action, and the test controls when its ledger sends updates.

use parking_lot::Mutex;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::{
    CatalogUpdate, ClaimState, Execution, InFlightClaim, LedgerUpdate, Outcome, OutcomeReason, OutcomeStatus,
};
use plimsoll_model::plan::Launch;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_proto::actuator::v1::actuator_service_server::{ActuatorService, ActuatorServiceServer};
use plimsoll_proto::actuator::v1::*;
use plimsoll_runtime::client_pool::LEADER_HEADER;
use plimsoll_runtime::serve::{GrpcServer, Listener};
use plimsoll_runtime::telemetry::extract_cycle_id;
use plimsoll_sim::network::Network;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};

/// State that a test reads and sets.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Received executions, with their times.
    pub(crate) executions: Vec<(Instant, Execution)>,
    /// Claims in flight, by name.
    pub(crate) claims: BTreeMap<String, InFlightClaim>,
    /// Position of the ledger.
    pub(crate) position: LedgerPosition,
    /// Reason with which launches are rejected.
    pub(crate) reject: Option<OutcomeReason>,
    /// Number of admitted launches that fail.
    pub(crate) fail: usize,
    /// Name of the leader, if this replica does not lead.
    pub(crate) standby_of: Option<String>,
    /// Whether new calls get no response.
    pub(crate) stalled: bool,
    /// How a stream of outcomes goes on after the admissions.
    pub(crate) then: Then,
    /// Streams of outcomes that are open.
    pub(crate) open: usize,
}

/// How a stream of outcomes goes on after the admissions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Then {
    /// It ends.
    #[default]
    End,
    /// It stays open.
    StayOpen,
    /// It ends with an error.
    Fail(Code),
}

/// A replica.
#[derive(Debug, Clone)]
pub(crate) struct FakeActuator {
    state: Arc<Mutex<State>>,
    /// Ledger position that followers have received.
    told: Arc<watch::Sender<LedgerPosition>>,
    /// Whether followers get no updates.
    held: Arc<Mutex<bool>>,
}

impl FakeActuator {
    /// Serves at a port of this name, as a process of the same name.
    pub(crate) fn start(network: &Network, name: &str) -> Self {
        let position = LedgerPosition { epoch: 1, sequence: 0 };
        let state = State { position, ..State::default() };
        let fake = Self {
            state: Arc::new(Mutex::new(state)),
            told: Arc::new(watch::Sender::new(position)),
            held: Arc::default(),
        };
        let listener = network.listen(name, name);
        let server = GrpcServer::default().add_service(ActuatorServiceServer::new(fake.clone()));
        tokio::spawn(server.serve_on(Listener::Memory(listener), CancellationToken::new()));
        fake
    }

    /// Reads or sets the state.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock())
    }

    /// Holds or releases the updates to followers of the ledger.
    pub(crate) fn hold_ledger(&self, held: bool) {
        *self.held.lock() = held;
        self.tell();
    }

    fn tell(&self) {
        if !*self.held.lock() {
            let position = self.with(|state| state.position);
            self.told.send_replace(position);
        }
    }

    /// Action ids of all launches received, in order.
    pub(crate) fn launches(&self) -> Vec<String> {
        self.with(|state| {
            let launches = state.executions.iter().flat_map(|(_, execution)| &execution.plan.launches);
            launches.map(|launch| launch.action_id.0.clone()).collect()
        })
    }

    /// Number of received executions.
    pub(crate) fn executions(&self) -> usize {
        self.with(|state| state.executions.len())
    }

    async fn stall(&self) {
        if self.with(|state| state.stalled) {
            std::future::pending::<()>().await;
        }
    }

    fn refuse_as_standby(&self) -> Result<(), Status> {
        let Some(leader) = self.with(|state| state.standby_of.clone()) else { return Ok(()) };
        let mut status = Status::unavailable("a standby");
        status.metadata_mut().insert(LEADER_HEADER, leader.parse().unwrap());
        Err(status)
    }

    fn ledger(&self) -> LedgerUpdate {
        self.with(|state| LedgerUpdate {
            position: state.position,
            upserted: state.claims.values().cloned().collect(),
            unavailable_offerings: Some(Vec::new()),
            complete: true,
            ..LedgerUpdate::default()
        })
    }
}

impl State {
    fn admit(&mut self, launch: &Launch) -> Vec<Outcome> {
        let claim = format!("claim-{}", launch.action_id);
        let outcome = |status, reason, ledger| Outcome {
            action_id: launch.action_id.clone(),
            status,
            reason,
            message: String::new(),
            node_claim: None,
            ledger,
        };
        if let Some(reason) = self.reject {
            return vec![outcome(OutcomeStatus::Rejected, Some(reason), self.position)];
        }
        let reserved = |pod| self.claims.values().any(|claim| claim.pods.contains(pod));
        if launch.pods.iter().any(reserved) && !self.claims.contains_key(&claim) {
            return vec![outcome(OutcomeStatus::Rejected, Some(OutcomeReason::PodChanged), self.position)];
        }
        self.position.sequence += 1;
        let accepted = outcome(OutcomeStatus::Accepted, None, self.position);
        if self.fail > 0 {
            self.fail -= 1;
            self.position.sequence += 1;
            return vec![accepted, outcome(OutcomeStatus::Failed, Some(OutcomeReason::NoCapacity), self.position)];
        }
        let in_flight = InFlightClaim {
            name: claim.clone(),
            node_pool: launch.node_pool.clone(),
            action_id: Some(launch.action_id.clone()),
            pods: launch.pods.clone(),
            limit_usage: Resources::from([("cpu", 2000)]),
            allocatable: Resources::from([("cpu", 1900), ("pods", 29)]),
            state: ClaimState::Launching,
            ..InFlightClaim::default()
        };
        self.claims.insert(claim, in_flight);
        vec![accepted]
    }
}

type Stream<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl ActuatorService for FakeActuator {
    type ExecuteStream = Stream<ExecuteResponse>;
    type WatchCatalogStream = Stream<WatchCatalogResponse>;
    type WatchLedgerStream = Stream<WatchLedgerResponse>;

    async fn execute(&self, request: Request<ExecuteRequest>) -> Result<Response<Self::ExecuteStream>, Status> {
        self.stall().await;
        self.refuse_as_standby()?;
        let cycle_id = extract_cycle_id(request.metadata()).map(str::to_owned);
        let execution = Execution::try_from(request.into_inner()).unwrap();
        assert_eq!(cycle_id.as_deref(), Some(execution.cycle_id.as_str()), "the id is the same from snapshot to call");
        let outcomes: Vec<Outcome> = self.with(|state| {
            let outcomes = execution.plan.launches.iter().flat_map(|launch| state.admit(launch)).collect();
            state.executions.push((Instant::now(), execution));
            outcomes
        });
        self.tell();
        let (sender, receiver) = mpsc::channel(outcomes.len() + 1);
        for outcome in &outcomes {
            sender.try_send(Ok(outcome.into())).unwrap();
        }
        match self.with(|state| state.then) {
            Then::End => {}
            Then::StayOpen => {
                let fake = self.clone();
                fake.with(|state| state.open += 1);
                tokio::spawn(async move {
                    sender.closed().await;
                    fake.with(|state| state.open -= 1);
                });
            }
            Then::Fail(code) => sender.try_send(Err(Status::new(code, "the test says so"))).unwrap(),
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn watch_catalog(
        &self,
        _: Request<WatchCatalogRequest>,
    ) -> Result<Response<Self::WatchCatalogStream>, Status> {
        self.stall().await;
        self.refuse_as_standby()?;
        let catalog = Catalog { region: "us-east-1".to_owned(), ..Catalog::default() };
        let class = CatalogUpdate {
            node_class: "default".to_owned(),
            generation: 1,
            catalog_id: Some(catalog.id()),
            catalog: Some(catalog),
            ..CatalogUpdate::default()
        };
        let complete = CatalogUpdate { complete: true, ..CatalogUpdate::default() };
        let (sender, receiver) = mpsc::channel(2);
        for update in [class, complete] {
            sender.try_send(Ok((&update).into())).unwrap();
        }
        // The stream stays open as long as the process lives.
        tokio::spawn(async move { sender.closed().await });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn watch_ledger(&self, _: Request<WatchLedgerRequest>) -> Result<Response<Self::WatchLedgerStream>, Status> {
        self.stall().await;
        self.refuse_as_standby()?;
        let (sender, receiver) = mpsc::channel(4);
        let (fake, mut told) = (self.clone(), self.told.subscribe());
        tokio::spawn(async move {
            let mut sent_claims: BTreeMap<String, InFlightClaim> = BTreeMap::new();
            loop {
                let whole = fake.ledger();
                let removed =
                    sent_claims.keys().filter(|name| !whole.upserted.iter().any(|claim| claim.name == **name));
                let update = LedgerUpdate { removed: removed.cloned().collect(), ..whole };
                sent_claims = update.upserted.iter().map(|claim| (claim.name.clone(), claim.clone())).collect();
                if sender.send(Ok((&update).into())).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    changed = told.changed() => if changed.is_err() { return },
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
