//! Self-contained requests of callers that have no session. All services of the process share their limits.

use super::{Core, lost, overloaded};
use crate::answer::AnswerError;
use plimsoll_runtime::connection::Peer;
use plimsoll_runtime::request_body::MemoryShare;
use plimsoll_runtime::telemetry::extract_cycle_id;
use plimsoll_runtime::workers::WorkError;
use plimsoll_solver::Cancel;
use prost::Message;
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
    /// RESOURCE_EXHAUSTED if this caller or all callers together have too many requests, DEADLINE_EXCEEDED,
    /// OUT_OF_RANGE if the response is too large, and the errors of `answer`.
    pub async fn handle<Q: Send + 'static, A: Message + 'static>(
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
        let share = MemoryShare::of(&request);
        let (question, metrics) = (request.into_inner(), self.core.metrics.clone());
        let cancel = Cancel::default();
        // Also drops when the caller goes away.
        let _end = CancelOnDrop(cancel.clone());
        let job = move || {
            // The job goes on for a while after its caller is gone.
            let _share = share;
            let started = Instant::now();
            let result = answer(question, &cancel).and_then(sendable);
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

/// The response, if it is not too large for a message.
fn sendable<A: Message>(response: A) -> Result<A, AnswerError> {
    AnswerError::check_size(response.encoded_len())?;
    Ok(response)
}

/// Ends the solve once nobody waits for the answer.
pub(super) struct CancelOnDrop(pub(super) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::SchedulerMetrics;
    use crate::session::SessionLimits;
    use crate::solve::PlanFn;
    use futures::FutureExt;
    use plimsoll_runtime::metrics::Metrics;
    use plimsoll_runtime::workers::{Bounds, Workers};
    use std::sync::mpsc::channel;
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn a_request_without_a_caller_keeps_its_memory_until_its_job_ends() {
        let workers = Workers::new(Bounds { running: 2, outside_running: 1, outside_waiting: 1 });
        let metrics = SchedulerMetrics::new(&Metrics::new("scheduler")).unwrap();
        let plans = (SessionLimits::default(), PlanFn::default());
        let core = Core::new(workers, metrics, plans, Vec::new(), CancellationToken::new());
        let port = OpenPort::new(Arc::new(core));
        let (hold, released) = channel::<()>();
        let mut request = Request::new(());
        let share: Arc<MemoryShare> = Arc::default();
        let held = Arc::downgrade(&share);
        request.extensions_mut().insert(share);
        let mut call = Box::pin(port.handle("Plan", request, move |(), _| {
            let _ended = released.recv();
            Ok(())
        }));
        assert!(call.as_mut().now_or_never().is_none());
        drop(call);
        assert!(held.upgrade().is_some(), "the job runs");
        drop(hold);
        let given_back = async {
            while held.upgrade().is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), given_back).await.unwrap();
    }
}
