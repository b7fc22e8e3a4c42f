//! Pod events that plans may not know: pods that came to a node or left it. `consolidateAfter` counts from the last
//! event of a node, and plans know only what the claims show.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Minimum interval between writes of the last pod event, since pods come in bursts.
const EVERY: SignedDuration = SignedDuration::from_secs(10);

/// How long after the write of an event plans arrive that were made before it. A plan that knows the event arrives
/// later, since plans wait for three seconds after it (decision 244).
const ON_THE_WAY: SignedDuration = SignedDuration::from_secs(1);

/// The pods of a node as last seen.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Hash of the pods.
    pods: u64,
    /// Whether the claim shows the last event.
    is_shown: bool,
    /// When the last event was written to the claim.
    written: Option<Timestamp>,
}

/// The pods of each node, by UID of its claim. A new leader knows no earlier event. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PodEvents(Arc<Mutex<BTreeMap<String, Seen>>>);

impl PodEvents {
    /// Records the hash of the node's pods. Returns whether there was an event that the claim does not show.
    pub(crate) fn observe(&self, claim: &NodeClaim, pods: u64) -> bool {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let mut all = self.0.lock();
        let seen = all.entry(uid).or_insert(Seen { pods, is_shown: true, written: None });
        if seen.pods != pods {
            (seen.pods, seen.is_shown) = (pods, false);
        }
        !seen.is_shown
    }

    /// Whether there was an event that is being written to the claim, is to be written now, or was written a moment
    /// ago. `pods` is the hash of the node's pods now.
    pub(crate) fn is_news(&self, claim: &NodeClaim, pods: u64, now: Timestamp) -> bool {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let Some(seen) = self.0.lock().get(uid).copied() else { return false };
        let is_new = seen.pods != pods || !seen.is_shown;
        let is_due = || next_write(claim, pods).is_none_or(|next| next <= now);
        (is_new && is_due()) || seen.written.is_some_and(|at| now.duration_since(at) < ON_THE_WAY)
    }

    /// Forgets all claims except those with these UIDs.
    pub(crate) fn keep<'a>(&self, uids: impl Iterator<Item = &'a str>) {
        let kept: BTreeSet<&str> = uids.collect();
        self.0.lock().retain(|uid, _| kept.contains(uid.as_str()));
    }

    /// Records that the claim shows the last event since `now`.
    pub(crate) fn written(&self, claim: &NodeClaim, now: Timestamp) {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        if let Some(seen) = self.0.lock().get_mut(uid) {
            (seen.is_shown, seen.written) = (true, Some(now));
        }
    }
}

/// When the next event, after which the node has these pods, may be written to the claim. `None` if at once: the claim
/// shows no event yet, or the node has no pods any more and so may be removed next.
pub(crate) fn next_write(claim: &NodeClaim, pods: u64) -> Option<Timestamp> {
    let last = claim.status.as_ref()?.last_pod_event_time.as_ref().filter(|_| pods != 0)?;
    last.0.checked_add(EVERY).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_767_571_200_000 + milliseconds).unwrap()
    }

    /// A claim that shows an event at this time.
    fn claim(last_event: Option<i64>) -> NodeClaim {
        let last_event = last_event.map_or(Value::Null, |milliseconds| json!(at(milliseconds)));
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c", "uid": "u"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"lastPodEventTime": last_event, "conditions": []},
        }))
        .unwrap()
    }

    #[test]
    fn an_event_is_due_ten_seconds_after_the_last_one_until_the_claim_shows_it() {
        let (events, now) = (PodEvents::default(), at(10_000));
        let (none, old, recent) = (claim(None), claim(Some(0)), claim(Some(1000)));
        assert!(!events.is_news(&none, 7, now) && !events.observe(&none, 7), "a new leader knows no earlier event");
        assert!(!events.is_news(&old, 7, now));
        for (claim, is_due) in [(&none, true), (&old, true), (&recent, false)] {
            assert_eq!(events.is_news(claim, 8, now), is_due, "not seen before: {claim:?}");
        }
        assert!(events.observe(&old, 8));
        for (claim, is_due) in [(&none, true), (&old, true), (&recent, false)] {
            assert_eq!(events.is_news(claim, 8, now), is_due, "{claim:?}");
        }
        events.clone().written(&old, now);
        assert!(!events.observe(&old, 8) && events.observe(&old, 7));
        events.keep(["u", "v"].into_iter());
        assert!(events.observe(&old, 7));
        events.keep(["v"].into_iter());
        assert!(!events.observe(&old, 7), "the claim is gone");
    }

    #[test]
    fn a_node_without_pods_does_not_wait_for_the_write() {
        let (events, claim) = (PodEvents::default(), claim(Some(0)));
        events.observe(&claim, 7);
        assert_eq!((next_write(&claim, 7), next_write(&claim, 0)), (Some(at(10_000)), None));
        assert!(events.is_news(&claim, 0, at(1)) && events.observe(&claim, 0));
        events.written(&claim, at(2));
        // A pod comes and goes before the next write.
        assert!(events.observe(&claim, 8) && !events.is_news(&claim, 8, at(5000)));
        assert!(events.is_news(&claim, 0, at(5000)));
        assert!(events.observe(&claim, 0) && events.is_news(&claim, 0, at(5000)));
    }

    #[test]
    fn a_plan_that_arrives_within_a_second_after_the_write_was_made_before_it() {
        let (events, claim) = (PodEvents::default(), claim(Some(0)));
        events.observe(&claim, 7);
        events.observe(&claim, 8);
        events.written(&claim, at(20_000));
        assert!(events.is_news(&claim, 8, at(20_999)));
        assert!(!events.is_news(&claim, 8, at(21_000)));
    }
}
