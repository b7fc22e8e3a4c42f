//! Executes a drain: evictions with back-off while budgets refuse them, and deletions near the deadline.

use super::drain::Drain;
use crate::events::{Note, object, reason};
use crate::fencing::NotAllowed;
use crate::interruption;
use crate::io::WriteError;
use crate::pods;
use crate::termination::Termination;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use parking_lot::Mutex;
use plimsoll_api::condition::node_claim::DISRUPTION_REASON;
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_runtime::backoff;
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

/// A pod to evict, or to delete with a grace period in seconds.
#[derive(Debug, Clone)]
struct Attempt {
    pod: Arc<Pod>,
    grace: Option<u32>,
}

impl Attempt {
    /// Pod UID, and whether the pod is deleted: a refused eviction must not delay the deletion.
    fn key(&self) -> (String, bool) {
        (pods::uid(&self.pod), self.grace.is_some())
    }
}

/// Back-off and concurrency of the evictions of all nodes.
#[derive(Debug)]
pub(super) struct Evictions {
    /// Back-off by key of the attempt.
    paused: Mutex<BTreeMap<(String, bool), Pause>>,
    permits: Semaphore,
}

impl Default for Evictions {
    fn default() -> Self {
        Self { paused: Mutex::default(), permits: Semaphore::new(MAX_TOTAL) }
    }
}

/// Result of an attempt.
enum EvictionResult {
    Accepted,
    /// The pod was gone already.
    Gone,
    Refused(String),
}

impl Evictions {
    /// Evicts and deletes the pods that are due. Returns the time until the next attempt, if a pod is waiting.
    ///
    /// # Errors
    /// Writes are not allowed now. An error of a single pod only pauses that pod, since others may be due before the
    /// back-off of the node would end.
    pub(super) async fn carry_out(
        &self,
        deps: &Termination,
        claim: Option<&NodeClaim>,
        node: Option<&Arc<Node>>,
        drain: &Drain,
    ) -> Result<Option<Duration>, NotAllowed> {
        let attempts = attempts(drain);
        let now = Instant::now();
        let due: Vec<Attempt> = {
            let paused = self.paused.lock();
            let is_due = |attempt: &&Attempt| paused.get(&attempt.key()).is_none_or(|pause| pause.until <= now);
            attempts.iter().filter(is_due).cloned().collect()
        };
        let tries = due.into_iter().map(|attempt| async move { (self.attempt(deps, &attempt).await, attempt) });
        let results: Vec<_> = stream::iter(tries).buffer_unordered(MAX_PER_NODE).collect().await;
        let (mut refusals, mut not_allowed) = (Vec::new(), None);
        for (result, attempt) in results {
            let pod = &*attempt.pod;
            match (result, attempt.grace) {
                (Ok(EvictionResult::Gone), _) => {
                    self.paused.lock().remove(&attempt.key());
                }
                (Ok(EvictionResult::Accepted), grace) => {
                    self.paused.lock().remove(&attempt.key());
                    deps.metrics.pods.drained(claim);
                    let result = if grace.is_some() { "forced" } else { "evicted" };
                    deps.metrics.evictions.with_label_values(&[result]).inc();
                    deps.events.publish(event(pod, claim, grace));
                }
                (Ok(EvictionResult::Refused(message)), _) => {
                    deps.metrics.evictions.with_label_values(&["refused"]).inc();
                    self.pause(attempt.key());
                    refusals.push(format!("{}: {message}", pods::full_name(pod)));
                }
                (Err(error), _) => not_allowed = Some(error),
            }
        }
        let protected = drain.protected.iter();
        refusals.extend(protected.map(|(pod, annotation)| format!("{pod}: protected by annotation {annotation}")));
        refusals.sort();
        if let (Some(node), Some((cause, message))) = (node, delay(drain, &refusals)) {
            let note = Note::warning(object(&**node), reason::FAILED_DRAINING, message);
            deps.events.publish(note.with_cause(cause));
        }
        not_allowed.map_or_else(|| Ok(self.next(&attempts)), Err)
    }

    async fn attempt(&self, deps: &Termination, attempt: &Attempt) -> Result<EvictionResult, NotAllowed> {
        let pod = &*attempt.pod;
        let result = match attempt.grace {
            Some(_) => deps.writes.delete(pod, attempt.grace).await.map(|()| EvictionResult::Accepted),
            None => self.evict(deps, pod).await,
        };
        match result {
            Ok(result) => Ok(result),
            // The lease outlives a call that may start, so a timeout concerns only this pod.
            Err(WriteError::NotAllowed(error)) if !matches!(error, NotAllowed::TimedOut(_)) => Err(error),
            Err(error) => {
                tracing::warn!(pod = pods::full_name(pod), %error, "pod neither evicted nor deleted, retrying");
                Ok(EvictionResult::Refused(error.to_string()))
            }
        }
    }

    async fn evict(&self, deps: &Termination, pod: &Pod) -> Result<EvictionResult, WriteError> {
        let Ok(_permit) = self.permits.acquire().await else { return Ok(EvictionResult::Refused(String::new())) };
        let answer = deps.writes.evict(pod).await?;
        let code = match &answer {
            Ok(()) => Some(OK),
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(_) => None,
        };
        code.into_iter().for_each(|code| deps.metrics.pods.eviction(code));
        match answer {
            Ok(()) => Ok(EvictionResult::Accepted),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(EvictionResult::Gone),
            // 403: a webhook refuses it, or a right is missing. 409: another pod has the name now, which the watch will
            // show, or too many evictions change one budget. 429: a budget allows no disruption. 500: several budgets
            // cover the pod, which Kubernetes does not support.
            Err(kube::Error::Api(status)) => Ok(EvictionResult::Refused(status.message.clone())),
            Err(error) => Err(error.into()),
        }
    }

    fn pause(&self, key: (String, bool)) {
        let mut paused = self.paused.lock();
        let now = Instant::now();
        // Remove entries of pods that are gone for other reasons.
        paused.retain(|_, pause| pause.until + LAST_PAUSE * 6 > now);
        let refusals = paused.get(&key).map_or(0, |pause| pause.refusals);
        let wait = backoff::delay(FIRST_PAUSE, LAST_PAUSE, refusals);
        paused.insert(key, Pause { until: now + wait, refusals: refusals.saturating_add(1) });
    }

    fn next(&self, attempts: &[Attempt]) -> Option<Duration> {
        let paused = self.paused.lock();
        let waits = attempts.iter().filter_map(|attempt| paused.get(&attempt.key()));
        waits.map(|pause| pause.until.saturating_duration_since(Instant::now())).min()
    }
}

/// Deletions first: they are due at a certain time.
fn attempts(drain: &Drain) -> Vec<Attempt> {
    let deletions = drain.force.iter().map(|(pod, grace)| Attempt { pod: Arc::clone(pod), grace: Some(*grace) });
    let evictions = drain.evict.iter().map(|pod| Attempt { pod: Arc::clone(pod), grace: None });
    deletions.chain(evictions).collect()
}

/// The Event of an eviction, or of a deletion with a grace period.
fn event(pod: &Pod, claim: Option<&NodeClaim>, grace: Option<u32>) -> Note {
    match grace {
        Some(grace) => {
            let message = format!("deleted with a grace period of {grace} s: the node's terminationGracePeriod ends");
            Note::normal(object(pod), reason::DISRUPTED, message).with_cause("forced")
        }
        None => {
            let message = format!("evicted: {}", claim.map_or_else(|| NO_REASON.to_owned(), why));
            Note::normal(object(pod), reason::EVICTED, message)
        }
    }
}

/// Why the drain has not ended, as the cause and the message of an Event. `None` while it only begins.
fn delay(drain: &Drain, refusals: &[String]) -> Option<(&'static str, String)> {
    if !refusals.is_empty() {
        return Some(("refused", format!("waiting for {} pods: {}", drain.waiting, refusals.join("; "))));
    }
    (drain.stopping > 0).then(|| ("stopping", format!("waiting for {} pods to stop", drain.waiting)))
}

/// Whether the claim is deleted because of an interruption or another forced reason, rather than voluntarily.
pub(super) fn is_forced(deps: &Termination, claim: &NodeClaim) -> bool {
    let is_forced = |claim: &str| deps.ledger.read(|it| it.removal(claim).is_some_and(|it| it.reason.is_forced()));
    interruption::notice_of(claim).is_some() || is_forced(&claim.name_any()) || plimsoll_snapshot::was_expired(claim)
}

/// Why the claim is disrupted, for Events on its pods.
fn why(claim: &NodeClaim) -> String {
    claim.true_condition(DISRUPTION_REASON).map_or_else(|| NO_REASON.to_owned(), |it| it.reason.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attempt(pod: &str, grace: Option<u32>) -> Attempt {
        let pod =
            json!({"metadata": {"name": pod, "namespace": "ns", "uid": pod}, "spec": {"containers": []}, "status": {}});
        Attempt { pod: Arc::new(serde_json::from_value(pod).unwrap()), grace }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_pod_is_tried_again_later_and_later_and_delays_neither_its_deletion_nor_others() {
        let evictions = Evictions::default();
        let (web, other) = (attempt("web", None), attempt("other", None));
        let mut waits = Vec::new();
        for _ in 0..9 {
            evictions.pause(web.key());
            waits.push(evictions.next(std::slice::from_ref(&web)).unwrap().as_millis());
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(evictions.next(&[attempt("web", Some(5))]), None);
        evictions.pause(other.key());
        assert_eq!(evictions.next(&[web.clone(), other]), Some(FIRST_PAUSE));
        tokio::time::advance(LAST_PAUSE * 8).await;
        evictions.pause(web.key());
        assert_eq!(evictions.next(&[web]), Some(FIRST_PAUSE), "what was long ago is forgotten");
    }

    #[test]
    fn a_drain_that_waits_for_pods_to_stop_says_so() {
        assert_eq!(delay(&Drain { waiting: 2, ..Drain::default() }, &[]), None, "the evictions only begin");
        let drain = Drain { waiting: 2, stopping: 1, ..Drain::default() };
        assert_eq!(delay(&drain, &[]), Some(("stopping", "waiting for 2 pods to stop".to_owned())));
        let refused = delay(&drain, &["ns/web: a budget refuses it".to_owned()]);
        assert_eq!(refused, Some(("refused", "waiting for 2 pods: ns/web: a budget refuses it".to_owned())));
    }
}
