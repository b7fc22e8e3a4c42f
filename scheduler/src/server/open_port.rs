//! Self-contained requests of callers that have no session. All services of the process share their limits.

use super::{Core, lost, overloaded};
use crate::answer::AnswerError;
use plimsoll_runtime::connection::Peer;
use plimsoll_runtime::telemetry::extract_cycle_id;
use plimsoll_runtime::workers::WorkError;
use plimsoll_solver::Cancel;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// Maximum time of a request, queued and running. Callers may set a shorter deadline.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers self-contained requests with the worker capacity that sessions leave.
#[derive(Debug, Clone)]
pub struct OpenPort {
    core: Arc<Core>,
}

impl OpenPort {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Runs `answer` for a request on a worker thread. `answer` may stop early once its [`Cancel`] is cancelled, which
    /// happens when the caller is gone.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if this caller or all callers together have too many requests, DEADLINE_EXCEEDED, and the
    /// errors of `answer`.
    pub async fn handle<Q: Send + 'static, A: Send + 'static>(
        &self,
        method: &'static str,
        request: Request<Q>,
        answer: impl FnOnce(Q, &Cancel) -> Result<A, AnswerError> + Send + 'static,
    ) -> Result<Response<A>, Status> {
        let cycle_id = extract_cycle_id(request.metadata()).map(str::to_owned);
        let _permit = self.core.callers.enter(Peer::of(&request)).ok_or_else(|| {
            self.core.metrics.refused.inc();
            overloaded("this caller has too many requests at once")
        })?;
        let (question, metrics) = (request.into_inner(), self.core.metrics.clone());
        let cancel = Cancel::default();
        // Also drops when the caller goes away.
        let _end = CancelOnDrop(cancel.clone());
        let job = move || {
            let started = Instant::now();
            let result = answer(question, &cancel);
            metrics.solve_seconds.observe(started.elapsed().as_secs_f64());
            result
        };
        let result = tokio::time::timeout(ANSWER_TIMEOUT, self.core.workers.run_outside(job)).await;
        let timeout_error = |_elapsed| Status::deadline_exceeded(format!("no answer within {ANSWER_TIMEOUT:?}"));
        match result.map_err(timeout_error)? {
            Ok(Ok(answer)) => {
                self.core.metrics.plans.with_label_values(&["outside"]).inc();
                tracing::debug!(method, cycle_id, "answered");
                Ok(Response::new(answer))
            }
            Ok(Err(error)) => {
                if let AnswerError::Plan(failure) = &error {
                    self.core.metrics.count_failure(failure);
                    tracing::error!(method, cycle_id, %error, "no plan");
                }
                Err(error.into())
            }
            Err(error @ WorkError::Overloaded(_)) => {
                self.core.metrics.refused.inc();
                Err(overloaded(&error.to_string()))
            }
            Err(error @ WorkError::Lost(_)) => Err(lost(&error)),
        }
    }
}

/// Ends the solve once nobody waits for the answer.
pub(super) struct CancelOnDrop(pub(super) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
