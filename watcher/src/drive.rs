//! The loop: snapshot, plan, execute. Only the replica that holds the lease runs it.
//!
//! [`cycle`] decides what is next, as plain calls; this module carries it out.

pub mod commit;
pub mod cycle;
mod execute;
pub mod retries;
pub mod rooms;
pub mod subset;

use crate::facts::Facts;
use crate::metrics::{WatcherMetrics, outcomes};
use crate::scheduler::{PlanError, Question, Scheduler};
use crate::snapshots::{Newest, Published, Refresh};
use cycle::{Cycle, Step};
use execute::{Event, Executor};
use plimsoll_model::execution::{BufferReport, Driver as DriverId, Execution};
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::lease::{LeaseGuard, LeaseState};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Events that wait for the loop; those who send them wait then.
const QUEUE: usize = 256;

/// Parts of a plan that wait to be sent while the rest is made: there are few, and what has no room comes with the whole plan.
const PARTS: usize = 8;

/// Drives while this replica leads.
pub struct Driver {
    /// What is known.
    pub facts: Arc<Facts>,
    /// Newest snapshot.
    pub newest: Newest,
    /// Asks for another.
    pub refresh: Refresh,
    /// Plans.
    pub(crate) scheduler: Scheduler,
    /// Executes.
    pub actuator: ClientPool,
    /// What plans may do.
    pub options: PlanOptions,
    /// Metrics.
    pub metrics: WatcherMetrics,
}

impl Driver {
    /// Drives whenever this replica leads, until `shutdown`.
    pub async fn run(mut self, mut lease: watch::Receiver<LeaseState>, shutdown: CancellationToken) {
        loop {
            let guard = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                state = lease.wait_for(|state| state.guard().is_some()) => match state {
                    Ok(state) => state.guard().cloned(),
                    // The election is over: so is this.
                    Err(_) => return,
                },
            };
            let Some(guard) = guard else { continue };
            self.metrics.leader.set(1);
            let lost = guard.lost();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = lost.cancelled() => tracing::warn!(transitions = guard.epoch(), "no longer driving"),
                // Nobody makes snapshots any more.
                () = self.lead(&guard) => return,
            }
            self.metrics.leader.set(0);
            self.metrics.waiting_pods.set(0);
            if shutdown.is_cancelled() {
                return;
            }
        }
    }

    /// Drives for ever; dropped when the lease is lost, and with it every call under way.
    async fn lead(&mut self, guard: &LeaseGuard) {
        tracing::info!(transitions = guard.epoch(), "driving");
        let (sender, mut events) = mpsc::channel(QUEUE);
        let mut executor = Executor::new(self.actuator.clone(), guard.clone(), sender);
        let mut cycle = Cycle::new(guard.epoch()).sweeping(self.options.disruption);
        loop {
            let newest = self.newest.borrow_and_update().clone();
            let step = cycle.next(newest.as_deref(), Instant::now());
            self.metrics.waiting_pods.set(i64::try_from(cycle.waiting()).unwrap_or(i64::MAX));
            match (step, newest) {
                (ask @ (Step::Plan | Step::Sweep), Some(published)) => {
                    let sweep = ask == Step::Sweep;
                    let sequence = published.snapshot.sequence;
                    let (sender, mut parts) = mpsc::channel(PARTS);
                    let metrics = self.metrics.clone();
                    let plan = {
                        let mut plan = std::pin::pin!(self.plan(&published, sweep, cycle.id(sequence), sender));
                        loop {
                            tokio::select! {
                                biased;
                                plan = &mut plan => break plan,
                                Some(part) = parts.recv() => {
                                    if let Some((part, cycle_id)) = cycle.part(sequence, &part, Instant::now()) {
                                        execute(&metrics, &mut executor, (part, cycle_id, &[]), &published);
                                    }
                                }
                            }
                        }
                    };
                    if let Some(plan) = &plan {
                        cycle.reported(rooms::reports(&published, plan));
                    }
                    let plan = plan.map(|plan| rooms::told(plan, &published.snapshot));
                    cycle.planned(sequence, plan, sweep, Instant::now());
                    continue;
                }
                (Step::Execute { plan, cycle_id }, Some(published)) => {
                    execute(&self.metrics, &mut executor, (*plan, cycle_id, cycle.buffers()), &published);
                    continue;
                }
                (Step::Refresh, _) => self.refresh.ask(),
                (Step::Wait(until), _) => {
                    let sleep = async {
                        match until {
                            Some(until) => tokio::time::sleep_until(until).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        event = events.recv() => self.take(&mut cycle, event),
                        changed = self.newest.changed() => if changed.is_err() { return },
                        () = sleep => {}
                    }
                    continue;
                }
                (Step::Plan | Step::Sweep | Step::Execute { .. }, None) => {}
            }
            // A snapshot was asked for.
            tokio::select! {
                biased;
                event = events.recv() => self.take(&mut cycle, event),
                changed = self.newest.changed() => if changed.is_err() { return },
            }
        }
    }

    /// The plan for a snapshot; `None` if no scheduler made one. Where a plan with removals fails its check, one without is
    /// asked for: pods that wait are not to suffer from a removal that was worked out wrongly.
    async fn plan(
        &mut self,
        published: &Arc<Published>,
        sweep: bool,
        cycle_id: String,
        parts: mpsc::Sender<Plan>,
    ) -> Option<Plan> {
        let began = Instant::now();
        let facts = Arc::clone(&self.facts);
        let mut question = Question {
            published: Arc::clone(published),
            options: PlanOptions { disruption: sweep, ..self.options.clone() },
            catalogs: &|id| facts.catalog(id),
            cycle_id,
            parts,
        };
        let mut planned = self.scheduler.plan(&question).await;
        if let Err(error @ PlanError::Withheld { .. }) = &planned
            && question.options.disruption
        {
            self.metrics.plans.with_label_values(&["withheld"]).inc();
            tracing::error!(%error, sequence = published.snapshot.sequence, "asking for a plan without removals");
            question.options.disruption = false;
            planned = self.scheduler.plan(&question).await;
        }
        match planned {
            Ok(plan) => {
                self.metrics.plans.with_label_values(&["planned"]).inc();
                self.metrics.plan_seconds.observe(began.elapsed().as_secs_f64());
                tracing::debug!(
                    sequence = plan.snapshot_sequence,
                    launches = plan.launches.len(),
                    terminations = plan.terminations.len(),
                    unschedulable = plan.unschedulable.len(),
                    took = ?began.elapsed(),
                    "planned"
                );
                Some(plan)
            }
            Err(error) => {
                self.metrics.plans.with_label_values(&["failed"]).inc();
                tracing::warn!(%error, sequence = published.snapshot.sequence, "no plan");
                None
            }
        }
    }

    fn take(&self, cycle: &mut Cycle, event: Option<Event>) {
        let Some(event) = event else { return };
        match &event {
            Event::Outcome { cycle_id, outcome } => {
                self.metrics.outcome(outcome.status, outcome.reason);
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
        cycle.heard(event, Instant::now());
    }
}

/// Sends what is to be done to the actuator, and what is to be told.
fn execute(
    metrics: &WatcherMetrics,
    executor: &mut Executor,
    (plan, cycle_id, buffers): (Plan, String, &[BufferReport]),
    published: &Published,
) {
    metrics.execute_seconds.observe(published.at.elapsed().as_secs_f64());
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
    let virtual_pods = rooms::launched(&plan, &published.snapshot);
    executor.send(Execution { driver, plan, cycle_id, virtual_pods, buffers: buffers.to_vec() });
}
