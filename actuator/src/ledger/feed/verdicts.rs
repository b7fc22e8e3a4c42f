//! kube-scheduler's verdict on an unschedulable pod (safety rule 7). kube-scheduler writes the condition only if it
//! differs; a repeated verdict shows as another message, since every change of the nodes changes its counts.

use plimsoll_api::Pod;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A hash of the verdict, valid only within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SchedulingVerdict(u64);

/// The current verdict on the pod; `None` if it was not found unschedulable.
pub(super) fn current(pod: &Pod) -> Option<SchedulingVerdict> {
    let condition = pod.status.unschedulable()?;
    let mut hasher = DefaultHasher::new();
    condition.message.hash(&mut hasher);
    for time in [&condition.last_probe_time, &condition.last_transition_time] {
        time.map(jiff::Timestamp::as_millisecond).hash(&mut hasher);
    }
    Some(SchedulingVerdict(hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(reason: &str, message: &str) -> Pod {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message});
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": {"conditions": [condition]}})).unwrap()
    }

    #[test]
    fn verdict_changes_with_the_message_and_ignores_other_conditions() {
        let first = current(&pod("Unschedulable", "0/1 nodes are available"));
        assert!(first.is_some());
        assert_eq!(current(&pod("Unschedulable", "0/1 nodes are available")), first);
        assert_ne!(current(&pod("Unschedulable", "0/2 nodes are available")), first);
        assert_eq!(current(&pod("SchedulingGated", "0/1 nodes are available")), None);
        assert_eq!(current(&Pod::default()), None);
    }

    /// A repeated verdict may have the same message.
    #[test]
    fn verdict_changes_with_its_times() {
        let at = |probe: &str, transition: &str| {
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "lastProbeTime": probe, "lastTransitionTime": transition});
            let pod = json!({"metadata": {"name": "p"}, "status": {"conditions": [condition]}});
            current(&serde_json::from_value(pod).unwrap())
        };
        let (early, late) = ("2026-01-05T00:00:00Z", "2026-01-05T00:01:00Z");
        let first = at(early, early);
        assert_eq!(at(early, early), first);
        assert_ne!(at(late, early), first);
        assert_ne!(at(early, late), first);
    }
}
