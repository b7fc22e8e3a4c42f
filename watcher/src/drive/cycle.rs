//! The loop's state machine: decides the next step from snapshots, plans, outcomes and time, without I/O.

use super::backoff::{Backoff, RemovalsBackoff};
use super::bounds::ReasonCursor;
use super::commit::CommitWait;
use super::execute::Event;
use super::retries::{Retries, RetryKey};
use crate::snapshots::PublishedSnapshot;
use plimsoll_model::execution::{BufferReport, Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::identity::{ActionId, NodeName, PodUid};
use plimsoll_model::plan::{Placement, Plan, Unschedulable};
use plimsoll_model::snapshot::LedgerPosition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

mod observe;
mod parts;
#[cfg(test)]
mod tests;
mod wake;

pub(super) use observe::{has_new_waiting_pods, has_waiting_pods};
use parts::has_actions;
use wake::{earliest, wake};

/// How long the actuator may take to report whether it admits each action. It reports the admission of a launch before
/// it calls any API, and that of a removal once its command is written.
pub const ADMISSION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the ledger may lag behind the positions in outcomes before the watcher accepts the older position. A
/// permanent lag only occurs if the actuator's Lease was deleted and its epochs restarted. Accepting the older position
/// is safe because the actuator rejects stale plans.
const MAX_LEDGER_LAG: Duration = Duration::from_secs(60);

/// How long plans without removals are preferred while pods are pending: as long as Karpenter pauses between two
/// searches for nodes to remove. Without this bound, one pod that cannot be placed prevents removals in a busy cluster.
const DISRUPTION_INTERVAL: Duration = Duration::from_secs(10);

/// Next action of the loop, with the snapshot that it refers to.
#[derive(Debug)]
pub enum CycleStep {
    /// Request a plan that places pending pods.
    Plan {
        /// The snapshot to plan for.
        published: Arc<PublishedSnapshot>,
        /// The plan may also remove nodes, which takes longer.
        disruption: bool,
        /// Nodes that the plan does not remove, since their removal failed a short time ago.
        kept_nodes: BTreeSet<NodeName>,
    },
    /// Send a plan to the actuator.
    Execute {
        /// The snapshot that the plan was made for.
        published: Arc<PublishedSnapshot>,
        /// The plan.
        plan: Box<Plan>,
        /// Id of the execution.
        cycle_id: String,
    },
    /// Request a snapshot of the present time.
    Refresh,
    /// Wait for a snapshot or an event, at most until the given time.
    Wait(Option<Instant>),
}

/// The plan for a snapshot and what has been sent of it.
#[derive(Debug)]
struct CurrentPlan {
    published: Arc<PublishedSnapshot>,
    /// The plan; `None` if there is none, or if nothing more of it may be sent.
    plan: Option<Plan>,
    /// The plan may remove nodes.
    with_disruption: bool,
    /// Actions that have been sent.
    sent: BTreeSet<ActionId>,
    /// Number of parts that have been sent.
    parts: u32,
}

/// Sent actions whose admission is not known yet.
#[derive(Debug)]
struct PendingAdmission {
    cycle_id: String,
    actions: BTreeSet<ActionId>,
    until: Instant,
}

/// Parts of a plan that are only reported, without an action.
type Notifications = (Vec<Unschedulable>, Vec<Placement>);

/// State of the loop during one term of leadership.
#[derive(Debug, Default)]
pub struct Cycle {
    epoch: u64,
    /// Plans may remove nodes.
    disruption: bool,
    current: Option<CurrentPlan>,
    observed_sequence: Option<u64>,
    /// Epoch of the actuator's leader in the newest snapshot.
    ledger_epoch: Option<u64>,
    commit_wait: CommitWait,
    retries: Retries,
    /// Minimum ledger position for the next plan: it includes the outcomes received so far that change what is planned.
    required_ledger: LedgerPosition,
    behind_since: Option<Instant>,
    pending: Option<PendingAdmission>,
    sent_notifications: Option<Notifications>,
    reason_cursor: ReasonCursor,
    /// Status of CapacityBuffers under the last plan.
    buffer_reports: Vec<BufferReport>,
    /// Status of CapacityBuffers that was last sent.
    sent_buffer_reports: Vec<BufferReport>,
    /// Virtual pods of the newest snapshot.
    virtual_pods: BTreeSet<PodUid>,
    plan_backoff: Backoff,
    execute_backoff: Backoff,
    removals_backoff: RemovalsBackoff,
    /// Nodes that the last requested plan with removals keeps, because their removal pauses.
    kept_nodes: BTreeSet<NodeName>,
    /// When removals were last planned, or when this leadership began.
    disruption_planned: Option<Instant>,
    /// When a plan with removals was first requested since the last one was made.
    disruption_wanted: Option<Instant>,
    /// Nodes that the newest snapshot shows as being removed.
    removing: BTreeSet<NodeName>,
}

impl CurrentPlan {
    fn new(published: &Arc<PublishedSnapshot>, plan: Option<Plan>, with_disruption: bool) -> Self {
        Self { published: Arc::clone(published), plan, with_disruption, sent: BTreeSet::new(), parts: 0 }
    }

    fn sequence(&self) -> u64 {
        self.published.snapshot.sequence
    }
}

impl Cycle {
    /// Creates the state for the leadership with this epoch. Cycle ids begin with the epoch.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Allows plans with removals, which are requested once no pod waits for a plan.
    #[must_use]
    pub fn with_disruption(self, disruption: bool) -> Self {
        Self { disruption, ..self }
    }

    /// Returns the cycle id of the plan for a snapshot.
    #[must_use]
    pub fn id(&self, sequence: u64) -> String {
        format!("{}-{sequence}", self.epoch)
    }

    /// Number of pods that wait for other pods of their owner.
    #[must_use]
    pub fn waiting_pods(&self) -> usize {
        self.commit_wait.waiting_pods()
    }

    /// Returns the next step at `now`, where `published` is the newest snapshot.
    pub fn next(&mut self, published: &Arc<PublishedSnapshot>, now: Instant) -> CycleStep {
        self.observe(published, now);
        if let Some(pending) = self.pending.take_if(|pending| pending.until <= now) {
            tracing::warn!(cycle_id = pending.cycle_id, actions = pending.actions.len(), "no admission result in time");
            self.fail_pending(&pending, now);
        }
        let backoffs =
            [self.plan_backoff.until, self.execute_backoff.until].into_iter().flatten().filter(|until| *until > now);
        let pending = self.pending.as_ref().map(|pending| pending.until);
        if let Some(until) = pending.or(backoffs.max()) {
            return CycleStep::Wait(Some(until));
        }
        if let Some(until) = self.wait_for_ledger(published.snapshot.ledger, now) {
            return CycleStep::Wait(Some(until));
        }
        let removals_since = *self.disruption_planned.get_or_insert(now);
        let may_remove = self.disruption && self.retries.removals_wait(now).is_none();
        // A plan stays current while nothing relevant has changed since its snapshot.
        if let Some((outdated, part)) = self.take_outdated(published, now) {
            let (part, cycle_id) = self.send(part, now);
            return CycleStep::Execute { published: outdated, plan: Box::new(part), cycle_id };
        }
        let Some((current, plan)) = self.current.as_ref().and_then(|current| Some((current, current.plan.as_ref()?)))
        else {
            let has_waiting_pods = has_waiting_pods(&published.snapshot);
            let is_due = now >= removals_since + DISRUPTION_INTERVAL;
            return self.plan_step(published, may_remove && (!has_waiting_pods || is_due), now);
        };
        let needs_disruption_plan = may_remove && !current.with_disruption;
        let part = self.sendable(plan, now);
        let has_actions = has_actions(&part);
        let has_notifications = self.has_notifications(&part);
        if !has_actions && needs_disruption_plan {
            return self.plan_step(published, true, now);
        }
        if !has_actions && !has_notifications {
            return self.idle(plan, published, now);
        }
        let planned = Arc::clone(&current.published);
        let (part, cycle_id) = self.send(part, now);
        CycleStep::Execute { published: planned, plan: Box::new(part), cycle_id }
    }

    /// Nodes whose removal pauses do not use up budgets that other nodes could use.
    fn plan_step(&mut self, published: &Arc<PublishedSnapshot>, disruption: bool, now: Instant) -> CycleStep {
        if disruption {
            self.disruption_wanted.get_or_insert(now);
        }
        let paused = disruption.then(|| self.retries.paused_nodes(&published.snapshot, now));
        self.kept_nodes = paused.into_iter().flat_map(BTreeMap::into_keys).collect();
        CycleStep::Plan { published: Arc::clone(published), disruption, kept_nodes: self.kept_nodes.clone() }
    }

    /// Returns how long to wait for a newer ledger, or `None` if `ledger` is new enough.
    fn wait_for_ledger(&mut self, ledger: LedgerPosition, now: Instant) -> Option<Instant> {
        if ledger >= self.required_ledger {
            self.behind_since = None;
            return None;
        }
        let until = *self.behind_since.get_or_insert(now) + MAX_LEDGER_LAG;
        if until > now {
            return Some(until);
        }
        tracing::warn!(?ledger, required = ?self.required_ledger, "ledger position went back, accepting it");
        self.required_ledger = ledger;
        self.behind_since = None;
        None
    }

    /// Returns the step when nothing can be sent: wait until something becomes sendable by time alone.
    fn idle(&self, plan: &Plan, published: &PublishedSnapshot, now: Instant) -> CycleStep {
        let launches = plan.launches.iter().map(|it| (&it.action_id, RetryKey::from(&it.action_id)));
        let actions = launches.chain(plan.terminations.iter().map(|it| (&it.action_id, RetryKey::from(it))));
        let was_sent = |action: &ActionId| self.current.as_ref().is_some_and(|it| it.sent.contains(action));
        let mut until = earliest(self.commit_wait.deadline(), self.retries.removals_wait(now));
        for (action, key) in actions {
            let retry = self.retries.until(&key, now);
            // An action that was sent for this snapshot and failed is retried with the next snapshot. One that was not
            // sent waits for an action that pauses and that it belongs to.
            if retry.is_none() && was_sent(action) && self.retries.has_failed(&key) {
                return CycleStep::Refresh;
            }
            until = earliest(until, retry);
        }
        let paused = self.retries.paused_nodes(&published.snapshot, now);
        for node in &self.kept_nodes {
            match paused.get(node) {
                // Its removal may be planned again.
                None => return CycleStep::Refresh,
                pause => until = earliest(until, pause.copied()),
            }
        }
        if let Some(at) = plan.next_time.map(|time| wake(time, published)) {
            if at <= now {
                return CycleStep::Refresh;
            }
            until = earliest(until, Some(at));
        }
        CycleStep::Wait(until)
    }

    /// Whether a plan with removals may be abandoned for pods that become pending. A plan that was first requested some
    /// time ago is completed: pods that keep arriving would prevent removals otherwise.
    #[must_use]
    pub fn may_abandon_removals(&self, now: Instant) -> bool {
        self.disruption_wanted.is_none_or(|wanted| now < wanted + DISRUPTION_INTERVAL)
    }

    /// Requests no plans with removals until this time.
    pub fn pause_removals(&mut self, until: Instant) {
        self.retries.pause_removals(until);
    }

    /// Records the plan for a snapshot; `None` if no scheduler made one. `with_disruption` tells whether the plan may
    /// remove nodes.
    pub fn record_plan(
        &mut self,
        published: &Arc<PublishedSnapshot>,
        plan: Option<Plan>,
        with_disruption: bool,
        now: Instant,
    ) {
        if with_disruption {
            (self.disruption_planned, self.disruption_wanted) = (Some(now), None);
            let pause = self.removals_backoff.planned(plan.is_some());
            self.pause_removals(now + pause);
        }
        match &plan {
            Some(_) => self.plan_backoff = Backoff::default(),
            None => self.plan_backoff.failed(now),
        }
        let (sent, parts) = match self.current.take() {
            // Parts of this plan have been sent before: early parts, or parts of the plan without removals.
            Some(part) if part.sequence() == published.snapshot.sequence => (part.sent, part.parts),
            _ => (BTreeSet::new(), 0),
        };
        self.current = Some(CurrentPlan { sent, parts, ..CurrentPlan::new(published, plan, with_disruption) });
    }

    /// Accepts early launches of a plan that is still being computed. Returns the launches to send now and their cycle
    /// id.
    pub fn early_part(
        &mut self,
        published: &Arc<PublishedSnapshot>,
        part: &Plan,
        now: Instant,
    ) -> Option<(Plan, String)> {
        let sequence = published.snapshot.sequence;
        if self.current.as_ref().is_none_or(|current| current.sequence() != sequence) {
            self.current = Some(CurrentPlan::new(published, None, false));
        }
        let part = self.sendable(part, now);
        if part.launches.is_empty() || self.pending.is_some() {
            return None;
        }
        if let Some(current) = &mut self.current {
            // What is left of the plan without removals does not know of these launches.
            current.plan = None;
        }
        // An early part has no notifications. Those that were sent before stay known.
        let sent = (self.sent_notifications.take(), self.sent_buffer_reports.clone(), self.reason_cursor.clone());
        let executed = self.send(part, now);
        (self.sent_notifications, self.sent_buffer_reports, self.reason_cursor) = sent;
        Some(executed)
    }

    /// Sets the status of CapacityBuffers under the new plan.
    pub fn set_buffer_reports(&mut self, buffers: Vec<BufferReport>) {
        self.buffer_reports = buffers;
    }

    /// Status of CapacityBuffers to send.
    #[must_use]
    pub fn buffer_reports(&self) -> &[BufferReport] {
        &self.buffer_reports
    }

    /// Handles an event from the actuator.
    pub fn handle_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Outcome { outcome, .. } => self.record_outcome(&outcome, now),
            Event::Ended { cycle_id, result } => {
                let pending = self.pending.take_if(|pending| pending.cycle_id == cycle_id);
                match (result, pending) {
                    (Ok(()), pending) => {
                        self.execute_backoff = Backoff::default();
                        pending.into_iter().for_each(|pending| self.fail_pending(&pending, now));
                    }
                    // The actuator is down, a standby, or not yet sure of its leadership. Sending the plan again is
                    // safe, because the actuator executes an action only once.
                    (Err(_), pending) => {
                        self.sent_notifications = None;
                        self.sent_buffer_reports.clear();
                        self.execute_backoff.failed(now);
                        if pending.is_some() {
                            self.current = None;
                        }
                    }
                }
            }
        }
    }

    fn record_outcome(&mut self, outcome: &Outcome, now: Instant) {
        self.execute_backoff = Backoff::default();
        let is_admission = self.pending.as_ref().is_some_and(|pending| pending.actions.contains(&outcome.action_id));
        // The end of an admitted action changes nothing that is planned. In a burst, such outcomes arrive faster than
        // snapshots, and each snapshot would be too old for the last of them.
        if is_admission || !matches!(outcome.status, OutcomeStatus::Launched | OutcomeStatus::Removed) {
            self.required_ledger = self.required_ledger.max(outcome.ledger);
        }
        match outcome.status {
            OutcomeStatus::Rejected if outcome.reason == Some(OutcomeReason::BudgetExhausted) => {
                self.retries.over_budget(&outcome.action_id, now);
            }
            OutcomeStatus::Rejected => self.retries.failed(&outcome.action_id, now),
            OutcomeStatus::Failed => self.retries.undone(&outcome.action_id, now),
            OutcomeStatus::Accepted => self.retries.accepted(&outcome.action_id),
            OutcomeStatus::Launched | OutcomeStatus::Removed => self.retries.succeeded(&outcome.action_id),
        }
        if let Some(pending) = &mut self.pending {
            pending.actions.remove(&outcome.action_id);
        }
        self.pending.take_if(|pending| pending.actions.is_empty());
    }

    /// Records actions without an outcome as failed, so that they are planned again on a newer ledger.
    fn fail_pending(&mut self, pending: &PendingAdmission, now: Instant) {
        for action in &pending.actions {
            self.retries.failed(action, now);
        }
    }
}
