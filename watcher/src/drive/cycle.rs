//! What is next in the loop: a plain state machine over snapshots, plans, outcomes and time.

use super::commit::CommitWait;
use super::execute::Event;
use super::retries::{About, Retries};
use super::subset::subset;
use crate::snapshots::{Published, TIME_STEP_MS};
use plimsoll_model::execution::{BufferReport, Outcome, OutcomeStatus};
use plimsoll_model::identity::{ActionId, PodUid};
use plimsoll_model::plan::{Placement, Plan, Unschedulable};
use plimsoll_model::snapshot::{LedgerPosition, Pod, PodState};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// How long the actuator may take to say of each action whether it is admitted. It says so before it calls anybody.
pub const ADMISSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a failed plan or Execute call, doubled by each further one in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long the ledger may stay behind what outcomes told, before the ledger itself is believed. That is so only if the
/// actuator's Lease was deleted and its epochs began anew; the actuator rejects stale plans in any case.
const LONGEST_BEHIND: Duration = Duration::from_secs(60);

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Ask for a plan for the newest snapshot: for pods that wait, nodes being left as they are.
    Plan,
    /// Ask for a plan for it in which nodes may go as well, which takes longer.
    Sweep,
    /// Send this to the actuator.
    Execute {
        /// What.
        plan: Box<Plan>,
        /// Names the execution.
        cycle_id: String,
    },
    /// Ask for a snapshot of the present time.
    Refresh,
    /// Wait for a snapshot or an event, at most until then.
    Wait(Option<Instant>),
}

/// What was made of a snapshot.
#[derive(Debug)]
struct Planned {
    sequence: u64,
    plan: Option<Plan>,
    /// Nodes may go by it.
    swept: bool,
    /// Actions of it that were sent.
    sent: BTreeSet<ActionId>,
    /// Parts of it that were sent.
    parts: u32,
}

/// Actions of which it is not known whether they are admitted.
#[derive(Debug)]
struct Awaited {
    cycle_id: String,
    actions: BTreeSet<ActionId>,
    until: Instant,
}

/// What a plan says besides its actions.
type Told = (Vec<Unschedulable>, Vec<Placement>);

/// The loop's state during one leadership.
#[derive(Debug, Default)]
pub struct Cycle {
    epoch: u64,
    /// Nodes may be removed.
    sweeps: bool,
    planned: Option<Planned>,
    observed: Option<u64>,
    wait: CommitWait,
    retries: Retries,
    /// The ledger must be at least so new for the next plan (rules 8 and 21).
    required: LedgerPosition,
    behind_since: Option<Instant>,
    awaited: Option<Awaited>,
    told: Option<Told>,
    /// What CapacityBuffers come to by the last plan, and what of that was told.
    buffers: (Vec<BufferReport>, Vec<BufferReport>),
    /// Virtual pods of the newest snapshot.
    rooms: BTreeSet<PodUid>,
    planning: Rest,
    executing: Rest,
}

/// Failures in a row that are about no action: nothing is tried for a while.
#[derive(Debug, Default)]
struct Rest {
    failures: u32,
    until: Option<Instant>,
}

impl Rest {
    fn failed(&mut self, now: Instant) {
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST_PAUSE);
        *self = Self { failures: self.failures.saturating_add(1), until: Some(now + pause) };
    }
}

impl Cycle {
    /// Of the leadership with that epoch; names of cycles begin with it.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// The same, in which nodes may be removed: once nobody waits for a plan any more.
    #[must_use]
    pub fn sweeping(self, sweeps: bool) -> Self {
        Self { sweeps, ..self }
    }

    /// Names the round of planning for that snapshot.
    #[must_use]
    pub fn id(&self, sequence: u64) -> String {
        format!("{}-{sequence}", self.epoch)
    }

    /// How many pods wait for others of their owner.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wait.waiting()
    }

    /// What is to be done at `now`.
    pub fn next(&mut self, newest: Option<&Published>, now: Instant) -> Step {
        let Some(published) = newest else { return Step::Wait(None) };
        self.observe(published, now);
        if let Some(awaited) = self.awaited.take_if(|awaited| awaited.until <= now) {
            tracing::warn!(cycle_id = awaited.cycle_id, actions = awaited.actions.len(), "not told what was admitted");
            self.lost(&awaited, now);
        }
        let rests = [self.planning.until, self.executing.until].into_iter().flatten().filter(|until| *until > now);
        let awaited = self.awaited.as_ref().map(|awaited| awaited.until);
        if let Some(until) = awaited.or(rests.max()) {
            return Step::Wait(Some(until));
        }
        if let Some(until) = self.behind(published.snapshot.ledger, now) {
            return Step::Wait(Some(until));
        }
        // A newer snapshot in which nothing has changed that matters has the same plan.
        let planned = self.planned.as_ref().filter(|planned| planned.sequence >= published.relevant);
        let Some((planned, plan)) = planned.and_then(|planned| Some((planned, planned.plan.as_ref()?))) else {
            // Room for virtual pods is nobody's to wait for: they are always pending.
            let waits = |pod: &Pod| pod.state == PodState::Pending && !pod.is_virtual();
            let waits = published.snapshot.pods.iter().any(waits);
            return if self.sweeps && !waits { Step::Sweep } else { Step::Plan };
        };
        let sweep = self.sweeps && !planned.swept;
        let part = self.sendable(plan, now);
        let has_actions = !part.launches.is_empty() || !part.terminations.is_empty();
        let news = self.told.as_ref() != Some(&told(&part)) && !(self.told.is_none() && told(&part) == Told::default());
        let news = news || self.buffers.0 != self.buffers.1;
        if !has_actions && sweep {
            return Step::Sweep;
        }
        if !has_actions && !news {
            return self.idle(plan, published, now);
        }
        let cycle_id = self.send(&part, now);
        Step::Execute { plan: Box::new(part), cycle_id }
    }

    /// Takes note of a snapshot's pods.
    fn observe(&mut self, published: &Published, now: Instant) {
        self.wait.expire(now);
        if self.observed == Some(published.snapshot.sequence) {
            return;
        }
        self.observed = Some(published.snapshot.sequence);
        let rooms = published.snapshot.pods.iter().filter(|pod| pod.is_virtual());
        self.rooms = rooms.map(|pod| pod.uid.clone()).collect();
        let (mut present, mut incomplete): (BTreeSet<&PodUid>, BTreeSet<&PodUid>) = Default::default();
        for pod in published.snapshot.pods.iter().filter(|pod| !pod.is_virtual()) {
            match pod.state {
                PodState::Bound(_) => continue,
                PodState::Pending if published.incomplete.contains(&pod.uid) => drop(incomplete.insert(&pod.uid)),
                PodState::Pending | PodState::Reserved(_) => {}
            }
            present.insert(&pod.uid);
        }
        self.wait.observe(&present, &incomplete, now);
    }

    /// Until when to wait for a newer ledger, if the present one is too old.
    fn behind(&mut self, ledger: LedgerPosition, now: Instant) -> Option<Instant> {
        if ledger >= self.required {
            self.behind_since = None;
            return None;
        }
        let until = *self.behind_since.get_or_insert(now) + LONGEST_BEHIND;
        if until > now {
            return Some(until);
        }
        tracing::warn!(?ledger, required = ?self.required, "the ledger has begun anew");
        self.required = ledger;
        self.behind_since = None;
        None
    }

    /// What of the plan may be sent now.
    fn sendable(&self, plan: &Plan, now: Instant) -> Plan {
        let free = |action: &ActionId, about: About| {
            let sent = self.planned.as_ref().is_some_and(|planned| planned.sent.contains(action));
            !sent && self.retries.until(&about, now).is_none()
        };
        let held = |pod: &PodUid| self.wait.holds(pod, now);
        subset(
            plan,
            |launch| {
                free(&launch.action_id, (&launch.action_id).into()) && !launch.pods.iter().any(|pod| held(&pod.uid))
            },
            |termination| free(&termination.action_id, termination.into()),
            |pod| self.rooms.contains(pod),
        )
    }

    /// Nothing is to be sent: when that changes by time alone.
    fn idle(&self, plan: &Plan, published: &Published, now: Instant) -> Step {
        let actions = plan.launches.iter().map(|one| About::from(&one.action_id));
        let actions = actions.chain(plan.terminations.iter().map(About::from));
        let mut until = self.wait.until();
        for about in actions {
            let retry = self.retries.until(&about, now);
            // What was sent for this snapshot and failed goes again with the next one.
            if retry.is_none() && self.retries.has(&about) {
                return Step::Refresh;
            }
            until = earliest(until, retry);
        }
        if let Some(at) = plan.next_time.map(|time| wake(time, published)) {
            if at <= now {
                return Step::Refresh;
            }
            until = earliest(until, Some(at));
        }
        Step::Wait(until)
    }

    /// Notes what is sent, and names it: after the round, and after the part if it is not the first.
    fn send(&mut self, part: &Plan, now: Instant) -> String {
        let launches = part.launches.iter().map(|one| one.action_id.clone());
        let terminations = part.terminations.iter().map(|one| one.action_id.clone());
        let actions: BTreeSet<ActionId> = launches.chain(terminations).collect();
        part.terminations.iter().for_each(|one| self.retries.sent(one));
        self.told = Some(told(part));
        self.buffers.1.clone_from(&self.buffers.0);
        let mut cycle_id = self.id(part.snapshot_sequence);
        if let Some(planned) = &mut self.planned {
            planned.sent.extend(actions.iter().cloned());
            planned.parts += 1;
            if planned.parts > 1 {
                cycle_id = format!("{cycle_id}.{}", planned.parts);
            }
        }
        if !actions.is_empty() {
            self.awaited = Some(Awaited { cycle_id: cycle_id.clone(), actions, until: now + ADMISSION_TIMEOUT });
        }
        cycle_id
    }

    /// A plan was made for the snapshot with that sequence, by which nodes may go if it was a sweep; `None` if none could be had.
    pub fn planned(&mut self, sequence: u64, plan: Option<Plan>, swept: bool, now: Instant) {
        match &plan {
            Some(_) => self.planning = Rest::default(),
            None => self.planning.failed(now),
        }
        let (sent, parts) = match self.planned.take() {
            // Parts of it came, and were sent, before it was whole, or before nodes were looked at.
            Some(part) if part.sequence == sequence => (part.sent, part.parts),
            _ => (BTreeSet::new(), 0),
        };
        self.planned = Some(Planned { sequence, plan, swept, sent, parts });
    }

    /// Launches of the plan for the snapshot with that sequence, of which the rest is still being made: what of them is to be sent at once,
    /// and how that is named.
    pub fn part(&mut self, sequence: u64, part: &Plan, now: Instant) -> Option<(Plan, String)> {
        if self.planned.as_ref().is_none_or(|planned| planned.sequence != sequence || planned.plan.is_some()) {
            self.planned = Some(Planned { sequence, plan: None, swept: false, sent: BTreeSet::new(), parts: 0 });
        }
        let part = self.sendable(part, now);
        if part.launches.is_empty() || self.awaited.is_some() {
            return None;
        }
        let told = (self.told.take(), self.buffers.1.clone());
        let cycle_id = self.send(&part, now);
        (self.told, self.buffers.1) = told;
        Some((part, cycle_id))
    }

    /// What CapacityBuffers come to by the plan that is made.
    pub fn reported(&mut self, buffers: Vec<BufferReport>) {
        self.buffers.0 = buffers;
    }

    /// What is to be told of them.
    #[must_use]
    pub fn buffers(&self) -> &[BufferReport] {
        &self.buffers.0
    }

    /// Something was heard from the actuator.
    pub fn heard(&mut self, event: Event, now: Instant) {
        match event {
            Event::Outcome { outcome, .. } => self.outcome(&outcome, now),
            Event::Ended { cycle_id, result } => {
                let awaited = self.awaited.take_if(|awaited| awaited.cycle_id == cycle_id);
                match (result, awaited) {
                    (Ok(()), awaited) => {
                        self.executing = Rest::default();
                        awaited.into_iter().for_each(|awaited| self.lost(&awaited, now));
                    }
                    // The actuator is down, stands by or is not sure yet that it leads. Whatever it did with the plan,
                    // asking again does nothing twice.
                    (Err(_), awaited) => {
                        self.told = None;
                        self.buffers.1.clear();
                        self.executing.failed(now);
                        if awaited.is_some() {
                            self.planned = None;
                        }
                    }
                }
            }
        }
    }

    fn outcome(&mut self, outcome: &Outcome, now: Instant) {
        self.executing = Rest::default();
        self.required = self.required.max(outcome.ledger);
        match outcome.status {
            OutcomeStatus::Rejected => self.retries.failed(&outcome.action_id, now),
            OutcomeStatus::Failed => self.retries.undone(&outcome.action_id, now),
            OutcomeStatus::Accepted => self.retries.accepted(&outcome.action_id),
            OutcomeStatus::Launched | OutcomeStatus::Removed => self.retries.succeeded(&outcome.action_id),
        }
        if let Some(awaited) = &mut self.awaited {
            awaited.actions.remove(&outcome.action_id);
        }
        self.awaited.take_if(|awaited| awaited.actions.is_empty());
    }

    /// What became of actions will not be told: they are planned again, on the ledger as it is then.
    fn lost(&mut self, awaited: &Awaited, now: Instant) {
        for action in &awaited.actions {
            self.retries.failed(action, now);
        }
    }
}

fn told(plan: &Plan) -> Told {
    (plan.unschedulable.clone(), plan.placements.clone())
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// When a snapshot tells a time that is not before `time`; never the same step again (rule 23).
fn wake(time: Timestamp, published: &Published) -> Instant {
    let step = time.0.saturating_add(TIME_STEP_MS - 1).div_euclid(TIME_STEP_MS).saturating_mul(TIME_STEP_MS);
    let step = step.max(published.snapshot.now.0.saturating_add(TIME_STEP_MS));
    let wait = Duration::from_millis(step.saturating_sub(published.time.0).max(0).unsigned_abs());
    // A time beyond what the clock can count never comes.
    published.at.checked_add(wait).unwrap_or_else(|| published.at + Duration::from_secs(365 * 24 * 3600))
}
