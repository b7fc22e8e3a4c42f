//! Sends plans to the actuator and receives outcomes.

use crate::follow;
use plimsoll_model::execution::{Execution, Outcome};
use plimsoll_proto::actuator::v1::ExecuteRequest;
use plimsoll_proto::convert::known_outcome;
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::lease::LeaseGuard;
use plimsoll_runtime::telemetry::inject_cycle_id;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tonic::{Code, Request, Status};

/// How long the actuator may take to begin its response. Must be shorter than the longest call that the lease is
/// renewed for.
const OPEN_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum redirects to the leader.
const MAX_HINTS: usize = 3;

/// Maximum executions whose outcome streams stay open. Snapshots and the ledger show what becomes of older executions.
const MAX_EXECUTIONS: usize = 64;

/// An event from the actuator.
#[derive(Debug)]
pub enum Event {
    /// The outcome of an action.
    Outcome {
        /// The id of the execution.
        cycle_id: String,
        /// The outcome.
        outcome: Outcome,
    },
    /// The outcome stream of an execution ended.
    Ended {
        /// The id of the execution.
        cycle_id: String,
        /// `Ok` if the actuator has reported all outcomes, or all that it waits for.
        result: Result<(), Status>,
    },
}

/// Sends plans. Dropping it aborts all calls.
pub(super) struct Executor {
    actuator: ClientPool,
    guard: LeaseGuard,
    events: mpsc::Sender<Event>,
    tasks: JoinSet<()>,
    running: VecDeque<AbortHandle>,
}

impl Executor {
    pub(super) fn new(actuator: ClientPool, guard: LeaseGuard, events: mpsc::Sender<Event>) -> Self {
        Self { actuator, guard, events, tasks: JoinSet::new(), running: VecDeque::new() }
    }

    pub(super) fn holder(&self) -> &str {
        self.guard.holder()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.guard.epoch()
    }

    /// Sends a plan. Outcomes arrive as events.
    pub(super) fn send(&mut self, execution: Execution) {
        while self.tasks.try_join_next().is_some() {}
        self.running.retain(|task| !task.is_finished());
        while self.running.len() >= MAX_EXECUTIONS {
            if let Some(oldest) = self.running.pop_front() {
                oldest.abort();
            }
        }
        let (actuator, guard, events) = (self.actuator.clone(), self.guard.clone(), self.events.clone());
        let task = self.tasks.spawn(async move {
            let cycle_id = execution.cycle_id.clone();
            let result = execute(&actuator, &guard, execution, &events).await;
            // The receiver is dropped when the lease is lost.
            let _unheard = events.send(Event::Ended { cycle_id, result }).await;
        });
        self.running.push_back(task);
    }
}

/// Whether the actuator ended a stream because actions take longer than it reports outcomes. It is healthy then, and
/// nothing has to be sent again: snapshots show what becomes of the actions.
fn has_merely_ended(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded
}

async fn execute(
    actuator: &ClientPool,
    guard: &LeaseGuard,
    execution: Execution,
    events: &mpsc::Sender<Event>,
) -> Result<(), Status> {
    let message = ExecuteRequest::from(&execution);
    let mut hints = 0;
    loop {
        let (replica, channel) =
            actuator.channel().await.map_err(|error| Status::unavailable(format!("no actuator found: {error}")))?;
        // Check leadership last, directly before the call, so that no call outlives the lease.
        if !guard.outlives(OPEN_TIMEOUT) {
            return Err(Status::failed_precondition("the lease may end before the call does"));
        }
        let mut request = Request::new(message.clone());
        inject_cycle_id(request.metadata_mut(), &execution.cycle_id);
        let opened = tokio::time::timeout(OPEN_TIMEOUT, async { follow::client(channel).execute(request).await }).await;
        let opened = opened.unwrap_or_else(|_| Err(Status::deadline_exceeded("the actuator did not answer in time")));
        match opened {
            Ok(response) => {
                let mut stream = response.into_inner();
                loop {
                    let response = match stream.message().await {
                        Ok(Some(response)) => response,
                        Ok(None) => return Ok(()),
                        Err(status) if has_merely_ended(&status) => return Ok(()),
                        Err(status) => {
                            actuator.failed(&replica);
                            return Err(status);
                        }
                    };
                    actuator.succeeded(&replica);
                    let outcome =
                        known_outcome(response).map_err(|error| Status::internal(format!("outcome: {error}")))?;
                    let Some(outcome) = outcome else {
                        tracing::debug!(cycle_id = execution.cycle_id, "outcome of a later version left out");
                        continue;
                    };
                    let event = Event::Outcome { cycle_id: execution.cycle_id.clone(), outcome };
                    if events.send(event).await.is_err() {
                        return Ok(());
                    }
                }
            }
            // A standby replica rejected the plan without side effects: redirect to the leader.
            Err(status) if actuator.refused(&replica, &status) && hints < MAX_HINTS => hints += 1,
            Err(status) => return Err(status),
        }
    }
}
