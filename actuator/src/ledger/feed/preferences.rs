//! Reports unreadable preference and do-not-disrupt annotations of pods as Events. No other component reports them, and
//! the pods run without them.

use crate::clock::Timestamped;
use crate::events::{Note, object, reason};
use crate::ledger::feed::Sources;
use plimsoll_api::Pod;
use plimsoll_model::time::{Millis, Timestamp};
use std::sync::Arc;

/// Interval between passes over all pods; each pass costs a few look-ups per pod.
const CHECK_INTERVAL: Millis = Millis::from_seconds(30);
/// Events per pass and kind of annotation. All pods of a Deployment share an error, and other Events need space in the
/// queue.
const MAX_EVENTS: usize = 50;

/// When the pods were last checked.
#[derive(Debug, Default)]
pub(super) struct Preferences(Option<Timestamp>);

impl Preferences {
    pub(super) fn check(&mut self, deps: &Sources) {
        let now = deps.clock.timestamp();
        if self.0.is_some_and(|last| now.since(last) < CHECK_INTERVAL) {
            return;
        }
        self.0 = Some(now);
        let pods: Vec<Arc<Pod>> = deps.stores.pods.state();
        let unread = pods.iter().filter_map(|pod| Some((pod, plimsoll_snapshot::ignored_on_demand_ratio(pod)?)));
        for (pod, problem) in unread.take(MAX_EVENTS) {
            let message = format!("{}: {}; it is ignored", problem.field, problem.message);
            deps.events.publish(Note::warning(object(&**pod), reason::INVALID_ANNOTATION, message).with_long_window());
        }
        for note in pods.iter().filter_map(|pod| invalid_protection(pod)).take(MAX_EVENTS) {
            deps.events.publish(note);
        }
    }
}

/// The Event about a pod on a node whose do-not-disrupt annotation protects nothing.
fn invalid_protection(pod: &Pod) -> Option<Note> {
    let is_running = pod.node_name.is_some() && !pod.is_terminal();
    let problem = plimsoll_snapshot::ignored_protection(pod).filter(|_| is_running)?;
    let message = format!("{}: {}; it is ignored", problem.field, problem.message);
    Some(Note::warning(object(pod), reason::INVALID_DO_NOT_DISRUPT, message).with_long_window())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The message of the Event about a pod with this annotation on a node.
    fn message(value: &str, node: &str) -> Option<String> {
        message_in("Running", value, node)
    }

    fn message_in(phase: &str, value: &str, node: &str) -> Option<String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": {"karpenter.sh/do-not-disrupt": value}},
            "spec": {"nodeName": node, "containers": [{"name": "c"}]},
            "status": {"phase": phase},
        }))
        .unwrap();
        invalid_protection(&pod).map(|note| note.message)
    }

    #[test]
    fn an_unreadable_protection_of_a_pod_on_a_node_is_reported() {
        for readable in ["true", "false", "1h30m", "90s"] {
            assert_eq!(message(readable, "n"), None, "{readable}");
        }
        for wrong in ["yes", "30", "0s", "-1h", ""] {
            let told = message(wrong, "n").unwrap_or_default();
            assert!(told.contains(&format!("[karpenter.sh/do-not-disrupt]: {wrong:?} is neither")), "{wrong}: {told}");
        }
        assert_eq!(message("yes", ""), None, "the pod is on no node yet");
        assert_eq!(message_in("Succeeded", "yes", "n"), None, "it has ended");
    }
}
