//! Calls of the actuator.

use super::{FakeWatcher, WATCHER, Wanted};
use crate::test_cluster::MINUTE;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::{Driver, Execution, LedgerUpdate, Outcome, OutcomeStatus};
use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::{Launch, Plan, Termination};
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_proto::actuator::v1::{ExecuteRequest, ExecuteResponse, WatchCatalogRequest, WatchLedgerRequest};
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// A new leader waits for the lease and the last call of its predecessor.
const WAIT_LIMIT: Duration = Duration::from_secs(180);

impl FakeWatcher {
    /// A client of the actuator.
    ///
    /// # Panics
    /// If no address is known.
    pub async fn client(&self) -> ActuatorServiceClient<Channel> {
        let (_, channel) = self.pool.channel().await.unwrap();
        ActuatorServiceClient::new(channel).max_decoding_message_size(MAX_DECODING_BYTES)
    }

    /// The catalog, after an actuator leads and all types of the world are on offer.
    ///
    /// # Panics
    /// If there is no such catalog in time.
    pub async fn catalog(&self) -> Catalog {
        let types = self.world.config.types.as_deref().unwrap_or_default();
        // The first catalog may arrive before subnets and prices are known.
        let has_all = |catalog: &Catalog| {
            types.iter().all(|name| catalog.get(name).is_some_and(|kind| kind.offerings.iter().any(|it| it.available)))
        };
        let start = Instant::now();
        loop {
            // Without such a catalog, the next call asks again.
            let catalog = tokio::time::timeout(Duration::from_secs(20), self.first_catalog(has_all)).await;
            if let Ok(Ok(catalog)) = catalog {
                return catalog;
            }
            assert!(start.elapsed() < WAIT_LIMIT, "no catalog");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The first catalog that passes a test.
    async fn first_catalog(&self, test: impl Fn(&Catalog) -> bool) -> Result<Catalog, Status> {
        let mut updates = self.client().await.watch_catalog(WatchCatalogRequest::default()).await?.into_inner();
        while let Some(response) = updates.message().await? {
            let catalog = response.update.and_then(|update| update.catalog);
            let catalog: Option<Catalog> = catalog.map(|catalog| catalog.try_into().unwrap());
            if let Some(catalog) = catalog.filter(&test) {
                return Ok(catalog);
            }
        }
        Err(Status::unavailable("ended"))
    }

    /// The full ledger, with unavailable offerings and capacity reservations.
    ///
    /// # Errors
    /// No actuator leads.
    ///
    /// # Panics
    /// If a message cannot be read.
    pub async fn ledger(&self) -> Result<LedgerUpdate, Status> {
        let mut updates = self.client().await.watch_ledger(WatchLedgerRequest {}).await?.into_inner();
        let mut upserted = Vec::new();
        loop {
            let update = updates.message().await?.ok_or_else(|| Status::unavailable("ended"))?;
            let update = LedgerUpdate::try_from(update).unwrap();
            upserted.extend(update.upserted);
            if update.complete {
                return Ok(LedgerUpdate { upserted, ..update });
            }
        }
    }

    /// The current ledger position of the actuator, which leads.
    ///
    /// # Panics
    /// If no actuator leads.
    pub async fn position(&self) -> LedgerPosition {
        self.ledger().await.unwrap().position
    }

    /// A plan at the current ledger position, after there is a leader.
    ///
    /// # Panics
    /// If no actuator leads in time.
    pub async fn plan(&self, launches: &[Wanted<'_>], terminations: Vec<Termination>) -> Plan {
        let start = Instant::now();
        loop {
            match (self.first_catalog(|_| true).await, self.ledger().await) {
                (Ok(catalog), Ok(LedgerUpdate { position: ledger, .. })) => {
                    let launches: Vec<Launch> = launches.iter().map(|wanted| self.launch(&catalog, wanted)).collect();
                    let hourly = launches.iter().map(Launch::price).sum();
                    let sequence = u64::try_from(start.elapsed().as_millis()).unwrap_or(0);
                    return Plan {
                        snapshot_sequence: sequence,
                        ledger,
                        launches,
                        terminations,
                        hourly,
                        ..Plan::default()
                    };
                }
                (Err(status), _) | (_, Err(status)) => {
                    assert!(start.elapsed() < WAIT_LIMIT, "no leader: {status}");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    /// Sends a plan until it is accepted or refused. Returns the outcomes of its actions as they come.
    ///
    /// # Errors
    /// The actuator refuses the plan.
    pub async fn stream(&self, plan: Plan) -> Result<Streaming<ExecuteResponse>, Status> {
        self.stream_as(WATCHER, plan, BTreeSet::new()).await
    }

    /// As [`FakeWatcher::stream`], of a plan with these virtual pods of CapacityBuffers.
    ///
    /// # Errors
    /// The actuator refuses the plan.
    pub async fn stream_with(
        &self,
        plan: Plan,
        virtual_pods: BTreeSet<PodUid>,
    ) -> Result<Streaming<ExecuteResponse>, Status> {
        self.stream_as(WATCHER, plan, virtual_pods).await
    }

    async fn stream_as(
        &self,
        driver: (&str, u64),
        plan: Plan,
        virtual_pods: BTreeSet<PodUid>,
    ) -> Result<Streaming<ExecuteResponse>, Status> {
        let driver = Driver { identity: driver.0.to_owned(), transitions: driver.1 };
        let cycle_id = "test".to_owned();
        let request = Execution { driver, plan, cycle_id, virtual_pods, buffers: Vec::new() };
        let start = Instant::now();
        loop {
            match self.client().await.execute(ExecuteRequest::from(&request)).await {
                Ok(answers) => return Ok(answers.into_inner()),
                // Cancelled: the connection broke because the actuator was replaced.
                Err(status)
                    if matches!(status.code(), Code::Unavailable | Code::Cancelled) && start.elapsed() < WAIT_LIMIT =>
                {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(status) => return Err(status),
            }
        }
    }

    /// Sends a plan until it is accepted or refused, and returns all outcomes.
    ///
    /// # Errors
    /// The actuator refuses the plan, or stops.
    pub async fn execute(&self, plan: Plan) -> Result<Vec<Outcome>, Status> {
        self.execute_as(WATCHER, plan).await
    }

    /// As [`FakeWatcher::execute`], with the name and the transitions of another watcher.
    ///
    /// # Errors
    /// The actuator refuses the plan, or stops.
    ///
    /// # Panics
    /// If an outcome cannot be read.
    pub async fn execute_as(&self, driver: (&str, u64), plan: Plan) -> Result<Vec<Outcome>, Status> {
        let mut answers = self.stream_as(driver, plan, BTreeSet::new()).await?;
        let mut outcomes = Vec::new();
        while let Some(response) = answers.message().await? {
            outcomes.push(Outcome::try_from(response).unwrap());
        }
        Ok(outcomes)
    }

    /// Sends a plan until it is accepted, and returns the first outcome of each action.
    ///
    /// # Panics
    /// If the plan is not accepted in time.
    pub async fn send(&self, plan: Plan) -> Vec<Outcome> {
        let count = plan.launches.len() + plan.terminations.len();
        let mut answers = self.stream(plan).await.unwrap();
        let mut first: BTreeMap<String, Outcome> = BTreeMap::new();
        while first.len() < count {
            let outcome = next(&mut answers).await;
            first.entry(outcome.action_id.0.clone()).or_insert(outcome);
        }
        first.into_values().collect()
    }

    /// Sends a plan of one action until it is accepted, and returns the final outcome of the action.
    ///
    /// # Panics
    /// If the plan is not accepted in time, or the action does not end.
    pub async fn final_outcome(&self, plan: Plan) -> Outcome {
        let mut answers = self.stream(plan).await.unwrap();
        loop {
            let outcome = next(&mut answers).await;
            if outcome.status.is_final() {
                return outcome;
            }
        }
    }
}

/// Statuses of the outcomes of an action, until the execution of its plan ends.
///
/// # Panics
/// If nothing comes for ten minutes.
pub async fn statuses_of(action: &str, mut answers: Streaming<ExecuteResponse>) -> Vec<OutcomeStatus> {
    let mut statuses = Vec::new();
    while let Some(answer) = tokio::time::timeout(10 * MINUTE, answers.message()).await.unwrap().unwrap() {
        let outcome = Outcome::try_from(answer).unwrap();
        statuses.extend((outcome.action_id.0 == action).then_some(outcome.status));
    }
    statuses
}

async fn next(answers: &mut Streaming<ExecuteResponse>) -> Outcome {
    Outcome::try_from(answers.message().await.unwrap().unwrap()).unwrap()
}
