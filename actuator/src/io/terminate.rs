//! TerminateInstances for many instances, such that one refused instance does not keep the others running.
//!
//! EC2 refuses the whole call if it refuses one instance: termination protection, a missing right, an unknown id. A
//! refused batch is split in halves until the refused instances are found.

use super::{Action, CloudCalls};
use crate::fencing::{CLOUD_CALL, NotAllowed};
use crate::metrics::cloud::CloudMethod;
use crate::ports::{CloudError, InstanceState};
use tokio::time::Instant;

/// Instances per call. EC2 accepts 1000; a smaller batch limits the effect of one refused instance.
const PER_CALL: usize = 200;
/// Calls per round. Finding one refused instance among 200 takes 16 calls. The rest waits for the next round, which
/// excludes the refused instances found so far.
const MAX_CALLS: usize = 32;

/// EC2's answer for one instance: its state, `None` if EC2 does not know the instance, or why it was not terminated.
pub(crate) type TerminateResult = Result<Option<InstanceState>, CloudError>;

impl CloudCalls {
    /// Terminates instances. Calls `report` with each answer as it arrives, so that no answer is lost if the term ends.
    /// Instances without an answer were not attempted.
    ///
    /// # Errors
    /// The fence refuses, or a call timed out.
    pub(crate) async fn terminate(
        &self,
        ids: &[String],
        mut report: impl FnMut(&str, TerminateResult),
    ) -> Result<(), NotAllowed> {
        let mut batches: Vec<&[String]> = ids.chunks(PER_CALL).rev().collect();
        let max_calls = MAX_CALLS.max(batches.len());
        for _ in 0..max_calls {
            let Some(batch) = batches.pop() else { break };
            self.rate_limiter.take(Action::TerminateInstances).await;
            let started = Instant::now();
            let answer = self.fence.run(CLOUD_CALL, self.cloud.compute.terminate_instances(batch)).await?;
            self.metrics.cloud.call(CloudMethod::Delete, "TerminateInstances", started.elapsed(), &answer);
            match answer {
                Ok(ended) => ended.into_iter().for_each(|instance| report(&instance.instance_id, Ok(instance.state))),
                Err(error) if error.nothing_happened() && !error.is_transient() => match batch {
                    [id] => report(id, single_result(error)),
                    _ => {
                        // Smaller batches first, so that at least one refused instance is found within the limit of
                        // calls.
                        let (first_half, second_half) = batch.split_at(batch.len() / 2);
                        batches.extend([second_half, first_half]);
                    }
                },
                // The error concerns the call, not an instance: smaller batches would fail too.
                Err(error) => batch.iter().for_each(|id| report(id, Err(error.clone()))),
            }
        }
        Ok(())
    }
}

/// Converts the error of a call for a single instance.
fn single_result(error: CloudError) -> TerminateResult {
    if matches!(error, CloudError::NotFound { .. }) { Ok(None) } else { Err(error) }
}
