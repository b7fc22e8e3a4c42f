//! Executes a drain: evictions with back-off while budgets refuse them, and deletions near the deadline.

use super::drain::Drain;
use crate::events::{Note, object, reason};
use crate::io::WriteError;
use crate::pods;
use crate::termination::Termination;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use plimsoll_api::condition::node_claim::DISRUPTION_REASON;
use plimsoll_api::{NodeClaim, Pod};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// First pause after a refusal. Doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Concurrent evictions per node.
const MAX_PER_NODE: usize = 16;
/// Concurrent evictions in total, since the API server is shared with other clients.
const MAX_TOTAL: usize = 64;
/// Reason in Events for a claim without a disruption reason.
const NO_REASON: &str = "Forceful Termination";
/// Code of an accepted eviction in metrics, as in Karpenter.
const OK: u16 = 200;

/// Back-off of a pod.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    refusals: u32,
}

/// Back-off and concurrency of the evictions of all nodes.
#[derive(Debug)]
pub(super) struct Evictions {
    /// Back-off by pod UID.
    paused: Mutex<BTreeMap<String, Pause>>,
    permits: Semaphore,
}

impl Default for Evictions {
    fn default() -> Self {
        Self { paused: Mutex::default(), permits: Semaphore::new(MAX_TOTAL) }
    }
}

/// Result of an eviction attempt.
enum EvictionResult {
    Gone,
    Refused(String),
}

impl Evictions {
    /// Evicts and deletes the pods that are due. Returns the time until the next attempt, if a pod is waiting.
    ///
    /// # Errors
    /// The first error, after every pod has been tried.
    pub(super) async fn carry_out(
        &self,
        deps: &Termination,
        claim: Option<&NodeClaim>,
        node: Option<&Arc<Node>>,
        drain: &Drain,
    ) -> Result<Option<Duration>, WriteError> {
        // A pod that cannot be deleted, for example because a webhook fails, must not keep the pods after it.
        let mut first_error = None;
        for (pod, grace) in &drain.force {
            if let Err(error) = deps.writes.delete(&**pod, Some(*grace)).await {
                tracing::warn!(pod = pods::full_name(pod), %error, "pod not deleted, retrying");
                first_error.get_or_insert(error);
                continue;
            }
            deps.metrics.evictions.with_label_values(&["forced"]).inc();
            deps.metrics.pods.drained(claim);
            let message = format!("deleted with a grace period of {grace} s: the node's terminationGracePeriod ends");
            deps.events.publish(Note::normal(object(&**pod), reason::DISRUPTED, message).with_cause("forced"));
        }
        let now = Instant::now();
        let due_pods: Vec<Arc<Pod>> = {
            let paused = self.paused.lock();
            let is_due = |pod: &&Arc<Pod>| paused.get(&pods::uid(pod)).is_none_or(|pause| pause.until <= now);
            drain.evict.iter().filter(is_due).cloned().collect()
        };
        let tries = due_pods.into_iter().map(|pod| async move { (self.evict(deps, &pod).await, pod) });
        let results: Vec<_> = stream::iter(tries).buffer_unordered(MAX_PER_NODE).collect().await;
        let mut refusals = Vec::new();
        for (result, pod) in results {
            let result = match result {
                Ok(result) => result,
                Err(error) => {
                    tracing::warn!(pod = pods::full_name(&pod), %error, "pod not evicted, retrying");
                    self.pause(&pods::uid(&pod));
                    first_error.get_or_insert(error);
                    continue;
                }
            };
            match result {
                EvictionResult::Gone => {
                    deps.metrics.pods.drained(claim);
                    deps.metrics.evictions.with_label_values(&["evicted"]).inc();
                    self.paused.lock().remove(&pods::uid(&pod));
                    let message = format!("evicted: {}", claim.map_or_else(|| NO_REASON.to_owned(), why));
                    deps.events.publish(Note::normal(object(&*pod), reason::EVICTED, message));
                }
                EvictionResult::Refused(message) => {
                    deps.metrics.evictions.with_label_values(&["refused"]).inc();
                    self.pause(&pods::uid(&pod));
                    refusals.push(format!("{}: {message}", pods::full_name(&pod)));
                }
            }
        }
        refusals.extend(drain.protected.iter().map(|pod| format!("{pod}: it must not be disrupted")));
        refusals.sort();
        if let (Some(node), Some((cause, message))) = (node, delay(drain, &refusals)) {
            let note = Note::warning(object(&**node), reason::FAILED_DRAINING, message);
            deps.events.publish(note.with_cause(cause));
        }
        first_error.map_or_else(|| Ok(self.next(drain)), Err)
    }

    async fn evict(&self, deps: &Termination, pod: &Pod) -> Result<EvictionResult, WriteError> {
        let Ok(_permit) = self.permits.acquire().await else { return Ok(EvictionResult::Refused(String::new())) };
        match deps.writes.evict(pod).await? {
            Ok(_) => {
                deps.metrics.pods.eviction(OK);
                Ok(EvictionResult::Gone)
            }
            // 409: another pod has the name now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                deps.metrics.pods.eviction(status.code);
                Ok(EvictionResult::Gone)
            }
            // 429: a budget allows no disruption. 500: several budgets cover the pod, which Kubernetes does not
            // support.
            Err(kube::Error::Api(status)) if matches!(status.code, 429 | 500) => {
                deps.metrics.pods.eviction(status.code);
                Ok(EvictionResult::Refused(status.message.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn pause(&self, uid: &str) {
        let mut paused = self.paused.lock();
        let now = Instant::now();
        // Remove entries of pods that are gone for other reasons.
        paused.retain(|_, pause| pause.until + LAST_PAUSE * 6 > now);
        let refusals = paused.get(uid).map_or(0, |pause| pause.refusals);
        let wait = FIRST_PAUSE.saturating_mul(1_u32 << refusals.min(10)).min(LAST_PAUSE);
        paused.insert(uid.to_owned(), Pause { until: now + wait, refusals: refusals.saturating_add(1) });
    }

    fn next(&self, drain: &Drain) -> Option<Duration> {
        let paused = self.paused.lock();
        let waits = drain.evict.iter().filter_map(|pod| paused.get(&pods::uid(pod)));
        waits.map(|pause| pause.until.saturating_duration_since(Instant::now())).min()
    }
}

/// Why the drain has not ended, as the cause and the message of an Event. `None` while it only begins.
fn delay(drain: &Drain, refusals: &[String]) -> Option<(&'static str, String)> {
    if !refusals.is_empty() {
        return Some(("refused", format!("waiting for {} pods: {}", drain.waiting, refusals.join("; "))));
    }
    (drain.stopping > 0).then(|| ("stopping", format!("waiting for {} pods to stop", drain.waiting)))
}

/// Why the claim is disrupted, for Events on its pods.
fn why(claim: &NodeClaim) -> String {
    claim.true_condition(DISRUPTION_REASON).map_or_else(|| NO_REASON.to_owned(), |it| it.reason.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_that_waits_for_pods_to_stop_says_so() {
        assert_eq!(delay(&Drain { waiting: 2, ..Drain::default() }, &[]), None, "the evictions only begin");
        let drain = Drain { waiting: 2, stopping: 1, ..Drain::default() };
        assert_eq!(delay(&drain, &[]), Some(("stopping", "waiting for 2 pods to stop".to_owned())));
        let refused = delay(&drain, &["ns/web: a budget refuses it".to_owned()]);
        assert_eq!(refused, Some(("refused", "waiting for 2 pods: ns/web: a budget refuses it".to_owned())));
    }
}
