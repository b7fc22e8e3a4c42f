//! Pod events that claims do not show yet: pods that came to a node or left it. `consolidateAfter` counts from the last
//! event of a node, and plans know only what the claims show.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Minimum interval between writes of the last pod event, since pods come in bursts.
const EVERY: SignedDuration = SignedDuration::from_secs(10);

/// Hash of the pods of each node at the last event that its claim shows, by UID of the claim. A new leader knows none.
/// Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PodEvents(Arc<Mutex<BTreeMap<String, u64>>>);

impl PodEvents {
    /// Whether there was an event that the claim does not show. `pods` is the hash of the node's pods now.
    pub(crate) fn has_new(&self, claim: &NodeClaim, pods: u64) -> bool {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        self.0.lock().get(uid).is_some_and(|shown| *shown != pods)
    }

    /// Whether there was an event that is being written to the claim, or is to be written now.
    pub(crate) fn is_due(&self, claim: &NodeClaim, pods: u64, now: Timestamp) -> bool {
        self.has_new(claim, pods) && next_write(claim).is_none_or(|next| next <= now)
    }

    /// Forgets all claims except those with these UIDs.
    pub(crate) fn keep<'a>(&self, uids: impl Iterator<Item = &'a str>) {
        let kept: BTreeSet<&str> = uids.collect();
        self.0.lock().retain(|uid, _| kept.contains(uid.as_str()));
    }

    /// Records that the claim shows the event after which the node has these pods.
    pub(crate) fn shown(&self, claim: &NodeClaim, pods: u64) {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        self.0.lock().insert(uid, pods);
    }
}

/// When the next event may be written to the claim. `None` if it shows none yet.
pub(crate) fn next_write(claim: &NodeClaim) -> Option<Timestamp> {
    let last = claim.status.as_ref()?.last_pod_event_time.as_ref()?;
    last.0.checked_add(EVERY).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-05T00:00:10Z";

    fn claim(last_event: &Value) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c", "uid": "u"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"lastPodEventTime": last_event, "conditions": []},
        }))
        .unwrap()
    }

    #[test]
    fn an_event_is_due_ten_seconds_after_the_last_one_until_the_claim_shows_it() {
        let (events, now) = (PodEvents::default(), NOW.parse().unwrap());
        let (none, recent) = (claim(&Value::Null), claim(&json!("2026-01-05T00:00:01Z")));
        let old = claim(&json!("2026-01-05T00:00:00Z"));
        assert!(!events.is_due(&none, 7, now), "a new leader does not know the pods of the last event");
        events.shown(&none, 7);
        assert!(!events.is_due(&old, 7, now));
        for (claim, is_due) in [(&none, true), (&old, true), (&recent, false)] {
            assert_eq!((events.has_new(claim, 8), events.is_due(claim, 8, now)), (true, is_due), "{claim:?}");
        }
        events.clone().shown(&old, 8);
        assert!(!events.has_new(&old, 8) && events.has_new(&old, 7));
        events.keep(["u", "v"].into_iter());
        assert!(events.has_new(&old, 7));
        events.keep(["v"].into_iter());
        assert!(!events.has_new(&old, 7), "the claim is gone");
    }
}
