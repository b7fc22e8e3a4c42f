//! TerminateInstances for many instances, so that one which EC2 refuses keeps no other running.
//!
//! EC2 refuses a whole call for one instance: termination protection, a missing right, an unknown id. A refused batch is halved
//! until the refused instances are found.

use super::{Action, CloudCalls};
use crate::fencing::{CLOUD_CALL, NotAllowed};
use crate::ports::{CloudError, InstanceState};

/// Instances per call: EC2 takes 1000; a smaller call fails for fewer.
const PER_CALL: usize = 200;
/// Calls for one list of instances. Finding one of 200 takes 16; what is left when they are used up waits for the next round,
/// in which the refused instances that were found are missing.
const MAX_CALLS: usize = 32;

/// What EC2 said of one instance: its state, `None` if EC2 does not know the instance, or why it was not terminated.
pub(crate) type Answer = Result<Option<InstanceState>, CloudError>;

impl CloudCalls {
    /// Terminates instances. Calls `tell` with each answer as it arrives, so that none is lost if the term ends. Instances
    /// without an answer were not asked for.
    ///
    /// # Errors
    /// This process may not act, or a call was not answered in time.
    pub(crate) async fn terminate(&self, ids: &[String], mut tell: impl FnMut(&str, Answer)) -> Result<(), NotAllowed> {
        let mut batches: Vec<&[String]> = ids.chunks(PER_CALL).rev().collect();
        let most = MAX_CALLS.max(batches.len());
        for _ in 0..most {
            let Some(batch) = batches.pop() else { break };
            self.rate_limiter.take(Action::TerminateInstances).await;
            match self.fence.run(CLOUD_CALL, self.cloud.compute.terminate_instances(batch)).await? {
                Ok(ended) => ended.into_iter().for_each(|one| tell(&one.instance_id, Ok(one.state))),
                Err(error) if error.nothing_happened() && !error.is_transient() => match batch {
                    [id] => tell(id, alone(error)),
                    _ => {
                        // The smaller parts first: some refused instance is found within the bound.
                        let (left, right) = batch.split_at(batch.len() / 2);
                        batches.extend([right, left]);
                    }
                },
                // About the call, not about an instance: halves would fare no better.
                Err(error) => batch.iter().for_each(|id| tell(id, Err(error.clone()))),
            }
        }
        Ok(())
    }
}

/// An error about one instance.
fn alone(error: CloudError) -> Answer {
    if matches!(error, CloudError::NotFound { .. }) { Ok(None) } else { Err(error) }
}
