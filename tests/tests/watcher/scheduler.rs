//! A fake scheduler for tests: it plans one launch for each pending pod, from a pool that is ready.

use parking_lot::Mutex;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, PlanOptions, PodRef, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{PodState, Snapshot};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_proto::delta::Mirror;
use plimsoll_proto::scheduler::v1::scheduler_service_server::{SchedulerService, SchedulerServiceServer};
use plimsoll_proto::scheduler::v1::session_request::Message as Ask;
use plimsoll_proto::scheduler::v1::session_response::Message as Answer;
use plimsoll_proto::scheduler::v1::*;
use plimsoll_proto::snapshot::v1 as wire;
use plimsoll_runtime::client_pool::WITHHELD_HEADER;
use plimsoll_runtime::serve::{GrpcServer, Listener};
use plimsoll_sim::network::Network;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

type Sender = mpsc::Sender<Result<SessionResponse, Status>>;

/// State that a test reads and sets.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Number of opened sessions.
    pub(crate) sessions: usize,
    /// Number of sessions that have not ended.
    pub(crate) open: usize,
    /// Number of received full snapshots.
    pub(crate) full: usize,
    /// Number of received catalogs.
    pub(crate) catalogs: usize,
    /// Number of catalogs that came before a snapshot that refers to them.
    pub(crate) early_catalogs: usize,
    /// Options of the plans that this or another replica was asked for, in order.
    pub(crate) asked: Arc<Mutex<Vec<PlanOptions>>>,
    /// Snapshots planned for, in order.
    pub(crate) planned: Vec<Snapshot>,
    /// Whether plans get no response.
    pub(crate) stalled: bool,
    /// How long a plan takes.
    pub(crate) delay: Duration,
    /// Whether launches are sent at once, and only the rest of a plan takes as long as a plan does.
    pub(crate) early: bool,
    /// Whether plans fail at once.
    pub(crate) fail: bool,
    /// Whether plans with removals get no response.
    pub(crate) slow_removals: bool,
    /// Number of plans with removals that got no response.
    pub(crate) unanswered_removals: usize,
    /// Whether a plan with removals fails its check.
    pub(crate) withhold: bool,
    /// Number of requests for plans that are answered with a request for a full snapshot.
    pub(crate) forget: u32,
    /// Whether the next plan requests the catalogs first.
    pub(crate) forget_catalogs: bool,
    /// Whether a plan follows a message of an unknown kind.
    pub(crate) unknown_message: bool,
    /// The protocol number that new sessions have. Zero is that of a version that sends none.
    pub(crate) protocol: u32,
    /// Ids of the catalogs that new sessions know.
    pub(crate) known_catalogs: Vec<String>,
    /// Names of unschedulable pods.
    pub(crate) impossible: Vec<String>,
    /// Time after the snapshot at which every plan changes.
    pub(crate) next_time: Option<Millis>,
}

/// A replica.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeScheduler(pub(crate) Arc<Mutex<State>>);

impl FakeScheduler {
    /// Serves at a port of this name, as a process of the same name. Adds to `asked` what it is asked for.
    pub(crate) fn start(network: &Network, name: &str, asked: &Arc<Mutex<Vec<PlanOptions>>>) -> Self {
        let fake = Self::default();
        fake.with(|state| state.asked = Arc::clone(asked));
        let listener = network.listen(name, name);
        let server = GrpcServer::default().add_service(SchedulerServiceServer::new(fake.clone()));
        tokio::spawn(server.serve_on(Listener::Memory(listener), CancellationToken::new()));
        fake
    }

    /// Reads or sets the state.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock())
    }

    /// Number of plans.
    pub(crate) fn plans(&self) -> usize {
        self.with(|state| state.planned.len())
    }

    /// Whether the snapshot is forgotten now.
    fn forgets(&self) -> bool {
        self.with(|state| {
            let left = state.forget.checked_sub(1);
            state.forget = left.unwrap_or(0);
            left.is_some()
        })
    }

    fn solve(&self, snapshot: &Snapshot) -> Plan {
        let mut state = self.0.lock();
        state.planned.push(snapshot.clone());
        let mut plan = Plan { snapshot_sequence: snapshot.sequence, ledger: snapshot.ledger, ..Plan::default() };
        for pod in snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending) {
            let place = PodRef { name: pod.full_name(), uid: pod.uid.clone() };
            if state.impossible.contains(&pod.name) {
                let reason = Reason {
                    node_pool: String::new(),
                    code: ReasonCode::InvalidPod,
                    message: "the test says so".to_owned(),
                };
                plan.unschedulable.push(Unschedulable { pod: place, reasons: vec![reason].into() });
            } else {
                plan.launches.push(launch(place));
            }
        }
        plan.next_time = state.next_time.map(|later| snapshot.now.plus(later));
        plan
    }

    /// Drops CapacityQuotas, which protocol 3 has added, if it has an earlier one.
    fn drop_unknown(&self, upserts: Option<&mut wire::Snapshot>, removals: Option<&mut wire::Removals>) {
        if self.with(|state| state.protocol) < 3 {
            upserts.into_iter().for_each(|part| part.capacity_quotas.clear());
            removals.into_iter().for_each(|keys| keys.capacity_quotas.clear());
        }
    }

    async fn converse(&self, mut requests: Streaming<SessionRequest>, answers: Sender) -> Option<()> {
        let answer = |message| Ok(SessionResponse { message: Some(message) });
        let mut mirror = Mirror::default();
        while let Some(request) = requests.message().await.ok()? {
            match request.message? {
                Ask::Hello(hello) => {
                    assert!(!hello.cluster.is_empty() && !hello.client.is_empty());
                    let ready = self.with(|state| Ready {
                        known_catalog_ids: state.known_catalogs.clone(),
                        protocol: state.protocol,
                    });
                    answers.send(answer(Answer::Ready(ready))).await.ok()?;
                }
                Ask::Catalog(catalog) => {
                    let is_needed = mirror.snapshot().is_some_and(|known| catalogs_of(known).contains(&catalog.id));
                    self.with(|state| {
                        state.catalogs += 1;
                        state.early_catalogs += usize::from(!is_needed);
                    });
                }
                Ask::SnapshotChunk(mut chunk) => {
                    self.drop_unknown(chunk.part.as_mut(), None);
                    let complete = mirror.apply_chunk(chunk).unwrap();
                    self.with(|state| state.full += usize::from(complete));
                }
                Ask::Delta(mut delta) => {
                    self.drop_unknown(delta.upserts.as_mut(), delta.removals.as_mut());
                    mirror.apply_delta(delta).unwrap();
                }
                Ask::PlanNow(ask) => {
                    if self.forgets() {
                        mirror = Mirror::default();
                        let resync = ResyncRequired { reason: "the test says so".to_owned() };
                        answers.send(answer(Answer::ResyncRequired(resync))).await.ok()?;
                        continue;
                    }
                    if self.with(|state| state.unknown_message) {
                        answers.send(Ok(SessionResponse { message: None })).await.ok()?;
                    }
                    let snapshot = mirror.snapshot().unwrap();
                    assert_eq!(snapshot.sequence, ask.sequence);
                    if self.with(|state| std::mem::take(&mut state.forget_catalogs)) {
                        let catalog_ids = catalogs_of(snapshot);
                        answers.send(answer(Answer::NeedCatalog(NeedCatalog { catalog_ids }))).await.ok()?;
                    }
                    let options = ask.options.map(PlanOptions::from).unwrap_or_default();
                    let removals = options.disruption;
                    self.with(|state| state.asked.lock().push(options));
                    if self.with(|state| state.stalled) {
                        continue;
                    }
                    if self.with(|state| state.fail) {
                        answers.send(Err(Status::internal("the test says so"))).await.ok()?;
                        return None;
                    }
                    if self.with(|state| state.slow_removals) && removals {
                        self.with(|state| state.unanswered_removals += 1);
                        continue;
                    }
                    if self.with(|state| state.withhold) && removals {
                        let mut status = Status::internal("the test says so");
                        status.metadata_mut().insert(WITHHELD_HEADER, "true".parse().unwrap());
                        answers.send(Err(status)).await.ok()?;
                        return None;
                    }
                    let fragment = |last: bool, plan: &Plan| {
                        let part = Some(plan.into());
                        answer(Answer::PlanFragment(PlanFragment { sequence: ask.sequence, last, part }))
                    };
                    let (delay, early) = self.with(|state| (state.delay, state.early));
                    if early {
                        answers.send(fragment(false, &self.solve(snapshot))).await.ok()?;
                    }
                    if !delay.is_zero() {
                        tokio::time::sleep(delay).await;
                    }
                    let rest =
                        || Plan { snapshot_sequence: snapshot.sequence, ledger: snapshot.ledger, ..Plan::default() };
                    let plan = if early { rest() } else { self.solve(snapshot) };
                    answers.send(fragment(true, &plan)).await.ok()?;
                }
            }
        }
        Some(())
    }
}

fn launch(pod: PodRef) -> Launch {
    let offering = OfferingChoice {
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        price: MicroUsdPerHour(96_000),
        reservation: None,
    };
    Launch {
        action_id: format!("for-{}", pod.name.replace('/', "-")).into(),
        node_pool: "default".into(),
        node_class: "default".to_owned(),
        offerings: Arc::new(vec![offering]),
        pods: vec![pod],
        ..Launch::default()
    }
}

#[tonic::async_trait]
impl SchedulerService for FakeScheduler {
    type SessionStream = ReceiverStream<Result<SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.with(|state| (state.sessions, state.open) = (state.sessions + 1, state.open + 1));
        let (sender, receiver) = mpsc::channel(4);
        let fake = self.clone();
        tokio::spawn(async move {
            let _ended = fake.converse(request.into_inner(), sender).await;
            fake.with(|state| state.open -= 1);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn plan(&self, _: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn explain(&self, _: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn what_if(&self, _: Request<WhatIfRequest>) -> Result<Response<WhatIfResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

/// Ids of the catalogs of a snapshot.
pub(crate) fn catalogs_of(snapshot: &Snapshot) -> Vec<String> {
    snapshot.node_pools.iter().filter_map(|pool| Some(pool.catalog.as_ref()?.as_str().to_owned())).collect()
}

/// Times of the plans, in whole seconds since `start`.
pub(crate) fn times(planned: &[Snapshot], start: Timestamp) -> Vec<u64> {
    planned.iter().map(|snapshot| snapshot.now.since(start).0 / 1000).collect()
}
