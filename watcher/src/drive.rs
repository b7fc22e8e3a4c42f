//! The loop: snapshot, plan, execute. Only the replica that holds the lease runs it.
//!
//! [`cycle`] decides the next step in a synchronous state machine. This module executes the steps.

mod backoff;
pub mod bounds;
pub mod buffers;
pub mod commit;
pub mod cycle;
mod execute;
mod outdated;
pub mod retries;
pub mod subset;

use crate::facts::Facts;
use crate::metrics::{WatcherMetrics, outcomes};
use crate::recorder::Recorder;
use crate::scheduler::{PlanError, PlanRequest, Scheduler};
use crate::snapshots::{Newest, PublishedSnapshot, Readers, Refresh};
use cycle::{Cycle, CycleStep, has_new_waiting_pods};
use execute::{Event, Executor};
use plimsoll_model::execution::{BufferReport, Driver as DriverId, Execution};
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::time::Millis;
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::clock::sleep_until;
use plimsoll_runtime::lease::{LeaseGuard, LeaseState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Event channel capacity; senders block when full. It holds the admissions of the largest part (512 launches) and of
/// its predecessors while a plan is computed.
const EVENT_CAPACITY: usize = 2048;

/// Channel capacity for early parts of a plan. There are few parts, and a part that does not fit is sent with the
/// complete plan.
const PART_CAPACITY: usize = 8;

/// When to ask for a plan with removals again after one was withheld or timed out: removals are not urgent, and
/// schedulers may spend a minute on such a plan.
const REMOVALS_AFTER: Millis = Millis::from_seconds(60);

/// A request that fails after this time counts as timed out. A scheduler's first attempt may take as long.
const TIMED_OUT: Duration = Duration::from_secs(20);

/// Result of a request for a plan.
enum Requested {
    /// The plan, if a scheduler made one.
    Made(Option<Box<Plan>>),
    /// There are newer pending pods.
    Abandoned,
}

/// Runs the loop while this replica is the leader.
pub struct Driver {
    /// Cluster index, ledger and catalogs.
    pub facts: Arc<Facts>,
    /// Receiver of the newest snapshot.
    pub newest: Newest,
    /// Snapshots are made while this replica leads.
    pub readers: Readers,
    /// Requests a new snapshot.
    pub refresh: Refresh,
    /// Client of the schedulers.
    pub(crate) scheduler: Scheduler,
    /// Connections to the actuators.
    pub actuator: ClientPool,
    /// Options of every plan.
    pub options: PlanOptions,
    /// Metrics.
    pub metrics: WatcherMetrics,
    /// Records plans and outcomes.
    pub(crate) recorder: Recorder,
}

impl Driver {
    /// Runs the loop whenever this replica is the leader, until `shutdown`.
    pub async fn run(mut self, mut lease: watch::Receiver<LeaseState>, shutdown: CancellationToken) {
        loop {
            let guard = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                state = lease.wait_for(|state| state.guard().is_some()) => match state {
                    Ok(state) => state.guard().cloned(),
                    // The election has ended.
                    Err(_) => return,
                },
            };
            let Some(guard) = guard else { continue };
            self.metrics.lead(true);
            let lost = guard.lost();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = lost.cancelled() => tracing::warn!(transitions = guard.epoch(), "no longer driving"),
                // The publisher has stopped.
                () = self.lead(&guard) => return,
            }
            self.metrics.lead(false);
            self.recorder.ended();
            self.scheduler.end_session();
        }
    }

    /// Runs the loop. Returns only if the publisher stops. Dropping the future, which happens when the lease is lost,
    /// aborts all calls.
    async fn lead(&mut self, guard: &LeaseGuard) {
        tracing::info!(transitions = guard.epoch(), "driving");
        let _reader = self.readers.add();
        let (sender, mut events) = mpsc::channel(EVENT_CAPACITY);
        let mut executor = Executor::new(self.actuator.clone(), guard.clone(), sender);
        let mut cycle = Cycle::new(guard.epoch()).with_disruption(self.options.disruption);
        loop {
            // Answers that arrived while a plan was computed count before their time-outs do.
            for event in queued(&mut events) {
                self.handle_event(&mut cycle, Some(event));
            }
            let newest = self.newest.borrow_and_update().clone();
            let step = match &newest {
                Some(published) => cycle.next(published, Instant::now()),
                None => CycleStep::Wait(None),
            };
            self.metrics.waiting_pods.set(i64::try_from(cycle.waiting_pods()).unwrap_or(i64::MAX));
            let until = match step {
                CycleStep::Plan { published, disruption, kept_nodes } => {
                    let options = PlanOptions { disruption, kept_nodes, ..self.options.clone() };
                    self.plan_step(&mut cycle, &mut executor, &published, options).await;
                    continue;
                }
                CycleStep::Execute { published, plan, cycle_id } => {
                    execute(&self.metrics, &mut executor, (*plan, cycle_id, cycle.buffer_reports()), &published);
                    continue;
                }
                CycleStep::Refresh => {
                    self.refresh.request();
                    None
                }
                CycleStep::Wait(until) => until,
            };
            tokio::select! {
                biased;
                event = events.recv() => self.handle_event(&mut cycle, event),
                changed = self.newest.changed() => if changed.is_err() { return },
                () = sleep_until(until) => {}
            }
        }
    }

    /// Requests a plan for `published`, sends its early parts while it is computed, and records the result.
    async fn plan_step(
        &mut self,
        cycle: &mut Cycle,
        executor: &mut Executor,
        published: &Arc<PublishedSnapshot>,
        options: PlanOptions,
    ) {
        let (began, disruption) = (Instant::now(), options.disruption);
        let sequence = published.snapshot.sequence;
        let (sender, mut parts) = mpsc::channel(PART_CAPACITY);
        let (metrics, mut newest, abandon) = (self.metrics.clone(), self.newest.clone(), CancellationToken::new());
        // A search for removals in a large cluster takes seconds. Pods that become pending do not wait for it.
        let may_be_abandoned = disruption && cycle.may_abandon_removals(Instant::now());
        let plan = self.plan(published, options, cycle.id(sequence), (sender, abandon.clone()));
        let mut plan = std::pin::pin!(plan);
        let plan = loop {
            tokio::select! {
                biased;
                plan = &mut plan => break plan,
                Ok(()) = newest.changed(), if may_be_abandoned && !abandon.is_cancelled() => {
                    let newest = newest.borrow_and_update();
                    let planned = &published.snapshot;
                    let has_new = |newest: &PublishedSnapshot| has_new_waiting_pods(planned, &newest.snapshot);
                    if newest.as_deref().is_some_and(has_new) {
                        abandon.cancel();
                    }
                }
                Some(part) = parts.recv() => {
                    if let Some((part, cycle_id)) = cycle.early_part(published, &part, Instant::now()) {
                        execute(&metrics, executor, (part, cycle_id, &[]), published);
                    }
                }
            }
        };
        let Requested::Made(plan) = plan else { return };
        if plan.is_none() && disruption && began.elapsed() >= TIMED_OUT {
            cycle.pause_removals(Instant::now() + Duration::from_millis(REMOVALS_AFTER.0));
        }
        if let Some(plan) = plan.as_deref() {
            cycle.set_buffer_reports(buffers::buffer_reports(published, plan));
        }
        let plan = plan.map(|plan| buffers::without_virtual_pods(*plan, &published.snapshot));
        cycle.record_plan(published, plan, disruption, Instant::now());
    }

    /// Requests a plan for a snapshot, without a plan if no scheduler made one. If a plan with removals fails
    /// validation, requests a plan without removals, so that pending pods do not suffer from an invalid removal.
    async fn plan(
        &mut self,
        published: &Arc<PublishedSnapshot>,
        options: PlanOptions,
        cycle_id: String,
        (parts, abandon): (mpsc::Sender<Plan>, CancellationToken),
    ) -> Requested {
        let began = Instant::now();
        let removals = options.disruption;
        self.metrics.planning.began(removals);
        let facts = Arc::clone(&self.facts);
        let catalogs = self.recorder.catalogs(published, |id| facts.catalog(id));
        let mut request = PlanRequest {
            published: Arc::clone(published),
            options,
            catalogs: &|id| facts.catalog(id),
            cycle_id,
            parts,
            abandon,
        };
        let mut planned = self.scheduler.plan(&request).await;
        if let Err(error @ PlanError::Withheld { .. }) = &planned
            && removals
        {
            self.metrics.plans.with_label_values(&["withheld"]).inc();
            tracing::error!(%error, sequence = published.snapshot.sequence, "asking for a plan without removals");
            request.options.disruption = false;
            planned = self.scheduler.plan(&request).await;
        }
        self.report_plan(&planned, began, published.snapshot.sequence);
        let mut plan = match planned {
            Ok(plan) => plan,
            Err(PlanError::Abandoned) => return Requested::Abandoned,
            Err(_) => return Requested::Made(None),
        };
        self.recorder.planned((published, catalogs), &request.cycle_id, &request.options, &plan);
        if removals && !request.options.disruption {
            // Such a plan does not know when removals become possible, so nothing else would wake the loop.
            let next = published.snapshot.now.plus(REMOVALS_AFTER);
            plan.next_time = Some(plan.next_time.map_or(next, |time| time.min(next)));
        }
        Requested::Made(Some(Box::new(plan)))
    }

    /// Counts and logs what became of a request for a plan for the snapshot with this sequence.
    fn report_plan(&self, planned: &Result<Plan, PlanError>, began: Instant, sequence: u64) {
        let result = match planned {
            Ok(plan) => {
                self.metrics.planning.ended(Some(plan));
                self.metrics.plan_seconds.observe(began.elapsed().as_secs_f64());
                tracing::debug!(
                    sequence = plan.snapshot_sequence,
                    launches = plan.launches.len(),
                    terminations = plan.terminations.len(),
                    unschedulable = plan.unschedulable.len(),
                    took = ?began.elapsed(),
                    "planned"
                );
                "planned"
            }
            Err(PlanError::Abandoned) => {
                self.metrics.planning.abandoned();
                "abandoned"
            }
            Err(error) => {
                self.metrics.planning.ended(None);
                tracing::warn!(%error, sequence, "no plan");
                "failed"
            }
        };
        self.metrics.plans.with_label_values(&[result]).inc();
    }

    fn handle_event(&mut self, cycle: &mut Cycle, event: Option<Event>) {
        let Some(event) = event else { return };
        match &event {
            Event::Outcome { cycle_id, outcome } => {
                self.metrics.outcome(outcome.status, outcome.reason);
                self.recorder.reported(cycle_id, outcome);
                tracing::info!(
                    cycle_id,
                    action_id = outcome.action_id.as_str(),
                    status = ?outcome.status,
                    reason = outcomes::reason(outcome.reason),
                    message = outcome.message,
                    node_claim = outcome.node_claim,
                    "outcome"
                );
            }
            Event::Ended { cycle_id, result: Err(status) } => {
                self.metrics.executions.with_label_values(&["failed"]).inc();
                tracing::warn!(cycle_id, code = ?status.code(), message = status.message(), "execution failed");
            }
            Event::Ended { cycle_id, result: Ok(()) } => {
                self.metrics.executions.with_label_values(&["sent"]).inc();
                tracing::debug!(cycle_id, "execution ended");
            }
        }
        cycle.handle_event(event, Instant::now());
    }
}

/// Events that have arrived, at most as many as the channel holds, since senders may refill it meanwhile.
fn queued(events: &mut mpsc::Receiver<Event>) -> Vec<Event> {
    std::iter::from_fn(|| events.try_recv().ok()).take(EVENT_CAPACITY).collect()
}

/// Sends a plan and the status of CapacityBuffers to the actuator.
fn execute(
    metrics: &WatcherMetrics,
    executor: &mut Executor,
    (plan, cycle_id, buffers): (Plan, String, &[BufferReport]),
    published: &PublishedSnapshot,
) {
    metrics.execute_seconds.observe(published.started_at.elapsed().as_secs_f64());
    tracing::info!(
        cycle_id,
        sequence = plan.snapshot_sequence,
        launches = plan.launches.len(),
        terminations = plan.terminations.len(),
        placements = plan.placements.len(),
        unschedulable = plan.unschedulable.len(),
        hourly_micro_usd = plan.hourly.0,
        "plan sent"
    );
    let driver = DriverId { identity: executor.holder().to_owned(), transitions: executor.epoch() };
    let virtual_pods = buffers::launched_virtual_pods(&plan, &published.snapshot);
    executor.send(Execution { driver, plan, cycle_id, virtual_pods, buffers: buffers.to_vec() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_wait_are_taken_at_once_but_not_without_end() {
        let (sender, mut events) = mpsc::channel(EVENT_CAPACITY);
        assert_eq!(queued(&mut events).len(), 0, "it does not wait");
        let ended = || Event::Ended { cycle_id: "7-1".to_owned(), result: Ok(()) };
        while sender.try_send(ended()).is_ok() {}
        assert_eq!(queued(&mut events).len(), EVENT_CAPACITY);
        drop(sender);
        assert_eq!(queued(&mut events).len(), 0);
    }
}
