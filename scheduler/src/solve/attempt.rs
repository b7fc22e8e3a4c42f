//! One attempt to make a plan, which may also end by a panic or because its time is over.

use super::{InvalidPlan, PlanFn};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_solver::{Cancel, Planner};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Why an attempt gave no valid plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanFailure {
    /// The plan is invalid for its own input.
    #[error(transparent)]
    Invalid(#[from] InvalidPlan),
    /// The planner panicked.
    #[error("the planner panicked: {0}")]
    Panicked(String),
    /// The planner took too long.
    #[error("the planner took more than {0:?}")]
    TimedOut(Duration),
    /// No time was left for this attempt, so nothing was planned. It says nothing about the pods.
    #[error("no time was left for the planner")]
    NoTimeLeft,
    /// The client is gone.
    #[error("the client is gone")]
    Cancelled,
}

impl PlanFailure {
    /// Every value of [`PlanFailure::cause`] that pods are left out for.
    pub const CAUSES: [&'static str; 3] = ["invalid", "panic", "timeout"];

    /// Kind of the failure, for metrics.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Panicked(_) => "panic",
            Self::TimedOut(_) | Self::NoTimeLeft => "timeout",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How long the attempts of one plan may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeLimits {
    /// The first attempt.
    pub(crate) first: Duration,
    /// All attempts together. The watcher waits longer than this.
    pub(crate) total: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        // The largest supported clusters need less than two seconds.
        Self { first: Duration::from_secs(20), total: Duration::from_secs(45) }
    }
}

/// Start and end of the attempts of one plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeBudget(Option<(TimeLimits, Instant)>);

impl TimeBudget {
    /// Starts now. Without limits, only the caller ends an attempt.
    pub(crate) fn start(limits: Option<TimeLimits>) -> Self {
        Self(limits.map(|limits| (limits, Instant::now())))
    }

    /// Limit of the first attempt.
    pub(crate) fn first(self) -> Option<Duration> {
        self.0.map(|(limits, _)| limits.first)
    }

    /// Limit of the next of `attempts` attempts that share the remaining time.
    pub(crate) fn share(self, attempts: u32) -> Option<Duration> {
        let (limits, started) = self.0?;
        let share = limits.total.saturating_sub(started.elapsed()) / attempts.max(1);
        // Whole milliseconds, since users read it.
        Some(Duration::from_millis(u64::try_from(share.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Sets a [`Cancel`] after some time, unless it is dropped before. Without a runtime it never does; on the only thread
/// of a runtime, as in simulations, only after the solve.
#[derive(Debug)]
struct Timer(Option<AbortHandle>);

impl Timer {
    fn start(limit: Option<Duration>, cancel: &Cancel) -> Self {
        let Some((limit, runtime)) = limit.zip(Handle::try_current().ok()) else { return Self(None) };
        let cancel = cancel.clone();
        let task = runtime.spawn(async move {
            tokio::time::sleep(limit).await;
            cancel.cancel();
        });
        Self(Some(task.abort_handle()))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Calls the planner with a time limit. The plan has not been validated. If the attempt fails, the planner's cache is
/// empty afterwards.
///
/// # Errors
/// The planner panicked, took too long, the limit is zero, or `caller` is cancelled.
pub(crate) fn attempt(
    (plan, planner): (PlanFn, &mut Planner),
    (snapshot, index): (&Snapshot, &SnapshotIndex),
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    (caller, limit): (&Cancel, Option<Duration>),
    early: &mut dyn FnMut(&[Launch]),
) -> Result<Plan, PlanFailure> {
    if caller.is_cancelled() {
        return Err(PlanFailure::Cancelled);
    }
    if limit.is_some_and(|limit| limit.is_zero()) {
        return Err(PlanFailure::NoTimeLeft);
    }
    let cancel = caller.child();
    planner.set_cancel(cancel.clone());
    let timer = Timer::start(limit, &cancel);
    // After a panic, the planner's cache is dropped, and nothing else is shared.
    let result = catch_unwind(AssertUnwindSafe(|| plan.call(planner, snapshot, index, catalogs, options, early)));
    drop(timer);
    let result = match (result, limit) {
        _ if caller.is_cancelled() => Err(PlanFailure::Cancelled),
        (Err(payload), _) => Err(PlanFailure::Panicked(message(payload.as_ref()))),
        // The plan of a cancelled solve depends on the time, so it is not used.
        (Ok(_), Some(limit)) if cancel.is_cancelled() => Err(PlanFailure::TimedOut(limit)),
        (Ok(plan), _) => Ok(plan),
    };
    if result.is_err() {
        *planner = planner.fresh();
    }
    result
}

/// Message of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref().copied());
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests;
