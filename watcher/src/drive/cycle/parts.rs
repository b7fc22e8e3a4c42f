//! Selects the part of a plan that is sent, and records it.

use super::super::bounds::{first_actions, first_placements};
use super::super::outdated::Unchanged;
use super::super::retries::RetryKey;
use super::super::subset::subset;
use super::{ADMISSION_TIMEOUT, Cycle, Notifications, PendingAdmission};
use crate::snapshots::PublishedSnapshot;
use plimsoll_model::identity::{ActionId, PodUid};
use plimsoll_model::plan::{Launch, Plan, Termination};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::Instant;

impl Cycle {
    /// If something relevant has changed since the plan's snapshot, takes the plan and returns what may still be sent
    /// of it, with its snapshot. A plan is taken only once, so that the next one is requested afterwards.
    pub(super) fn take_outdated(
        &mut self,
        published: &Arc<PublishedSnapshot>,
        now: Instant,
    ) -> Option<(Arc<PublishedSnapshot>, Plan)> {
        let current = self.current.as_mut().filter(|current| current.sequence() < published.relevant_sequence)?;
        let (plan, planned) = (current.plan.take()?, Arc::clone(&current.published));
        let unchanged = Unchanged::new(&plan, &planned, published);
        let mut part = self.sendable_if(&plan, now, |it| unchanged.launch(it), |it| unchanged.termination(it));
        part.unschedulable.retain(|it| unchanged.pod(&it.pod));
        part.placements.iter_mut().for_each(|placement| placement.pods.retain(|pod| unchanged.pod(pod)));
        part.placements.retain(|placement| !placement.pods.is_empty());
        (has_actions(&part) || self.has_notifications(&part)).then_some((planned, part))
    }

    /// Whether the part reports anything that has not been reported.
    pub(super) fn has_notifications(&self, part: &Plan) -> bool {
        let notifications = notifications(part);
        let is_known = match &self.sent_notifications {
            Some(sent) => *sent == notifications,
            None => notifications == Notifications::default(),
        };
        let has_more_reasons = !part.unschedulable.is_empty() && !self.reason_cursor.is_complete();
        !is_known || has_more_reasons || self.buffer_reports != self.sent_buffer_reports
    }

    /// Returns the part of the plan that may be sent now.
    pub(super) fn sendable(&self, plan: &Plan, now: Instant) -> Plan {
        self.sendable_if(plan, now, |_| true, |_| true)
    }

    /// Returns the part of the plan that may be sent now, of the actions that the given functions accept. It has no
    /// more actions than fit into one execution; the others are the next part.
    fn sendable_if(
        &self,
        plan: &Plan,
        now: Instant,
        launch: impl Fn(&Launch) -> bool,
        termination: impl Fn(&Termination) -> bool,
    ) -> Plan {
        let may_send = |action: &ActionId, key: RetryKey| {
            let sent = self.current.as_ref().is_some_and(|current| current.sent.contains(action));
            !sent && self.retries.until(&key, now).is_none()
        };
        let is_waiting = |pod: &PodUid| self.commit_wait.is_waiting(pod, now);
        let part = subset(
            plan,
            |it| {
                may_send(&it.action_id, (&it.action_id).into())
                    && !it.pods.iter().any(|pod| is_waiting(&pod.uid))
                    && launch(it)
            },
            |it| may_send(&it.action_id, it.into()) && termination(it),
            |pod| self.virtual_pods.contains(pod),
        );
        first_actions(part, |pod| self.virtual_pods.contains(pod))
    }

    /// Records a part that is sent. Returns it as it is sent, and its cycle id. Parts after the first get a suffix.
    pub(super) fn send(&mut self, mut part: Plan, now: Instant) -> (Plan, String) {
        let launches = part.launches.iter().map(|launch| launch.action_id.clone());
        let terminations = part.terminations.iter().map(|termination| termination.action_id.clone());
        let actions: BTreeSet<ActionId> = launches.chain(terminations).collect();
        part.terminations.iter().for_each(|termination| self.retries.sent(termination));
        let notifications = notifications(&part);
        if self.sent_notifications.as_ref() != Some(&notifications) {
            self.reason_cursor.restart(part.unschedulable.len());
        }
        self.sent_notifications = Some(notifications);
        self.sent_buffer_reports.clone_from(&self.buffer_reports);
        part.unschedulable = self.reason_cursor.next(part.unschedulable);
        part.placements = first_placements(part.placements);
        // The actuator does not use them.
        part.ignored.clear();
        let mut cycle_id = self.id(part.snapshot_sequence);
        if let Some(current) = &mut self.current {
            current.sent.extend(actions.iter().cloned());
            current.parts += 1;
            if current.parts > 1 {
                cycle_id = format!("{cycle_id}.{}", current.parts);
            }
        }
        if !actions.is_empty() {
            self.pending =
                Some(PendingAdmission { cycle_id: cycle_id.clone(), actions, until: now + ADMISSION_TIMEOUT });
        }
        (part, cycle_id)
    }
}

pub(super) fn has_actions(plan: &Plan) -> bool {
    !plan.launches.is_empty() || !plan.terminations.is_empty()
}

fn notifications(plan: &Plan) -> Notifications {
    (plan.unschedulable.clone(), plan.placements.clone())
}
