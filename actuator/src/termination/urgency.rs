//! What a termination does if the taint or a condition cannot be written, for example because a webhook is down.
//! Usually it waits: without the taint, evicted pods could come back to the node. But if little time is left, the pods
//! would end with the instance, or without their grace period.

use super::{POLL_INTERVAL, Stage, TerminationFlow, drain};
use crate::clock::Timestamped;
use crate::interruption;
use crate::io::WriteError;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use plimsoll_api::Pod;
use plimsoll_model::time::Millis;
use std::sync::Arc;

/// How long before the end of an interrupted instance its pods are evicted in any case. A Spot notice leaves two
/// minutes. If the end is later or unknown, the pods would be evicted again and again.
const BEFORE_END: Millis = Millis::from_seconds(120);
/// How long before a pod has to be deleted for the node's deadline the drain goes on. The controller pauses for at most
/// as long after an error, so that the deletion is not late.
const BEFORE_DELETION: SignedDuration = SignedDuration::from_secs(30);

impl TerminationFlow<'_> {
    /// Ignores that a write failed if the deadline of the termination is over: nothing may delay the node any longer.
    ///
    /// # Errors
    /// The deadline is not over, or writes are not allowed now.
    pub(super) fn go_on_if_over(&self, error: WriteError) -> Result<(), WriteError> {
        if error.concerns_all_writes() || self.deadline().is_none_or(|deadline| deadline > self.deps.clock.now()) {
            return Err(error);
        }
        let node_claim = self.subject.claim.name_any();
        tracing::warn!(node_claim, %error, "write failed after the deadline, going on without it");
        Ok(())
    }

    /// Goes on although a write failed, if little time is left. Shortly before the instance ends, evicts all pods that
    /// are due. Otherwise, only deletes the pods whose time is over. The write is tried again, and the drain does not
    /// end without it.
    ///
    /// # Errors
    /// There is time to wait for the write, or writes are not allowed now.
    pub(super) async fn evict_if_urgent(
        &self,
        error: WriteError,
        deadline: Option<Timestamp>,
    ) -> Result<Stage, WriteError> {
        let (ends_soon, pods, now) = (self.ends_soon(), &self.subject.pods, self.deps.clock.now());
        if !ends_soon && !has_to_delete_soon(pods, deadline, now) {
            return Err(error);
        }
        let mut plan = self.next_step(pods, deadline, now).await;
        if !ends_soon {
            plan.evict.clear();
            // Without the taint, successors may come to the node. They would be deleted again and again.
            let deleted = self.subject.claim.metadata.deletion_timestamp.as_ref();
            plan.force.retain(|(pod, _)| pod.metadata.creation_timestamp.as_ref() <= deleted);
        }
        if !plan.evict.is_empty() || !plan.force.is_empty() {
            let node_claim = self.subject.claim.name_any();
            tracing::warn!(node_claim, %error, "write failed, going on without it: little time is left");
        }
        let next = self.carry_out(&self.registered(), &plan, now).await?;
        Ok(Stage::Wait(next.unwrap_or(POLL_INTERVAL)))
    }

    /// Whether the end of an interrupted instance is near.
    fn ends_soon(&self) -> bool {
        let ends = interruption::notice_of(&self.subject.claim).and_then(|notice| notice.ends);
        ends.is_some_and(|ends| ends.since(self.deps.clock.timestamp()) <= BEFORE_END)
    }
}

/// Whether a pod has to be deleted soon, so that it stops before the deadline.
fn has_to_delete_soon(pods: &[Arc<Pod>], deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let soon = now.saturating_add(BEFORE_DELETION).unwrap_or(Timestamp::MAX);
    !drain::plan(pods, deadline, true, soon).force.is_empty()
}
