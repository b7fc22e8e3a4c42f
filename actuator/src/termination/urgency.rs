//! What a termination does if the taint or a condition cannot be written, for example because a webhook is down.
//! Usually it waits: without the taint, evicted pods could come back to the node. But if little time is left, the pods
//! would end with the instance, or without their grace period.

use super::{POLL_INTERVAL, Stage, TerminationFlow, drain};
use crate::clock::Timestamped;
use crate::interruption;
use crate::io::WriteError;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use plimsoll_model::time::Millis;

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
    /// The deadline is not over.
    pub(super) fn go_on_if_over(&self, error: WriteError) -> Result<(), WriteError> {
        if self.deadline().is_none_or(|deadline| deadline > self.deps.clock.now()) {
            return Err(error);
        }
        let node_claim = self.subject.claim.name_any();
        tracing::warn!(node_claim, %error, "write failed after the deadline, going on without it");
        Ok(())
    }

    /// Evicts the pods that are due although a write failed, if the node has little time left. The write is tried
    /// again, and the drain does not end without it.
    ///
    /// # Errors
    /// There is time to wait for the write, or writes are not allowed now.
    pub(super) async fn evict_if_urgent(
        &self,
        error: WriteError,
        deadline: Option<Timestamp>,
    ) -> Result<Stage, WriteError> {
        if !self.is_urgent(deadline) {
            return Err(error);
        }
        let node_claim = self.subject.claim.name_any();
        tracing::warn!(node_claim, %error, "write failed, evicting pods without it: the node has little time left");
        let now = self.deps.clock.now();
        let next = self.evict(&self.registered(), &self.subject.pods, deadline, now).await?;
        Ok(Stage::Wait(next.unwrap_or(POLL_INTERVAL)))
    }

    fn is_urgent(&self, deadline: Option<Timestamp>) -> bool {
        let ends = interruption::notice_of(&self.subject.claim).and_then(|notice| notice.ends);
        if ends.is_some_and(|ends| ends.since(self.deps.clock.timestamp()) <= BEFORE_END) {
            return true;
        }
        let soon = self.deps.clock.now().saturating_add(BEFORE_DELETION).unwrap_or(Timestamp::MAX);
        deadline.is_some() && !drain::plan(&self.subject.pods, deadline, true, soon).force.is_empty()
    }
}
